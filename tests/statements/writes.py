"""Write views, writes in place and random draws."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

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
