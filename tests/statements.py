"""The statements of random programs: a table of writers, each with a weight.

A writer takes the program so far, appends one statement, and returns whether the program
goes on (it ends where torch raises and the statement is kept).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.programs import Writer


def choices(table: str) -> tuple[str, ...]:
    """The entries of a table, written with bars between them."""
    return tuple(entry.strip() for entry in table.split("|"))


STATEMENTS: list[tuple[int, Callable[[Writer], bool]]] = []


def statement(weight: int) -> Callable[[Callable[[Writer], bool]], Callable[[Writer], bool]]:
    def register(function: Callable[[Writer], bool]) -> Callable[[Writer], bool]:
        STATEMENTS.append((weight, function))
        return function

    return register


def assign(p: Writer, expression: str | None) -> bool:
    """`v = expression`, sometimes under a mode."""
    if expression is None:
        return True
    name = p.new()
    text = f"{name} = {expression}"
    if p.maybe(7):
        mode = p.one(["torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)"])
        text = f"with {mode}: {text}"
    return p.add(text, [name], expression)


# ----- values ---------------------------------------------------------------------------
UNARY = choices("""
    {}.sin() | {}.cos() | -{} | {}.tanh() | {}.sigmoid() | {}.abs() | {}.relu() | {}.square() | {} ** 2 |
    {}.exp() | ({}.abs() + 0.5).log() | ({}.square() + 1).sqrt() | {}.sign() | {}.clone() | {}.atan() |
    torch.exp(-{}) | {}.sgn() | 1 / {} | F.silu({}) | F.gelu({}) | {}.erf() | {}.reciprocal() | +{}
""")
BINARY = choices("""
    {} + {} | {} - {} | {} * {} | {} / {} | {} + {} | {} * {} | torch.add({}, {}, alpha=2) |
    torch.sub({}, {}, alpha=3) | torch.add({}, {}, alpha=1) | torch.mul({}, {})
""")
TENSOR_PAIR = choices("""
    torch.maximum({}, {}) | torch.minimum({}, {}) | torch.atan2({}, {}) | torch.copysign({}, {}) |
    torch.hypot({}, {}) | torch.where({0} > {1}, {0}, {1}) | torch.where({0} == {1}, {0}, 0.0) |
    {0} * ({1} > 0) | torch.lerp({}, {}, 0.3) | torch.addcmul({0}, {0}, {1}, value=2) |
    torch.stack(torch.broadcast_tensors({}, {})).sum(0) | F.mse_loss(*torch.broadcast_tensors({}, {})) |
    torch.fmod({}, {}) | {}.abs() ** {}
""")
ATTRIBUTED = choices("""
    {}.sum() | {}.sum(0) | {}.sum(-1) | {}.sum(0, keepdim=True) | {}.sum(-1, keepdim=True) | {}.mean() |
    {}.mean(0) | {}.mean(0, keepdim=True) | {}.amax(0) | {}.amax(-1) | {}.prod() | {}.prod(0) | {}.cumsum(0) |
    {}.cumsum(-1) | {}.softmax(0) | {}.softmax(-1) | {}.log_softmax(-1) | {}.logsumexp(0) | {}.logsumexp(-1) |
    {}.var(0) | {}.var(0, correction=0) | {}.std(-1) | {}.norm() | {}.norm(p=1) | {}.norm(p=2, dim=0) |
    {}.clamp(-0.5, 0.5) | {}.clamp(min=0) | {}.clamp(min=0.0) | {}.clamp(max=0) | F.leaky_relu({}, 0.1) |
    F.leaky_relu({}, 0.2) | F.softplus({}) | F.softplus({}, beta=2) | F.gelu({}, approximate='tanh') |
    F.elu({}) | F.elu({}, 0.5) | torch.round({}, decimals=1) | {}.roll(1, 0) | {}.roll(1, -1) | {}.flip(0) |
    {}.flip(-1) | F.pad({}, (1, 1)) | F.pad({}, (1, 1), value=2.0) | F.layer_norm({}, {}.shape[-1:]) |
    {}.tril() | {}.tril(1) | {}.triu(-1) | {}.repeat(2, 1) | {}.to(torch.float32) | {}.to(torch.float64) |
    {}.double() | {}.float() | {}.logcumsumexp(0) | {}.diff(dim=0) | {}.masked_fill({} > 0, 2.0) |
    F.normalize({}, dim=-1) | {}.nan_to_num(0.0) | {}.nan_to_num(1.0) | F.hardtanh({}) | F.logsigmoid({})
""")


@statement(12)
def unary(p: Writer) -> bool:
    return assign(p, p.one(UNARY).format(p.real()))


@statement(22)
def binary(p: Writer) -> bool:
    a = p.real()
    b = p.operand(a)
    if b[0] not in "abcdefghijklmnopqrstuvwxyz" or b in ("nan", "inf") or p.maybe(75):
        pattern = p.one(BINARY)
    else:
        pattern = p.one(TENSOR_PAIR)
    if p.maybe(30):
        a, b = b, a
    return assign(p, pattern.format(a, b))


@statement(10)
def nested(p: Writer) -> bool:
    """An expression whose intermediate values nobody holds."""
    a = p.real()
    inner = f"({p.one(BINARY).format(a, p.operand(a))})"
    middle = f"({p.one(BINARY).format(inner, p.operand(a))})" if p.maybe(50) else inner
    return assign(p, p.one(UNARY).format(middle))


@statement(14)
def attributed(p: Writer) -> bool:
    a = p.real()
    pattern = p.one(ATTRIBUTED)
    return assign(p, pattern.format(*[a] * pattern.count("{}")))


@statement(5)
def product(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and 0 < t.dim() <= 2) or "x"
    t = p.env[a]
    b = p.pick(lambda u: u.dtype == t.dtype and 0 < u.dim() <= 2 and u.shape[0] == t.shape[-1]) or "w"
    return assign(
        p, p.one(choices("{} @ {} | torch.matmul({}, {}) | F.linear({}, {}.t()) | ({0} @ {1}).t()")).format(a, b)
    )


@statement(5)
def integers(p: Writer) -> bool:
    a = p.pick(lambda t: t.dtype in (torch.int64, torch.bool)) or "i"
    pattern = p.one(
        choices("""
            {} + {lit} | {lit} * {} | {} - {lit} | {} / {lit} | {}.double() | {}.sum() | {} * {v} | {v} + {} |
            {}.sin() | {}.float() | ({} > 0) | {}.to(torch.float64) * 2
        """)
    )
    return assign(p, pattern.format(a, lit=p.literal(), v=p.one(("s", "y", "f"))))


@statement(4)
def complex_value(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_complex()) or "z"
    pattern = p.one(
        choices("""
            {} * {} | {} + 1j | {} * (1 + 0j) | {}.conj() | {}.abs() | {}.real | {}.imag | {} * 2.0 | {}.exp() |
            torch.view_as_real({}) | {} * y | -{} | {}.angle() | {} / (2 - 1j)
        """)
    )
    return assign(p, pattern.format(*[a] * pattern.count("{}")))


@statement(6)
def indexed(p: Writer) -> bool:
    a = p.real()
    pattern = p.one(
        choices("""
            {0}[{0} > 0] | {0}[i % {0}.shape[0]] | {0}.index_select(0, i % {0}.shape[0]) |
            torch.where({0} > 0, {0}, 0.0) | torch.where({0} > 0, 1.0, {0}) | {0}[..., None] |
            torch.where(m, {0}, c) | {0}.take(i % {0}.numel()) | {0}[i[:1] % {0}.shape[0]] |
            {0}.masked_select({0} < 1) | {0} * m | torch.gather({0}, 0, i[:1].expand_as({0}[:1]) * 0)
        """)
    )
    return assign(p, pattern.format(a))


@statement(4)
def joined(p: Writer) -> bool:
    a = p.real()
    shape = p.env[a].shape
    b = p.pick(lambda t: t.is_floating_point() and t.shape == shape) or a
    return assign(
        p,
        p.one(
            choices("""
                torch.cat([{0}, {1}]) | torch.stack([{0}, {1}]) | torch.stack([{0}, {1}, {0}], -1) |
                torch.cat([{1}, {0}], -1) | torch.stack([{0}, {1}]).sum(0)
            """)
        ).format(a, b),
    )


@statement(4)
def several(p: Writer) -> bool:
    """Calls with several outputs."""
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0 and t.shape[0] == 2) or "x"
    u, v = p.new(), p.new()
    expression = p.one(
        choices("""
            {}.max(0) | {}.min(dim=0) | {}.unbind(0) | {}.split(1) | {}.chunk(2) | {}.sort(0) |
            torch.var_mean({}, dim=0) | {}.topk(1, 0) | torch.tensor_split({}, 2) | torch.frexp({}) |
            torch.meshgrid({0}.flatten(), y, indexing='ij') | torch.std_mean({})
        """)
    ).format(a)
    return p.add(f"{u}, {v} = {expression}", [u, v])


# ----- aliases and writes ------------------------------------------------------------------
VIEWS = choices("""
    {}.view(-1) | {}.reshape(-1) | {}.t() | {}[0] | {}[1:] | {}[..., 0] | {}[..., 1:] | {}[None] |
    {}.flatten() | {}.unsqueeze(0) | {}.squeeze() | {}.expand(2, *{}.shape) | {}.transpose(0, -1) |
    {}.narrow(0, 0, 1) | {}.select(-1, 0) | {}.diagonal() | {}.contiguous() | {}.movedim(0, -1) | {}.mT |
    {}.view_as({}) | {}[::2] | {}.view({}.shape) | {}.as_strided((2,), (1,)) | {}.detach() | {}.permute(-1, 0)
""")


@statement(13)
def view(p: Writer) -> bool:
    a = p.real()
    pattern = p.one(VIEWS)
    if "as_strided" in pattern and p.env[a].numel() < 2:
        return True  # it would show memory that is nobody's
    return assign(p, pattern.format(*[a] * pattern.count("{}")))


WRITES = choices("""
    {a} += {b} | {a} *= {b} | {a} -= {b} | {a}.add_({b}) | {a}.mul_({b}) | {a}.sub_({b}) | {a}.div_({b}) |
    {a}.copy_({b}) | {a}.fill_({l}) | {a}.zero_() | {a}[0] = {b} | {a}[..., 0] = {l} | {a}[{a} > 0] = {l} |
    {a}[1:] *= {b} | {a}.view(-1).mul_({l}) | {a}.t().add_({l}) | {a}.clamp_(-1, 1) | torch.relu_({a}) |
    {a}.neg_() | {a}.sigmoid_() | {a}.sin_() | {a}.masked_fill_({a} < 0, {l}) | {a}.add_({b}, alpha=2) |
    {a}.index_fill_(0, i[1:2], 2.0) | {a}.tanh_() | {a}.pow_(2) | {a}.exp_() | {a}.square_() | {a}[...] = {b} |
    {a}.addcmul_({b}, {b}) | {a}[i[:1] % 2] = {l} | {a}.select(0, 0).mul_({b}) | {a}.lerp_({b}, 0.5) |
    {a}.flatten()[0] = {l} | {a}.cumsum_(0) | {a}.detach_() | {a}.unsqueeze_(0) | {a}.t_() | {a}.sqrt_()
""")


@statement(17)
def write(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and not (t.is_leaf and t.requires_grad)) or "c"
    if p.maybe(4):
        a = p.real()
    text = p.one(WRITES).format(a=a, b=p.operand(a), l=p.literal())
    if p.maybe(15):
        text = f"with torch.no_grad(): {text}"
    return p.add(text)


@statement(3)
def write_unseen(p: Writer) -> bool:
    """Writes that leave no version behind, or reach leaves."""
    a = p.real()
    pattern = p.one(
        choices("""
            {}.data.mul_(2) | {}.detach().add_(1) | with torch.no_grad(): {}.add_(1) | {}.data.zero_() |
            {}.detach().numpy()[...] = 0.5 | {}.data[...] = 0.25 | with torch.no_grad(): {}.copy_({} * 2)
        """)
    )
    return p.add(pattern.format(*[a] * pattern.count("{}")))


@statement(5)
def drawn(p: Writer) -> bool:
    a = p.real()
    pattern = p.one(
        choices("""
            F.dropout({}, 0.5) | torch.randn_like({}) | torch.rand_like({}) * {} |
            torch.bernoulli({}.sigmoid()) | torch.randn(3, dtype=torch.float64) | torch.rand({}.shape) + {} |
            F.dropout({}, 0.0) | F.dropout({}, 0.5, training=False) | F.rrelu({}, training=True) |
            torch.normal({}, 1.0) | torch.randperm(3) | F.alpha_dropout({}, 0.5, training=True) |
            F.dropout({}, 0.5) * F.dropout({}, 0.5)
        """)
    )
    if p.maybe(15):
        return p.add(
            p.one(
                choices("""
                {}.normal_() | {}.uniform_() | {}.bernoulli_(0.5) | F.dropout({}, 0.5, inplace=True)
            """)
            ).format(a)
        )
    return assign(p, pattern.format(*[a] * pattern.count("{}")))


# ----- repetition, lifetimes -----------------------------------------------------------------
@statement(26)
def twin(p: Writer) -> bool:
    """A line that the program already has."""
    return assign(p, p.one(p.expressions)) if p.expressions else True


@statement(4)
def rebind(p: Writer) -> bool:
    """An old name for a new value: what it named may die."""
    name = p.pick(lambda t: True) or "v1"
    if name[0] != "v" or not p.expressions:
        return True
    expression = p.one(p.expressions)
    return p.add(f"{name} = {expression}", [name], expression)


@statement(5)
def delete(p: Writer) -> bool:
    names = [n for n in p.names if n[0] == "v" and n in p.env]
    if not names:
        return True
    name = p.one(names)
    goes_on = p.add(f"del {name}")
    p.names.remove(name)
    return goes_on


# ----- differentiation ------------------------------------------------------------------------
@statement(5)
def hook(p: Writer) -> bool:
    a = p.tracked()
    if a is None:
        return True
    label = f"{a}:{len(p.statements)}"
    # reading grad_fn first: torch crashes on a hook on a view whose base was written
    pattern = p.one(
        choices("""
            {a}.register_hook(see('{l}')) | {a}.register_hook(see('{l}')) | {a}.register_hook(lambda g: g * 2) |
            handles.append({a}.register_hook(see('{l}'))) |
            {a}.register_post_accumulate_grad_hook(see_grad('{l}'))
        """)
    )
    return p.add(f"{a}.grad_fn; " + pattern.format(a=a, l=label))


@statement(1)
def unhook(p: Writer) -> bool:
    return p.add("handles and handles.pop().remove()")


@statement(4)
def retain(p: Writer) -> bool:
    a = p.tracked()
    return True if a is None else p.add(f"{a}.grad_fn; {a}.retain_grad()")


def total(p: Writer, count: int) -> str | None:
    """A scalar of several variables with different weights."""
    terms = []
    for k in range(count):
        a = p.pick(lambda t: t.requires_grad)
        if a is not None:
            t = p.env[a]
            term = f"{a}.abs().sum()" if t.is_complex() else f"{a}.sum()" if t.dim() else a
            terms.append(f"{term} * {k + 2}")
    return " + ".join(terms) if terms else None


@statement(7)
def backward(p: Writer) -> bool:
    root = total(p, p.choices.integer(1, 3))
    if root is None:
        return True
    retain = p.one(("", "retain_graph=True", "retain_graph=True", "retain_graph=True"))
    return p.add(f"({root}).backward({retain})")


@statement(3)
def backward_inputs(p: Writer) -> bool:
    root, a = total(p, 2), p.tracked()
    if root is None or a is None:
        return True
    return p.add(
        f"{a}.retain_grad(); ({root}).backward(inputs=[{a}], retain_graph=True)"
        if p.maybe(50)
        else f"({root}).backward(inputs=[{a}], retain_graph=True)"
    )


@statement(8)
def gradient(p: Writer) -> bool:
    root, a, b = total(p, p.choices.integer(1, 3)), p.tracked(), p.tracked()
    if root is None or a is None:
        return True
    u, v = p.new(), p.new()
    how = p.one(("create_graph=True", "create_graph=True", "retain_graph=True", "retain_graph=True", ""))
    materialize = p.one(("allow_unused=True", "allow_unused=True", "materialize_grads=True"))
    return p.add(
        f"{u}, {v} = torch.autograd.grad({root}, [{a}, {b}], {materialize}{', ' + how if how else ''})", [u, v]
    )


@statement(2)
def leaf_grad(p: Writer) -> bool:
    a = p.one(choices("x | y | w | s"))
    text = p.one(
        choices("""
            {a}.grad = None | {a}.grad is None or {a}.grad.zero_() | {n} = {a}.grad * 1 |
            with torch.no_grad(): {a} -= 0.1 * {a}.grad | {n} = {a}.grad
        """)
    )
    name = p.new()
    return p.add(text.format(a=a, n=name), [name] if "{n}" in text else [])


@statement(2)
def mark(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_leaf and t.is_floating_point() and not t.requires_grad)
    return True if a is None else p.add(f"{a}.requires_grad_()")


def FINAL(p: Writer) -> bool:
    """The last backward, over several variables."""
    root = total(p, 4)
    return True if root is None else p.add(f"({root}).backward()")
