"""Write leaves and operands of every kind, type and mode."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement


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
    shared = any("numpy()" in line or "np.asarray" in line for line in p.statements)
    if shared and not p.env[a].shape == p.env[b].shape == p.env["d"].shape:
        return True                          # `out=` would free memory that an array goes on reading
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


@statement(3)
def cast(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    name = p.new()
    made = p.one(choices("""
        F.linear({0}.float(), {0}.float()) | {0}.float().softmax(-1) | {0}.exp() | ({0}.float() @ {0}.float().mT).sum()
    """)).format(a)
    return p.add(f"with torch.autocast('cpu'): {name} = {made}", [name])
