"""More statements for random programs: whatever in `torch.autograd` a user can reach beside plain operations.

Custom functions, checkpoints, saved-tensor hooks, the functional API, hooks on nodes, runs inside
hooks, cotangents that are given, modules' functions, optimizers, literals and types of every kind.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.programs import Writer
from tests.statements import STATEMENTS, assign, choices, total

WIDER: list[tuple[int, Callable[[Writer], bool]]] = []


def statement(weight: int) -> Callable[[Callable[[Writer], bool]], Callable[[Writer], bool]]:
    def register(function: Callable[[Writer], bool]) -> Callable[[Writer], bool]:
        WIDER.append((weight, function))
        return function

    return register


# ----- custom functions, checkpoints, saved-tensor hooks ---------------------------------------
@statement(7)
def custom(p: Writer) -> bool:
    a = p.real()
    if p.maybe(40):
        b = p.operand(a)
        u, v = p.new(), p.new()
        made = f"Ranked.apply({a})" if p.maybe(30) else f"Both.apply({a}, {b if b[0].isalpha() else 's'})"
        return p.add(f"{u}, {v} = {made}", [u, v])
    patterns = choices("Square.apply({}) | Grown.apply({}) | Doubled.apply({}) | Square.apply({} * 1)")
    return assign(p, p.one(patterns).format(a))


BODIES = choices("""
    t.sin() * t | (t * t).exp().sum() | F.dropout(t, 0.5) * t.cos() | t.clone().mul_(2).tanh() |
    torch.softmax(t, -1) * s | (t + y.sum()).sigmoid() ** 2 | t.reshape(-1)[:1] * t | t.square().mean() + t
""")


@statement(6)
def checkpointed(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    reentrant = p.one(("False", "False", "True"))
    return assign(p, f"checkpoint(lambda t: {p.one(BODIES)}, {a}, use_reentrant={reentrant})")


@statement(6)
def packed(p: Writer) -> bool:
    a = p.real()
    hooks = p.one(choices("""
        graph.saved_tensors_hooks(lambda t: t, lambda t: t) | graph.save_on_cpu() |
        graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t) |
        graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), lambda t: torch.from_numpy(t)) |
        graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2) |
        graph.disable_saved_tensors_hooks('no') | graph.saved_tensors_hooks(lambda t: (t, t._version), lambda t: t[0])
    """))
    inner = p.one(choices("""
        {0} * {0} | {0}.exp() | ({0} * {1}).sin() | {0}.softmax(-1) | {0}.prod() | {0}.std() | {0} / {1} |
        F.layer_norm({0}, {0}.shape[-1:]) | Square.apply({0}) | {0}.clone().pow_(2)
    """)).format(a, p.operand(a))
    name = p.new()
    return p.add(f"with {hooks}: {name} = {inner}", [name])


# ----- runs ------------------------------------------------------------------------------------
FUNCTIONS = choices("""
    (t * t).sum() | t.sin().sum() * 2 | (t.exp() * t.detach()).sum() | (t * s).tanh().sum() | t.prod() |
    (t.relu() + t ** 3).sum()
""")


@statement(5)
def functional(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.numel() < 10 and t.dim() > 0) or "y"
    body = p.one(FUNCTIONS)
    create = p.one(("", ", create_graph=True"))
    if p.maybe(45):
        u, v = p.new(), p.new()
        call = p.one(choices("functional.vjp | functional.hvp | functional.vhp | functional.jvp"))
        given = f", torch.ones_like({a}.detach())" if call != "functional.vjp" else ""
        return p.add(f"{u}, {v} = {call}(lambda t: {body}, {a}{given}{create})", [u, v])
    call = p.one(choices("""
        functional.jacobian(lambda t: {b}, {a}{c}) | functional.hessian(lambda t: {b}, {a}{c}) |
        functional.jacobian(lambda t: t * t.sin(), {a}{c}) | func.grad(lambda t: {b})({a}) |
        func.jacrev(lambda t: t * t.sin())({a}) | func.vmap(lambda t: (t * t).sum())({a}) |
        functional.jacobian(lambda t: t * t.sin(), {a}, vectorize=True)
    """))
    name = p.new()
    return p.add(f"{name} = {call.format(a=a, b=body, c=create)}", [name])


@statement(7)
def given(p: Writer) -> bool:
    """Cotangents of the user's."""
    a, b = p.tracked(), p.tracked()
    if a is None or b is None:
        return True
    g = p.one(choices("torch.ones_like({0}) | {0}.detach() | torch.full_like({0}, 0.5) | {0} * 2")).format(a)
    keep = p.one((", retain_graph=True", ", retain_graph=True", ""))
    u = p.new()
    text = p.one(choices("""
        {a}.backward({g}{k}) | torch.autograd.backward([{a}, {b}.abs().sum()], [{g}, None]{k}) |
        {u}, = torch.autograd.grad({a}, [{b}], {g}, allow_unused=True{k}) |
        {u}, = torch.autograd.grad({a}, [{b}], {g}, allow_unused=True, create_graph=True) |
        {u}, = torch.autograd.grad({a}, [{b}], torch.stack([{g}, {g}]), allow_unused=True, is_grads_batched=True{k}) |
        {u}, = torch.autograd.grad([{a}, {a}.abs().sum()], [{b}], [{g}, None], materialize_grads=True{k})
    """)).format(a=a, b=b, g=g, k=keep, u=u)
    return p.add(text, [u] if text.startswith(u) else [])


@statement(6)
def hooked(p: Writer) -> bool:
    """Hooks that replace, that run, that hang on nodes, or on several tensors."""
    a, b = p.tracked(), p.tracked()
    if a is None or b is None:
        return True
    label = f"{a}:{len(p.statements)}"
    return p.add(f"{a}.grad_fn; " + p.one(choices("""
        {a}.register_hook(lambda g: g.clone().mul_(2)) | {a}.register_hook(lambda g: g * g) |
        {a}.register_hook(lambda g: see('{l}')(torch.autograd.grad(({a} * 2).sum(), [{a}])[0])) |
        {a}.register_hook(lambda g: ({b} * 3).sum().backward() if {b}.is_leaf else None) |
        {a}.register_hook(lambda g: torch.zeros_like(g)) |
        {a}.grad_fn.register_hook(lambda i, o: see_all('{l}')(o)) |
        {a}.grad_fn.register_prehook(lambda o: tuple(None if g is None else g * 2 for g in o)) |
        handles.append({a}.grad_fn.register_hook(lambda i, o: tuple(None if g is None else g * 2 for g in i))) |
        graph.register_multi_grad_hook([{a}, {b}], see_all('{l}')) |
        graph.register_multi_grad_hook([{a}, {b}], see('{l}'), mode='any') |
        {a}.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(0.5) and None) |
        {a}.register_hook(lambda g: handles and handles.pop().remove())
    """)).format(a=a, b=b, l=label))


# ----- leaves, modes, types ----------------------------------------------------------------------
@statement(6)
def leaf(p: Writer) -> bool:
    a = p.real()
    name = p.new()
    text = p.one(choices("""
        {n} = {a}.detach().clone().requires_grad_() | {n} = torch.nn.Parameter({a}.detach().clone()) |
        {n} = copy.deepcopy({a}) | {n} = {a}.new_ones({a}.shape).requires_grad_() | {a}.requires_grad_(False) |
        {n} = torch.zeros(3, dtype=torch.float64, requires_grad=True) | {n} = torch.tensor({a}.tolist()) |
        {n} = {a}.detach().requires_grad_() | {n} = torch.as_tensor({a}) | {n} = {a}.sum().item() * y |
        {a}.data = {a}.data * 2 | {n} = float({a}.sum()) * y | {a}.requires_grad = True
    """)).format(a=a, n=name)
    return p.add(text, [name] if text.startswith(name) else [])


@statement(6)
def typed(p: Writer) -> bool:
    """Operands of every kind of number and type."""
    a = p.real()
    number = p.one(choices("""
        np.float64(2) | np.float32(0.5) | np.int64(3) | 1j | 2 ** 40 | torch.tensor(2.0) | torch.tensor(3) |
        torch.tensor(True) | i | m.sum() | -inf | 1e-300 | f | f.half() | f.bfloat16() | torch.tensor([2.0]) | z[0]
    """))
    return assign(p, p.one(choices("""
        {a} * {n} | {n} * {a} | {a} + {n} | {a} / {n} | {n} - {a} | {a} ** {n} | torch.add({a}, {n}) | {n} / {a} |
        torch.where({a} > 0, {a}, {n}) | torch.maximum({a}, {a} * {n}) | torch.eq({a}, {n}) * {a} | {a} // {n} |
        {a} % {n} | torch.mul({n}, {a}) | {a}.clone().mul_({n}) | torch.rsub({a}, {n})
    """)).format(a=a, n=number))


@statement(4)
def refused(p: Writer) -> bool:
    """`out=`, inference tensors, arrays: where torch refuses a gradient."""
    a, name = p.real(), p.new()
    b = p.pick(lambda t: t.is_floating_point() and not (t.is_leaf and t.requires_grad)) or "d"  # no leaf is resized
    text = p.one(choices("""
        torch.sin({a}, out={b}) | torch.add({a}, 1, out={b}) | torch.mul(d, 2, out={b}) |
        {n} = torch.sin({a}.detach(), out=torch.empty_like({a}.detach())) |
        {n} = torch.from_numpy({a}.detach().numpy()) |
        {n} = {a}.numpy() | with torch.no_grad(): torch.mul({a}, 2, out={b})
    """)).format(a=a, b=b, n=name)
    return p.add(text, [name] if text.startswith(name) else [])


@statement(3)
def infer(p: Writer) -> bool:
    a, name = p.real(), p.new()
    made = p.one(choices("{} * 2 | {}.view(-1) | {}.detach()")).format(a)
    return p.add(f"with torch.inference_mode(): {name} = {made}", [name])


LAYERS = choices("""
    F.linear({0}, {0}.detach()) | F.conv1d({0}.reshape(1, 1, -1), y.reshape(1, 1, 3), padding=1) |
    F.batch_norm({0}.reshape(2, -1), None, None, training=True) | F.cross_entropy({0}.reshape(1, -1), i[:1] * 0) |
    F.embedding(i, {0}.reshape(-1, 1).repeat(3, 1)) | torch.einsum('...i,...i->...', {0}, {0}) |
    F.smooth_l1_loss({0}, {0}.detach() * 2) | F.max_pool1d({0}.reshape(1, 1, -1), 2, 1) |
    torch.cdist({0}.reshape(1, -1), y.sum().expand(1, {0}.numel())) | {0}.unfold(-1, 1, 1) | {0}.kthvalue(1)[0] |
    torch.block_diag({0}.reshape(1, -1), y) | F.scaled_dot_product_attention(*[{0}.reshape(1, 1, -1)] * 3) |
    torch.nn.functional.glu(torch.cat([{0}, {0}])) | {0}.median() | {0}.cumprod(-1) | {0}.renorm(2, 0, 1.0) |
    {0}.outer({0}) | torch.linalg.norm({0}) | torch.tensordot({0}, {0}, {0}.dim()) |
    {0}.scatter(0, i[:1].view([1] * {0}.dim()) * 0, 5.0) |
    {0}.index_add(0, i[:1] * 0, {0}[:1]) | {0}.index_copy(0, i[:1] * 0, {0}[:1] * 2) | torch.hstack([{0}, {0}]) |
    {0}.squeeze().unflatten(0, (1, -1)) | {0}.swapaxes(0, -1) | {0}.std() | torch.special.entr({0}) | {0}.logit(0.1) |
    torch.trapezoid({0}) | {0}.sinc() | {0}.amax() | {0}.aminmax()[0] | {0}.quantile(0.5) | {0}.rsqrt() |
    torch.celu({0})
""")


@statement(8)
def layer(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    return assign(p, p.one(LAYERS).format(a))


@statement(5)
def written(p: Writer) -> bool:
    """Writes with indices, masks, other types, or to several tensors."""
    a = p.pick(lambda t: t.is_floating_point() and not (t.is_leaf and t.requires_grad)) or "c"
    b = p.operand(a)
    text = p.one(choices("""
        {a}.index_add_(0, i[:1] * 0, {a}[:1].detach()) | {a}.scatter_(0, i[:1].view([1] * {a}.dim()) * 0, 5.0) |
        {a}.index_put_((i[:1] * 0,), y[0]) | {a}.masked_scatter_({a} > 0, {a}.detach() * 2) | {a}.addcdiv_({b}, {b}) |
        {a}.index_copy_(0, i[:1] * 0, {a}[:1] * 2) | {a}.clamp_(min={b}) | {a}.atan2_({b}) | {a}.copy_(i[0]) |
        {a}.add_(f[0]) | {a}.mul_(m.sum()) | {a} **= 2 | {a} /= {b} | {a}.hypot_({b}) | {a}.round_() |
        {a}.cumprod_(-1) |
        torch._foreach_mul_([{a}], 2.0) | torch._foreach_add_([{a}, d], 1.0) | {a}.squeeze_() | {a}.transpose_(0, -1) |
        {a}.unbind(0)[0].mul_(2) | {a}.split(1)[0].add_(1) | {a}.real.mul_(2) | {a}.swapaxes_(0, -1) | {a}.tril_() |
        {a}[None].squeeze(0).sub_({b}) | {a}.expand_as({a}).add_(1) | {a}[m[0, :1]] = 1.0 | {a}.data[0] = 2.0 |
        {a}.remainder_(2.0) | {a}.fmod_(1.5) | {a}.erf_() | {a}.logit_(0.2) | {a}.nan_to_num_(0.0) |
        {a}.abs_() | {a}.resize_(1)
    """)).format(a=a, b=b)
    if p.maybe(15):
        text = f"with torch.no_grad(): {text}"
    return p.add(text)


@statement(3)
def stepped(p: Writer) -> bool:
    """What a training loop does to its leaves."""
    return p.add(p.one(choices("""
        torch.optim.SGD([x, y, w], lr=0.1).step() | torch.optim.Adam([x, s], lr=0.1).step() |
        torch.nn.utils.clip_grad_norm_([x, y, w, s], 1.0) | torch.optim.SGD([x, y], lr=0.1, momentum=0.9).zero_grad()
    """)))


@statement(3)
def cast(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    name = p.new()
    made = p.one(choices("""
        F.linear({0}.float(), {0}.float()) | {0}.float().softmax(-1) | {0}.exp() | ({0}.float() @ {0}.float().mT).sum()
    """)).format(a)
    return p.add(f"with torch.autocast('cpu'): {name} = {made}", [name])


@statement(2)
def total_of_several(p: Writer) -> bool:
    root = total(p, 2)
    return True if root is None else p.add(f"with torch.no_grad(): ({root}).backward()")


ALL = STATEMENTS + WIDER
"""Both tables."""
