"""Write operators at their kinks: ties, zeros, bounds."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

TIES = choices("""
    [0.0, 1.0, 1.0, -1.0, -0.0, 0.5] | [1.0] * 6 | [0.0] * 6 | [-0.5, 0.5, 0.5, 2.0, 2.0, 6.0] | [3.0, -3.0] * 3
""")


@statement(4)
def tied_values(p: Writer) -> bool:
    name = p.new()
    shape = p.one(("6", "2, 3", "3, 2", "1, 1, 6"))
    dtype = p.one(("float64", "float64", "float64", "float32"))
    return p.add(f"{name} = torch.tensor({p.one(TIES)}, dtype=torch.{dtype}).view({shape})"
                 f"{p.one(('.requires_grad_()', '.requires_grad_()', ' * s'))}", [name])


KINKED = choices("""
    {0}.clamp(-0.5, 0.5) | {0}.clamp(0, 1) | {0}.clamp(min=1.0) | {0}.clip(max=0) | {0}.clamp({0}.detach(), None) |
    {0}.clamp(torch.zeros_like({0}), torch.ones_like({0})) | {0}.relu() | F.relu6({0}) | F.hardtanh({0}) |
    F.hardtanh({0}, -0.5, 0.5) | F.hardswish({0}) | F.hardsigmoid({0}) | F.leaky_relu({0}) | F.elu({0}) |
    F.selu({0}) | F.celu({0}) | F.threshold({0}, 0.5, 0.0) | F.softshrink({0}) | F.hardshrink({0}) |
    F.prelu({0}, s) | F.rrelu({0}) | {0}.abs() | {0}.sign() | {0}.sgn() | {0}.max() | {0}.min() | {0}.median() |
    {0}.nanmedian() | {0}.amax() | {0}.amin(-1) | {0}.amax(0) | {0}.max(-1)[0] | {0}.min(0)[0] | {0}.median(-1)[0] |
    {0}.mode(-1)[0] | {0}.sort(-1)[0] | {0}.sort(-1, descending=True)[0] | {0}.sort(-1, stable=True)[0] |
    {0}.topk(1)[0] | {0}.kthvalue(1)[0] | {0}.cummax(-1)[0] | {0}.cummin(-1)[0] | {0}.aminmax(dim=0)[0] |
    {0}.msort() | torch.maximum({0}, {1}) | torch.minimum({0}, {1}) | torch.fmax({0}, {1}) | torch.fmin({0}, {1}) |
    torch.maximum({0}, {0}.detach()) | torch.minimum({0}, -{0}) | torch.maximum({0}, {0} * 1) | {0}.norm() |
    {0}.norm(p=1) | {0}.norm(p=0) | {0}.norm(p=inf) | {0}.norm(p=-inf) | {0}.norm(p=3, dim=-1) | {0}.norm(dim=0) |
    torch.linalg.vector_norm({0}, 1.5) | F.normalize({0}, dim=-1) | ({0} - {0}).norm() |
    torch.where({0} == {1}, {0}, {1}) | torch.where({0} > 0, {0}, 0.0) | {0} ** 0 | {0} ** 2.0 | {0}.pow(0.0) |
    {0}.pow({0}.detach() * 0) | 0.0 ** {0} | {0} ** {1} | {0}.sqrt() | {0}.rsqrt() | ({0} * 0).sqrt() |
    {0}.reciprocal() | {0}.log1p() | torch.xlogy({0}, {0}) | {0}.sinc() | {0}.prod() | {0}.prod(-1) |
    {0}.cumprod(-1) | {0}.std() | ({0} * 0).std(-1) | ({0} * 0).var() | torch.special.entr({0}) |
    F.max_pool1d({0}.reshape(1, 1, -1), 2) | F.max_pool1d({0}.reshape(1, 1, -1), 3, 1, 1) |
    F.adaptive_max_pool1d({0}.reshape(1, 1, -1), 2) | F.max_pool2d({0}.reshape(1, 1, 2, -1), 2, 1) |
    torch.atan2({0}, {1}) | torch.hypot({0}, {0} * 0) | {0}.fmod(0.5) | {0}.remainder(1.0) | {0}.frac() |
    {0}.trunc() | {0}.round() | {0}.floor() * {0} | torch.copysign({0}, {1}) |
    torch.heaviside({0}, {1}.detach()) * {0} | F.l1_loss({0}, {0}.detach()) |
    F.smooth_l1_loss({0}, {0}.detach() * 0) | F.huber_loss({0}, {0}.detach() * 0, delta=0.5) |
    F.margin_ranking_loss({0}, {0} * 1, torch.ones_like({0})) |
    F.hinge_embedding_loss({0}, torch.ones_like({0}).neg()) | torch.dist({0}, {0} * 1) |
    torch.cdist({0}.reshape(2, -1), {0}.reshape(2, -1)) | {0}.renorm(2, 0, 1.0) | {0}.logit(0.5) |
    {0}.quantile(0.5) | torch.linalg.norm({0}.reshape(2, -1), ord=inf) | F.pairwise_distance({0}, {0} * 1) |
    {0}.logsumexp(-1) | {0}.nan_to_num() | {0}.clamp(0.5, 0.5) | {0}.clamp(1, -1) | {0}.softmax(-1).max() |
    F.gelu({0}) | F.softplus({0}, threshold=0.5) | {0}.scatter_reduce(0, ({0} * 0).long(), {0}, 'amax') |
    {0}.scatter_reduce(0, ({0} * 0).long(), {0}, 'prod') | torch.nn.functional.cosine_similarity({0}, {0}, dim=-1) |
    torch.logaddexp({0}, {0}) | F.multi_margin_loss({0}.reshape(1, -1), i[:1] * 0)
""")


@statement(12)
def kinked(p: Writer) -> bool:
    a = p.real()
    b = p.operand(a)
    return assign(p, p.one(KINKED).format(a, b if b[0].isalpha() and b not in ("nan", "inf", "True", "False") else "s"))


@statement(3)
def kinked_write(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and not (t.is_leaf and t.requires_grad)) or "c"
    return p.add(p.one(choices("""
        {0}.clamp_(0, 1) | {0}.clamp_(min=0.5) | F.relu({0}, inplace=True) | F.hardtanh({0}, inplace=True) |
        {0}.abs_() | F.threshold({0}, 0.5, 0.0, inplace=True) | F.elu({0}, inplace=True) | {0}.clamp_max_(1) |
        F.leaky_relu({0}, inplace=True) | F.relu6({0}, inplace=True) | {0}.pow_(0) | {0}.sqrt_() | {0}.frac_() |
        F.hardswish({0}, inplace=True) | {0}.sign_()
    """)).format(a))
