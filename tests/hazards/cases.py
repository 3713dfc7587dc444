"""Programs that other systems got wrong, by kind of defect; each must do what torch eager does.

A case is a program over the leaves and constants of `tests.programs` (x, y, w, s, f, z require
grad; c, d, i, m do not).  Its name begins with the number of the hazard it guards against:

    01 equal leaves   02 equal buffers   03 signed zeros and NaN   04 types of numbers   06 attributes
    08 randomness   09 grad modes and autocast   10 writes   11 outputs that are one object   12 views
    13 devices   16 order of operands   17 algebra that hides NaN   18 parallel edges   21 effects
    22 several outputs   23 hooks and retain_grad   24 one tensor twice   25 double backward
    26 what is set on one twin   28 lifetimes

Hazards of the passes and of whole graphs are in the other files of this folder: hashes 05 and counters 07
(`test_identity.py`), survivors 14, functions 15, recomputation 19 and 20, threads 27, deep graphs 30
(`test_structure.py`); growth 29 is in `tests/passes/test_cost.py`.
"""

from __future__ import annotations

import ast

from tests.programs import Program

CASES: dict[str, str] = {}


def case(name: str, text: str) -> None:
    """Add one program."""
    assert name not in CASES, name
    CASES[name] = text


def program(name: str) -> Program:
    """A case, statement by statement."""
    return Program([ast.unparse(node) for node in ast.parse(CASES[name]).body], loose_names(CASES[name]))


def loose_names(text: str) -> frozenset[str]:
    """Variables that descend from a gradient are compared with a tolerance: their names begin with g."""
    return frozenset(node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id[0] == "g")


# ----- wrong merges: leaves, buffers, literals --------------------------------------------------
case("01 equal constant and row of a leaf", "a = x[0] * d; b = d * x[0]; (a + b * 2).sum().backward()")
case("01 equal leaves", """
p = torch.tensor(3.0, requires_grad=True); q = torch.tensor(3.0, requires_grad=True)
(p * 2 + q * 2 + p + q).backward()
""")
case("01 equal parameters", """
p = torch.nn.Parameter(torch.ones(3)); q = torch.nn.Parameter(torch.ones(3))
(p.exp() * 2 + q.exp() * 3 + p * q).sum().backward()
""")
case("01 equal constants written", """
p = torch.ones(3); q = torch.ones(3)
p.add_(1)
a = p * y; b = q * y
(a + b * 2).sum().backward()
""")
case("02 zeros are two buffers", "u = torch.zeros(3); v = torch.zeros(3); u.add_(1); a = v + y; b = u + y")
case("02 zeros_like are two buffers", """
u = torch.zeros_like(x); v = torch.zeros_like(x); u.add_(x); v.mul_(x); a = u * v
""")
case("02 accumulators", """
u = torch.zeros(3, dtype=torch.float64).index_add_(0, i, y); v = torch.zeros(3, dtype=torch.float64).index_add_(0, i, y)
u.mul_(2)
(u * 3 + v * 5).sum().backward()
""")
case("02 clones are two buffers", """
u = c.clone(); v = c.clone(); u.zero_(); a = u + x; b = v + x; (a * b).sum().backward()
""")
case("02 filled buffers", "u = torch.full((3,), 2.0); v = torch.full((3,), 2.0); u[0] = 7; a = v * y")
case("03 signed zeros multiply", "a = 1 / (x * 0.0); b = 1 / (x * -0.0); (a * 0 + b).sum().backward()")
case("03 signed zeros add", "a = torch.copysign(y, w[1] * 0 + 0.0); b = torch.copysign(y, w[1] * 0 + -0.0)")
case("03 copysign of literals", "a = torch.copysign(y, 0.0); b = torch.copysign(y, -0.0); (a + b * 3).sum().backward()")
case("03 atan2 of zeros", """
a = torch.atan2(y * 0.0, -y.abs()); b = torch.atan2(y * -0.0, -y.abs()); (a + b * 3).sum().backward()
""")
case("03 div by zeros", "a = y / 0.0; b = y / -0.0; u = y.div(0.0); v = y.div(-0.0)")
case("03 nan and inf literals", "a = y + nan; b = y + inf; u = y + -inf; v = y + nan")
case("03 clamp at zeros", "a = 1 / w.clamp(min=0.0); b = 1 / w.clamp(min=-0.0)")
case("03 fill with zeros", """
u = torch.zeros(3, dtype=torch.float64).fill_(0.0); v = torch.zeros(3, dtype=torch.float64).fill_(-0.0)
a = 1 / u; b = 1 / v
""")
case("03 where with zeros", "a = 1 / torch.where(y > 9, y, 0.0); b = 1 / torch.where(y > 9, y, -0.0)")
case("03 pad with zeros", "a = 1 / F.pad(y, (1, 1), value=0.0); b = 1 / F.pad(y, (1, 1), value=-0.0)")
case("04 integer plus literals", "a = i + 1; b = i + 1.0; u = i + True; v = i * True; t = i * 1.0; r = i * 1")
case("04 bool plus literals", "a = m + 1; b = m + 1.0; u = m + True; v = m * 2; t = m * 2.0")
case("04 float plus literals", "a = f + 1; b = f + 1.0; u = f + True; (a + b * 2 + u * 3).sum().backward()")
case("04 complex literals", "a = y * 1; b = y * (1 + 0j); u = y * 1.0; v = z * 1; t = z * (1 + 0j)")
case("04 division of integers", "a = i / 2; b = i / 2.0; u = i // 2; v = i // 2.0; t = i % 2; r = i % 2.0")
case("04 powers", "a = i ** 2; b = i ** 2.0; u = y ** 2; v = y ** 2.0; (u + v * 3).sum().backward()")
case("04 default dtype", """
a = i.sin(); u = i / 2; p = m * 0.5
torch.set_default_dtype(torch.float64)
b = i.sin(); v = i / 2; q = m * 0.5
torch.set_default_dtype(torch.float32)
""")
case("04 full with literals", "a = torch.full((2,), 1); b = torch.full((2,), 1.0); u = torch.full((2,), True)")
# ----- attributes (test_attributes.py has all of them, generated from the operator table) ---------
case("06 another operator", """
a = w.tril(); b = w.triu(); u = w.tril(); v = w.cumsum(0); t = w.logcumsumexp(0)
(a + b * 2 + u + v * 3 + t).sum().backward()
""")
case("06 roll", "a = x.roll(1, 1); b = x.roll(2, 1); u = x.roll(1, 1); (a * c + b * c * 2 + u * 3).sum().backward()")
case("06 dims", "a = w.sum(0); b = w.sum(1); u = w.sum(0); v = w.sum(()); (a * y + b * y * 2 + u + v).sum().backward()")
case("06 factors", "a = x * 2; b = x * 3; u = x * 2; (a + b * 5 + u).sum().backward()")
case("06 softmax", "a = w.softmax(0); b = w.softmax(1); u = w.softmax(0); (a * w + b * w * 2 + u).sum().backward()")
case("06 norms", """
a = y.norm(p=1); b = y.norm(p=2); u = y.norm(p=3); v = y.norm(); (a + b * 2 + u * 3 + v * 4).backward()
""")
case("06 correction", "a = y.var(correction=0); b = y.var(correction=1); u = y.var(); (a + b * 2 + u).backward()")
case("06 reduction", """
a = F.mse_loss(y, d, reduction='sum'); b = F.mse_loss(y, d); u = F.mse_loss(y, d, reduction='none')
(a + b * 2 + u.sum()).backward()
""")
case("06 eps", """
a = F.layer_norm(x, (3,), eps=1e-5); b = F.layer_norm(x, (3,), eps=1.0); u = F.layer_norm(x, (3,))
(a * c + b * c * 2 + u).sum().backward()
""")
case("06 dtype", """
a = y.sum(dtype=torch.float32); b = y.sum(dtype=torch.float64); u = y.sum()
(a.double() + b * 2 + u).backward()
""")
case("08 dropout twice", """
torch.manual_seed(1); a = F.dropout(x, 0.5); b = F.dropout(x, 0.5); (a + b * 2).sum().backward()
""")
case("08 noise twice", """
a = torch.randn_like(x); b = torch.randn_like(x); u = torch.rand_like(x); v = torch.rand_like(x)
(a * x + b * x).sum().backward()
""")
case("08 bernoulli twice", """
a = torch.bernoulli(y.sigmoid()); b = torch.bernoulli(y.sigmoid()); (a * y - b * y).sum().backward()
""")
case("08 filled with noise", """
u = x * 1; u.normal_(); v = x * 1; v.normal_(); t = x * 1; t.uniform_(); (u * x + v * x).sum().backward()
""")
case("08 attention with dropout", """
q = torch.stack([x, x + 1])
a = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5); b = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
(a + b * 2).sum().backward()
""")
case("08 rrelu and alpha dropout", """
a = F.rrelu(x, training=True); b = F.rrelu(x, training=True)
u = F.alpha_dropout(x, 0.5, training=True); v = F.alpha_dropout(x, 0.5, training=True)
t = F.gumbel_softmax(x); r = F.gumbel_softmax(x)
(a + b + u + v + t + r).sum().backward()
""")
case("08 normal with tensors", """
a = torch.normal(y, 1.0); b = torch.normal(y, 1.0); u = torch.normal(y, y.abs() + 1)
v = torch.normal(y, y.abs() + 1)
""")
case("08 multinomial and randperm", """
a = torch.multinomial(d.abs(), 2); b = torch.multinomial(d.abs(), 2); u = torch.randperm(9)
v = torch.randperm(9)
""")
case("08 dropout of equal values", """
a = F.dropout(x * 2, 0.5); b = F.dropout(x * 2, 0.5); (a.exp() + b.exp() * 2).sum().backward()
""")
# ----- modes ---------------------------------------------------------------------------------------
case("09 no_grad first", """
with torch.no_grad(): a = x.sin()
b = x.sin()
(b * 2).sum().backward()
""")
case("09 no_grad second", """
b = x.sin()
with torch.no_grad(): a = x.sin()
t = a * y
(b * 2 + t).sum().backward()
""")
case("09 no_grad function of a weight", """
with torch.no_grad(): a = (F.linear(x, w).tanh() * 2).sum()
b = (F.linear(x, w).tanh() * 2).sum()
b.backward()
""")
case("09 no_grad value held", """
with torch.no_grad(): a = F.linear(x, w)
b = F.linear(x, w)
(b * 2).sum().backward(retain_graph=True)
""")
case("09 set_grad_enabled", """
torch.set_grad_enabled(False)
a = x * y
torch.set_grad_enabled(True)
b = x * y
b.sum().backward()
""")
case("09 enable_grad inside no_grad", """
with torch.no_grad():
    a = x.exp()
    with torch.enable_grad(): b = x.exp()
    t = x.exp()
b.sum().backward()
""")
case("09 detached operand", "a = x.detach().sin(); b = x.sin(); t = a * y; (b * 2 + t).sum().backward()")
case("09 requires_grad between twins", """
a = d * 2
d.requires_grad_()
b = d * 2
(b * 3 + a).sum().backward()
""")
case("09 requires_grad between twins, then used", """
a = y + d
d.requires_grad_()
b = y + d
(a * 3 + b).sum().backward()
""")
case("09 autocast", """
p = w.detach().float().requires_grad_()
a = p @ p
with torch.autocast('cpu', torch.bfloat16): b = p @ p
u = p @ p
with torch.autocast('cpu', torch.float16): t = p @ p
(a + u).sum().backward()
""")
case("09 linear under autocast and not", """
p = w.detach().float().requires_grad_()
with torch.autocast('cpu', torch.bfloat16):
    a = F.linear(p, p)
    with torch.autocast('cpu', enabled=False): b = F.linear(p, p)
    u = F.linear(p, p)
b.sum().backward()
""")
case("09 gradient under autocast", """
p = w.detach().float().requires_grad_()
with torch.autocast('cpu', torch.bfloat16):
    a = F.linear(p, p).tanh() + (p @ p).softmax(-1)
    b = p * (p @ p) + p.exp()
(a.float().sum() + b.float().sum()).backward()
""")
# ----- mutation ---------------------------------------------------------------------------------------
case("10 write between twins", "u = x * 1; a = u.sin(); u.add_(1); b = u.sin(); (a.detach() + b * 2).sum().backward()")
case("10 result overwritten", "a = x.cos(); a.copy_(c); b = x.cos(); (a * x + b * 2).sum().backward()")
case("10 write through a view", """
u = x * 1; v = u.view(-1); a = u.sin(); v[0] = 9.0; b = u.sin(); (a.detach() + b * 2).sum().backward()
""")
case("10 write to the base", """
u = x * 1; v = u[0]; a = v.sin(); u.mul_(2); b = v.sin(); (a.detach() + b * 2).sum().backward()
""")
case("10 view of a constant", "v = c.view(-1); a = v.sin(); c.add_(1); b = v.sin()")
case("10 view of a constant times a leaf", "v = c[0]; a = v * y; c.add_(1); b = v * y; (a + b * 2).sum().backward()")
case("10 base of a written view of a constant", """
v = c[0]; a = c * x; v.add_(1); b = c * x; (a + b * 2).sum().backward()
""")
case("10 write under no_grad", """
a = x.sin()
with torch.no_grad(): x.mul_(2)
b = x.sin()
b.sum().backward()
""")
case("10 write to an intermediate under no_grad", """
u = x * 1
a = u + y
with torch.no_grad(): u.mul_(2)
b = u + y
(a + b * 2).sum().backward()
""")
case("10 constant under no_grad", """
a = c.sin()
with torch.no_grad(): c.mul_(2)
b = c.sin()
""")
case("10 parameter step", """
a = (x * y).sum()
a.backward()
with torch.no_grad(): x -= 0.5 * c
b = (x * y).sum()
b.backward()
""")
case("10 through .data", "u = x * 1; a = u.sin(); u.data.mul_(2); b = u.sin()")
case("10 through .data of a leaf", "a = x + y; x.data.mul_(2); b = x + y; x.data.mul_(2); t = x + y")
case("10 through .data of a base", "u = x * 1; v = u.view(-1); a = v.sin(); u.data.mul_(3); b = v.sin()")
case("10 through .data kept", "u = x * 1; p = u.data; a = u + y; p.mul_(2); b = u + y; p.mul_(2); t = u + y")
case("10 through detach", "u = x * 1; p = u.detach(); a = u + y; p.mul_(2); b = u + y; (a + b * 2).sum().backward()")
case("10 through detach of a leaf", "p = x.detach(); a = x + y; p.mul_(2); b = x + y; (a + b * 2).sum().backward()")
case("10 .data between merged exponentials", """
u = x * 1; a = u.exp(); u.data.add_(1); b = u.exp()
(a * 3 + b * 5 + x * y + x * y).sum().backward()
""")
case("10 .data of a twin's operand", """
u = x * 2; v = x * 2; a = u * y; b = v * y
u.data.mul_(3)
(a + b * 5).sum().backward(retain_graph=True)
""")
case("10 set_ and .data assignment", "u = c * 1; a = u + y; u.data = d * 4; b = u + y")
case("10 numpy before", """
n = c.numpy(); a = c * x; n[0] = 5; b = c * x; n[0] = 6; t = c * x; (a + b * 2).sum().backward()
""")
case("10 numpy of a detached alias", "u = x * 1; a = u.sin(); n = u.detach().numpy(); n[0] = 5; b = u.sin()")
case("10 numpy of a base", "u = c * 2; v = u.view(-1); a = v.sin(); n = u.numpy(); n[0] = 5; b = v.sin()")
case("10 numpy of a view", "u = c * 2; a = u.sin(); n = u[0].numpy(); n[0] = 5; b = u.sin()")
case("10 numpy of a result", "a = c.sin(); n = a.numpy(); n[0] = 5; b = c.sin()")
case("10 numpy of a value that a rule reads", """
a = x.sin(); b = x.cos(); n = b.detach().numpy(); n[...] = 5; a.sum().backward()
""")
case("10 dlpack of a value that a rule reads", """
a = x.sin(); b = x.cos(); k = torch.from_dlpack(b.detach()); k[...] = 5; a.sum().backward()
""")
case("10 dlpack of an operand of two functions", """
u = x * 1.5; k = torch.from_dlpack(u.detach()); a = u.sin(); b = u.cos(); k[...] = 5; a.sum().backward()
""")
case("10 dlpack of an operand after two functions", """
u = x * 1.5; a = u.sin(); b = u.cos(); k = torch.from_dlpack(u.detach()); k[...] = 5; a.sum().backward()
""")
case("10 memory of numpy under two functions", """
import numpy
n = numpy.ones(3); u = torch.from_numpy(n).requires_grad_(); a = u.sin(); b = u.cos(); n[0] = 5; a.sum().backward()
c = u.grad * 1
""")
case("10 value of inference mode written", """
with torch.inference_mode(): a = d.sin(); a.zero_(); b = d.sin(); e = b.clone()
""")
case("10 numpy of a detached result", "a = x.sin(); n = a.detach().numpy(); n[0] = 5; b = x.sin()")
case("10 numpy of a view of a result", """
a = torch.cat([y, d]); n = a.view(-1).detach().numpy()
n[0] = 5
b = torch.cat([y, d])
""")
case("10 numpy of a leaf", "a = x + y; n = x.detach().numpy(); n[0] = 5; b = x + y")
case("10 memory of numpy", """
import numpy
n = numpy.ones(3); u = torch.from_numpy(n); a = u * y; n[0] = 5; b = u * y
(a + b * 2).sum().backward()
""")
case("10 numpy of a value that has a twin", "u = c.sin(); v = c.sin(); n = u.numpy(); n[0] = 5; a = v * 1; b = u * 1")
case("10 dlpack", "u = c * 1; a = u.sin(); k = torch.from_dlpack(u); k[0] = 5; b = u.sin()")
case("10 to_dlpack", """
u = c * 1; a = u.sin(); k = torch.from_dlpack(torch.utils.dlpack.to_dlpack(u)); k[0] = 5; b = u.sin()
""")
case("10 to_dlpack of a result", """
a = c.sin(); k = torch.from_dlpack(torch.to_dlpack(a)); k[0] = 5; b = c.sin()
""")
case("10 to_dlpack of a constant", """
a = c * x; k = torch.from_dlpack(torch._C._to_dlpack_versioned(c)); k[0] = 5; b = c * x; (a + b * 2).sum().backward()
""")
case("10 to_dlpack of a result handed out again", """
c + 1; a = c + 1; k = torch.from_dlpack(torch.utils.dlpack.to_dlpack(a)); del a; b = c + 1; k[0] = 5; a = c + 1
""")
case("10 storage", "u = c * 1; a = u.sin(); u.untyped_storage().copy_((c * 2).untyped_storage()); b = u.sin()")
case("10 inference tensor", """
with torch.inference_mode(): u = c * 1
with torch.no_grad(): a = u.sin()
with torch.inference_mode(): u.add_(1)
with torch.no_grad(): b = u.sin()
""")
case("10 foreach", "u = c * 1; v = c * 1; a = u + y; torch._foreach_add_([u, v], 1.0); b = u + y; t = v + y")
case("10 out=", "u = c * 1; a = u.sin(); torch.mul(c, 3.0, out=u); b = u.sin()")
case("10 setitem", "u = c * 1; a = u.sin(); u[0, 1] = 4; b = u.sin(); u[m] = 0; t = u.sin()")
case("10 written saved operand of the first twin", """
u = x * 2; v = x * 2; a = u * y; b = v * y
u.add_(1)
b.sum().backward()
""")
case("10 written saved operand of the second twin", """
u = x * 2; v = x * 2; a = u * y; b = v * y
v.add_(1)
a.sum().backward()
""")
case("10 written constant operand of the first twin", """
u = c * 2; v = c * 2; a = x * u; b = x * v
u.add_(1)
(b * 3).sum().backward()
""")
case("10 constant operand written between two runs", """
u = c * 2; v = c * 2; a = x * u; b = x * v
(a + b).sum().backward(retain_graph=True)
u.add_(1)
(b * 3).sum().backward()
""")
case("10 constant operand written between two kept runs", """
u = c * 2; v = c * 2; a = x * u; b = x * v
(a + b).sum().backward(retain_graph=True)
u.add_(1)
(b * 3).sum().backward(retain_graph=True)
""")
case("10 written output of the first twin", "u = x.exp(); v = x.exp(); u.add_(1); v.sum().backward()")
case("10 written output of the second twin", "u = x.exp(); v = x.exp(); v.add_(1); u.sum().backward()")
case("10 written output is an error", "u = x.exp(); v = x.exp(); v.add_(1); v.sum().backward()")
case("10 buffers of batch norm", """
r = torch.zeros(3, dtype=torch.float64); q = torch.ones(3, dtype=torch.float64)
a = F.batch_norm(x, r, q, training=True); b = F.batch_norm(x, r, q, training=True)
(a * c + b).sum().backward()
""")
case("10 saved operand written", "u = x * 1; a = u * y; u.add_(1); a.sum().backward()")
case("10 second saved operand written", "u = x * 1; a = y * u; u.add_(1); a.sum().backward()")
case("10 saved number of three operands written", "u = x * 1; a = torch.lerp(u, c, u); u.add_(1); a.sum().backward()")
case("10 leaf written", "a = x * 2; x.add_(1)")
case("10 view of a leaf written", "a = x * 2; x[0].add_(1)")
case("10 result becomes a leaf", """
with torch.no_grad(): a = x.sin()
a.requires_grad_()
b = x.sin()
(a * 2 + b * 3).sum().backward()
""")
case("10 write with a saved operand of the target's memory", "u = x * 1; u.mul_(u); u.sum().backward()")
case("10 write through two views of one memory", "t = x * 1; u = t[0]; v = t[0]; u.mul_(v); t.sum().backward()")
case("10 constant tracked after a view was made", "v = c[0]; c.mul_(s); (v * 2).sum().backward()")
case("11 two outputs are two objects", "u = x * 2; v = x * 2; u.add_(1); (u * y + v * 3).sum().backward()")
case("11 constants are two objects", "u = c * 2; v = c * 2; u.add_(1); v.mul_(3); a = c * 2")
case("11 three twins written in turn", """
u = x.sin(); v = x.sin(); t = x.sin(); v.mul_(2); a = x.sin(); t.zero_()
(u + v * 2 + t * 3 + a * 4).sum().backward()
""")
case("11 view of a twin written", """
u = x * 2; v = x * 2; u[0].mul_(5); v.view(-1)[1:].add_(1); (u + v * 2).sum().backward()
""")
case("11 twin of a dead value written", """
u = x * 2; del u; v = x * 2; v.add_(1); t = x * 2; (v + t * 2).sum().backward()
""")
case("11 dead twin with a living view", """
u = x * 2; p = u.view(-1); del u; p.mul_(3); v = x * 2; (p.sum() + v.sum() * 2).backward()
""")
case("12 two views of one base", "t = x * 1; u = t.view(-1); v = t.view(-1); u.mul_(2); (v * 3).sum().backward()")
case("12 views of twins", """
t = x * 1; r = x * 1; u = t.view(-1); v = r.view(-1); u.mul_(2); (u + v * 3).sum().backward()
""")
case("12 slice with an offset", "t = x * 1; v = t[1]; v.mul_(3); u = t[1, 1:]; u.add_(y[1:]); (t * c).sum().backward()")
case("12 view refreshed with an offset", "t = x * 1; v = t[1]; t.mul_(x); (v * y).sum().backward()")
case("12 equal slices", "t = x * 1; u = t[0]; v = t[0]; u.zero_(); (v * y + t.sum()).sum().backward()")
case("12 reshape that copies", """
t = (x * 1).t(); u = t.reshape(-1); v = t.reshape(-1); u.mul_(2); (u + v * 3).sum().backward()
""")
case("12 expanded twins", "u = y.expand(2, 3); v = y.expand(2, 3); (u * x + v * c).sum().backward()")
case("12 contiguous of a contiguous", """
t = x * 1; u = t.contiguous(); u.mul_(2); v = t.contiguous(); (t + v).sum().backward()
""")
case("12 views of constants", "u = c.t(); v = c.t(); u.mul_(2); a = v @ x")
# ----- metadata and operand order ------------------------------------------------------------------------
case("13 meta device", "u = c.to('meta'); a = u + 1; b = c + 1; t = u.sin(); r = c.sin()")
case("13 dtypes", """
a = c.to(torch.float32); b = c.to(torch.float64); u = c.to(torch.float32); v = c.float(); t = c.double()
""")
case("16 matmul order", "p = w.t().contiguous(); a = w @ p; b = p @ w; (a + b * 2).sum().backward()")
case("16 difference order", """
a = x - y; b = y - x; u = x / y; v = y / x; t = x ** 2; r = 2 ** x
(a + b * 2 + u * 3 + v * 4 + t + r).sum().backward()
""")
case("16 difference order, equal shapes", """
a = x - c; b = torch.sub(c, x); u = x / c; v = torch.div(c, x); (a + b * 2).sum().backward()
""")
case("16 literal minus tensor", """
a = x - 1; b = 1 - x; u = x / 2; v = 2 / x; (a + b * 2 + u * 3 + v * 4).sum().backward()
""")
case("16 where branches", "a = torch.where(m, x, c); b = torch.where(m, c, x); (a + b * 2).sum().backward()")
case("16 atan2, copysign, fmod order", """
a = torch.atan2(y, d); b = torch.atan2(d, y); u = torch.copysign(y, d); v = torch.copysign(d, y)
t = torch.fmod(y, d); r = torch.fmod(d, y)
(a + b * 2 + u * 3 + v * 4 + t * 5 + r * 6).sum().backward()
""")
case("16 maximum of signed zeros", """
p = (y * 0).abs(); q = -(y * 0).abs()
a = torch.maximum(p, q); b = torch.maximum(q, p); u = torch.copysign(y, a); v = torch.copysign(y, b)
(u * 3 + v * 5 + x * y + x * y).sum().backward()
""")
case("16 minimum and ties", """
a = torch.minimum(y, y * 1); b = torch.minimum(y * 1, y); (a * 2 + b * 3).sum().backward()
""")
case("16 strides of a commuted sum", """
p = y.expand(2, 3) * 1; q = (y.expand(2, 3) * 2).t().contiguous().t()
a = p + q; b = q + p; u = p * q; v = q * p
""")
case("16 commuted view error", """
p = y.expand(2, 3) * 1; q = (y.expand(2, 3) * 2).t().contiguous().t()
a = p + q; b = (q + p).view(-1)
""")
case("16 alpha is not commutative", """
a = torch.add(x, y, alpha=2); b = torch.add(y, x, alpha=2); (a + b * 3).sum().backward()
""")
case("16 sub with alpha", """
a = torch.sub(x, y, alpha=2); b = torch.sub(x, y, alpha=3); u = torch.rsub(x, y)
(a + b * 3 + u).sum().backward()
""")
case("16 cat order", """
a = torch.cat([y, d]); b = torch.cat([d, y]); u = torch.stack([y, d]); v = torch.stack([d, y])
(a * 2).sum().backward()
""")
case("17 zero times nan", "p = y / 0.0; a = p * 0; b = a.sum(); (p * 0 + y).sum().backward()")
case("17 x minus x", "p = y / 0.0; a = p - p; b = p / p; u = p * 1 + 0.0; t = 0.0 - p; (a + b).sum().backward()")
case("17 double negation of zero", """
p = w[1] * -0.0; a = 1 / -(-p); b = 1 / (p * 1); u = 1 / (p + 0.0); v = 1 / (0.0 - p)
""")
case("18 twins keep two operands", "a = x + y; b = x + y; (a * b).sum().backward()")
case("18 square keeps both operands", "a = x * x; b = x * x; (a + b * 2).sum().backward()")
case("24 one tensor in two slots", """
a = x + x; b = x * x; u = x - x; v = x / x; t = torch.maximum(x, x); r = torch.where(m, x, x); k = w @ w
(a + b + u + v + t + r).sum().backward(); k.sum().backward()
""")
case("24 one tensor three times", """
a = torch.addcmul(y, y, y); b = torch.lerp(y, y, y); u = torch.stack([y, y, y]); (a + b).sum().backward()
u.sum().backward()
""")
# ----- backward, pruning, hooks ----------------------------------------------------------------------------
case("21 unused draw", "a = torch.rand(3); b = torch.randn(3); del a; u = torch.rand(3); (u * y).sum().backward()")
case("21 unused dropout", """
a = F.dropout(x, 0.5); b = F.dropout(x, 0.5); del a; (b * 2).sum().backward(); t = torch.rand(2)
""")
case("21 hook on a node off the path", "a = x * 2; a.register_hook(see('a')); b = x * 2; (b * 3).sum().backward()")
case("21 draw before backward", "a = F.dropout(x, 0.5); a.sum().backward(); b = F.dropout(x, 0.5); b.sum().backward()")
case("22 second output of max", "p, q = x.max(0); r, t = x.max(0); a = r * 2; b = q + 1; u = t + 1; a.sum().backward()")
case("22 only the second of split", "p, q = x.split(1); (q * 3).sum().backward()")
case("22 only the second of svd", "p, q, r = torch.linalg.svd(w, full_matrices=False); (q * 3).sum().backward()")
case("22 unbind twice", "p, q = x.unbind(0); r, t = x.unbind(0); (q * 3 + t * 5).sum().backward()")
case("22 topk twice", "p, q = y.topk(2); r, t = y.topk(2); (p * 3 + r * 5).sum().backward()")
case("22 var_mean second", """
p, q = torch.var_mean(x, dim=0); r, t = torch.var_mean(x, dim=0); (q * 2 + t * 3).sum().backward()
""")
case("22 write to one output of unbind", "u = x * 1; p, q = u.unbind(0); p.add_(1)")
case("23 hook on one twin", "a = x * 2; b = x * 2; a.register_hook(see('a')); (a * 3 + b * 5).sum().backward()")
case("23 hook on the other twin", "a = x * 2; b = x * 2; b.register_hook(see('b')); (a * 3 + b * 5).sum().backward()")
case("23 retain on both", "a = x * 2; b = x * 2; a.retain_grad(); b.retain_grad(); (a * 3 + b * 5).sum().backward()")
case("23 retain on both, kept graph", """
a = x * 2; b = x * 2; a.retain_grad(); b.retain_grad(); (a * 3 + b * 5).sum().backward(retain_graph=True)
""")
case("23 hook below merged consumers", """
a = x * 2; b = x * 2; a.register_hook(see('a')); u = a.sin(); v = b.sin()
(u * 3 + v * 5).sum().backward(retain_graph=True)
""")
case("23 hook set after use", """
a = x * 2; b = x * 2; u = a.sin(); v = b.sin(); b.register_hook(see('b'))
(u * 3 + v * 5).sum().backward()
""")
case("23 hook set after a run", """
a = x * 2; b = x * 2; u = (a.sin() * 3 + b.sin() * 5).sum()
u.backward(retain_graph=True)
b.register_hook(see('b')); a.retain_grad()
u.backward()
""")
case("23 retained after a recorded run", """
a = x.tanh(); b = x.tanh()
g1, = torch.autograd.grad((a * 2 + b).sum(), [x], create_graph=True)
b.retain_grad(); g1.sum().backward()
""")
case("23 hooks after a recorded run", """
a = x.tanh(); b = x.tanh()
g1, = torch.autograd.grad((a * 2 + b).sum(), [x], create_graph=True)
a.register_hook(see('a')); b.register_hook(see('b')); g1.sum().backward()
""")
case("23 gradients at twins after a recorded run", """
a = x.tanh(); b = x.tanh(); u = y * a; v = y * b
g1, g2 = torch.autograd.grad((u * u + v).sum(), [x, y], create_graph=True)
t = torch.autograd.grad((g1 + g2).sum(), [u, v, a, b, x], allow_unused=True)
""")
case("23 retained operands of twins after a recorded run", """
a = y.exp(); b = y.exp(); u = x * a; v = x * b
g1, = torch.autograd.grad((u * u + v).sum(), [x], create_graph=True)
a.retain_grad(); b.retain_grad(); v.retain_grad(); g1.sum().backward()
""")
case("23 hooks between two recorded runs", """
a = x.exp(); b = x.exp()
g1, = torch.autograd.grad((a * 2 + b * b).sum(), [x], create_graph=True)
b.register_hook(see('b'))
g2, = torch.autograd.grad(g1.sum(), [x], create_graph=True)
a.retain_grad(); g2.sum().backward()
""")
case("23 hook on a grad_fn after a recorded run", """
a = x.tanh(); b = x.tanh(); t = (a * 2 + b).sum()
g1, = torch.autograd.grad(t, [x], create_graph=True)
b.grad_fn.register_prehook(lambda gs: see('b')(gs[0])); g1.sum().backward()
""")
case("23 retained after a recorded run, in other words", """
a = x.exp(); b = (a + 1) - 1; u = -(-a); v = u * 1
g1, = torch.autograd.grad((a * 2 + u * u + v * b).sum(), [x], create_graph=True)
a.retain_grad(); b.retain_grad(); u.retain_grad(); v.retain_grad(); g1.sum().backward()
""")
case("23 hook replaces on one twin", """
a = x * 2; b = x * 2; a.register_hook(lambda g: g * 10); (a.exp() * 3 + b.exp() * 5).sum().backward()
""")
case("23 hook writes into what it sees", """
a = x.sum(); a.register_hook(lambda g: g.mul_(3)); a.backward(retain_graph=True); b = y.sum(); b.backward()
""")
case("23 hook writes into what a run to some leaves sees", """
a = x.sum(); a.register_hook(lambda g: g.mul_(3)); a.backward(inputs=[x], retain_graph=True)
b = y.sum(); b.backward(inputs=[y])
""")
case("23 hook removed", """
a = x * 2; b = x * 2; h = a.register_hook(lambda g: g * 10); h.remove(); (a * 3 + b * 5).sum().backward()
""")
case("23 hook on a multi-output twin", """
p, q = x.unbind(0); r, t = x.unbind(0); p.register_hook(see('p')); r.register_hook(see('r'))
(p * 2 + r * 3 + q).sum().backward()
""")
case("23 hook on a leaf", "x.register_hook(see('x')); a = x * 2; b = x * 2; (a * 3 + b * 5).sum().backward()")
case("23 gradient at one twin", """
a = x * 2; b = x * 2; u = a.sin(); v = b.sin(); t = (u * 3 + v * 5).sum()
g1, = torch.autograd.grad(t, [a], retain_graph=True)
""")
case("23 gradient at the other twin", """
a = x * 2; b = x * 2; u = a.sin(); v = b.sin(); t = (u * 3 + v * 5).sum()
g1, = torch.autograd.grad(t, [b])
""")
case("23 gradient at both twins and the leaf", """
a = x * 2; b = x * 2; u = a.sin(); v = b.sin(); t = (u * 3 + v * 5).sum()
g1, g2, g3 = torch.autograd.grad(t, [b, a, x])
""")
case("23 gradient at an unused twin", """
a = x * 2; b = x * 2; t = (a.sin() * 3).sum()
g1, = torch.autograd.grad(t, [b], materialize_grads=True)
""")
case("23 backward with inputs", """
a = x * 2; b = x * 2; (a.sin() * 3 + b.sin() * 5).sum().backward(inputs=[b], retain_graph=True)
""")
case("26 retain on one twin only", """
a = x * 2; b = x * 2; a.retain_grad(); t = a.retains_grad, b.retains_grad; (a * 3 + b * 5).sum().backward()
""")
case("25 second order", """
g1, = torch.autograd.grad((x.sin() * x.sin()).sum(), [x], create_graph=True)
(g1 * g1).sum().backward()
""")
case("25 second order, two calls on one output", """
t = (x.sin() * y + x.sin() * y).exp().sum()
g1, = torch.autograd.grad(t, [x], create_graph=True); g2, = torch.autograd.grad(t, [x], create_graph=True)
(g1 * g2).sum().backward()
""")
case("25 third order", """
t = (x * x * x * y).sum()
g1, = torch.autograd.grad(t, [x], create_graph=True); g2, = torch.autograd.grad(g1.sum(), [x], create_graph=True)
(g2 * g1).sum().backward()
""")
case("25 gradient penalty", """
t = torch.tanh(x @ w).sum()
g1, g2 = torch.autograd.grad(t, [x, w], create_graph=True)
(t + (g1.norm() - 1) ** 2 + g2.square().sum()).backward()
""")
case("25 hook inside second order", """
a = x.sin(); b = x.sin(); a.register_hook(see('a'))
g1, = torch.autograd.grad((a * b).sum(), [x], create_graph=True)
g1.retain_grad()
g1.square().sum().backward()
""")
case("25 softmax and norm twice", """
t = (x.softmax(-1) * x.softmax(-1)).sum() + x.norm() * x.norm() + torch.logsumexp(x, 0).sum()
g1, = torch.autograd.grad(t, [x], create_graph=True)
g1.sum().backward()
""")
# ----- lifetimes ---------------------------------------------------------------------------------------------
case("28 dead leader", "a = x.sin(); del a; b = x.sin(); b.sum().backward()")
case("28 dead leader of several", "a = x.sin(); a = x.sin(); a = x.sin(); t = a * x.sin(); t.sum().backward()")
case("28 dead leader by passes", """
a = torch.maximum(x, c); del a; b = torch.maximum(x, c); (b + x * y + x * y).sum().backward()
""")
case("28 temporaries", "a = x + y; b = (x + y) * c; e = x + y + b; (e.sin() * e).sum().backward()")
case("28 temporaries of temporaries", """
a = ((x + y) * c).exp() + 1; b = ((x + y) * c).exp() - 1; (a * b * (x + y)).sum().backward()
""")
case("28 twin after a freeing run", "a = x.sin(); a.sum().backward(); b = x.sin(); b.sum().backward()")
case("28 second run through a twin", "a = x.sin(); b = x.sin(); (a + b).sum().backward(); b.sum().backward()")
case("28 first twin after a run through the second", """
a = f.tanh(); b = f.tanh(); (b.sum() * 2).backward(); a.sum().backward()
""")
case("28 each twin once", "a = x.exp(); b = x.exp(); a.sum().backward(); b.sum().backward()")
case("28 kept graph twice", "a = x.exp(); b = x.exp(); t = (a * b).sum(); t.backward(retain_graph=True); t.backward()")
case("28 spent operand comes back", """
a = x + 1; a.sum().backward()
k = y
for _ in range(300): k = k + 0.001
(a * 3).sum().backward()
""")
case("28 spent operand comes back, saved", """
a = x * y; a.sum().backward()
k = y
for _ in range(300): k = k + 0.001
(a * 3).sum().backward()
""")
case("28 spent operand of a living node", """
a = x * y; b = a + 1; a.sum().backward()
k = y
for _ in range(300): k = k + 0.001
(k * 2 + k * 2).sum().backward()
""")
case("28 shared cotangent buffers", "p = x * 2; q = x * 3; r = p * 7; n = p + q; (n * 2 + n * 3 + r).sum().backward()")
case("28 cotangents of a view chain", """
p = x * y; q = p.t(); r = p + 0; n = q.t() + r; (n * n + n.sin() + p.sin()).sum().backward()
""")
case("28 hook after a merge of an earlier run", """
a = z * 2.0; b = z * 2.0
b.abs().sum().backward(retain_graph=True)
a.register_hook(see('a'))
(b + 1j).abs().sum().backward()
""")
case("28 freed below a merge", """
a = s.abs() ** y; b = x + a; u = x + a
u.sum().backward()
(x + a).sum().backward()
""")
case("28 two leaves, one cotangent", """
p = torch.ones(3, requires_grad=True); q = torch.ones(3, requires_grad=True)
(p + q).backward(torch.ones(3))
with torch.no_grad(): p.grad.add_(1)
(p * 2 + q).sum().backward()
""")
case("28 gradients do not alias", """
a = x + c; a.retain_grad(); a.sum().backward()
with torch.no_grad(): a.grad.mul_(5)
(x * 2).sum().backward()
""")


# ----- views and writes as torch means them ----------------------------------------------------
case("12 view of a leaf made under no_grad", """
with torch.no_grad(): a = x[1:]
a.register_hook(see('a')); a.retain_grad()
b = a[0] * 2
(b.sum() + x.sum()).backward()
(g,) = torch.autograd.grad((a * y).sum(), [a], allow_unused=True)
""")
case("12 view of a result made under no_grad", """
u = x * 2
with torch.no_grad(): a, b = u.unbind(0)
v = a * y
(v.sum() + u.sum()).backward(inputs=[x, y])
""")
case("12 view made under no_grad, then written", """
u = x * 2
with torch.no_grad(): a = u[0]
a.mul_(3)
""")
case("12 view made under no_grad, base then written", """
u = x * 2
with torch.no_grad(): a = u[0]
u.mul_(3)
(a * y).sum().backward()
""")
case("12 view made under no_grad, written there", """
with torch.no_grad(): a = x.view(-1)
with torch.no_grad(): a.mul_(2)
(x * c).sum().backward()
""")
case("12 view made under no_grad becomes a leaf", """
with torch.no_grad(): a = x[0]
a.requires_grad_()
(a * y).sum().backward()
""")
case("12 view from before its base required grad", """
a = c[0]; c.requires_grad_(); b = c[0]
(a * 2 + b * y).sum().backward()
""")
case("12 view of a constant, base written by a recorded write", """
a = c[..., None]; c[...] = s; b = a * 2; b.sum().backward()
""")
case("12 two views of a constant, one written", """
a = c.transpose(0, -1); b = a.to(torch.float64); a = c.transpose(0, -1)
b.add_(s); a.sum().backward()
""")
case("12 one of several views of a constant written", "a, b = c.split(1); b.select(0, 0).mul_(y)")
case("12 tensor_split gives ordinary views", """
a, b = torch.tensor_split(x * 1, 2); a.sigmoid_(); (a + b).sum().backward()
""")
case("12 several views, base then written", """
u = x * 1; a, b = u.unbind(0); u[u > 0] = 1.0; (a * y).sum().backward()
""")
case("12 detach_ of the base of a view", """
a = f * 2; b = a.narrow(0, 0, 1)
a.detach_(); a.mul_(d.float())
(b.sum() + w.sum()).backward()
""")
case("12 detach_ of a stack", "a = torch.stack([w, w]); a.detach_(); (a[0] * w).sum().backward()")
case("12 hook of a view before a write under no_grad", """
a = (d @ w).t(); a.grad_fn; a.register_hook(see('before'))
with torch.no_grad(): a.copy_(f)
a.grad_fn; a.register_hook(see('after'))
(a.sum() * 5 + f.sum()).backward()
""")
case("12 write through view_as_real", """
u = z * 1; a = torch.view_as_real(u); a[..., 0].mul_(s); a.add_(1)
(u * u).abs().sum().backward()
""")
case("12 write through real and imag", "u = z * 1; u.real.mul_(y); u.imag.add_(y); (u * u).abs().sum().backward()")
case("12 write through a conjugate", "u = z * (1 + 2j); u.conj().mul_(y); (u * (2 - 1j)).abs().sum().backward()")
case("12 write through the imaginary part of a conjugate", """
u = z * (1 + 2j); u.conj().imag.mul_(y); (u * (2 - 1j)).abs().sum().backward()
""")
case("12 view_as_real of a base written later", """
u = z * 1; a = torch.view_as_real(u); u.mul_(s); (a * a).sum().backward()
""")
case("12 write through view_as_complex", """
u = x.new_zeros(3, 2) + y[:, None]; a = torch.view_as_complex(u); a.mul_(z); (u * u).sum().backward()
""")
case("10 float32 written with float64", "u = f * 1; u *= d; v = u.erf(); v.mul_(y); (u + v).sum().backward()")
case("10 copy_ of a broadcast value, differentiated twice", """
a = d[d > 0]; a.copy_(s); a.sum().backward(); a.sum().backward()
""")
case("10 copy_ of a number", "a = x * 1; a.copy_(2); (a * x).sum().backward()")
case("10 index of what is written elsewhere", """
u = w * f; a = u[i[:1]]; b = u[u > 0]; u[1:] *= -1; (a.sum() + b.sum()).backward()
""")
case("16 plain times recorded keeps the first operand's strides", """
a = x.t() * 1; b = c * a.t(); e = b.view(-1); e.sum().backward()
""")
case("21 a refused in-place dropout has drawn", "F.dropout(f, 0.5, inplace=True)")
case("22 an unneeded branch through no_grad is not executed", """
with torch.no_grad(): u = f + c
v = (s / u).sigmoid(); v.add_(f, alpha=2)
(g,) = torch.autograd.grad(v.sum(), [f])
""")
case("22 a condition is no path", """
v = F.softplus(y); a = torch.where(s == v, s, 0.0)
(g,) = torch.autograd.grad(a.sum(), [v], materialize_grads=True)
(a.sum() + v.sum()).backward()
""")
case("28 two sums merged give a dense gradient", """
g, h = torch.autograd.grad(f.sum() * 2 + f.sum() * 3, [f, w], create_graph=True, allow_unused=True)
g.neg_()
""")
case("24 mask of a number", "a = s[s > 0]; a.sum().backward(); b = s[s > 1]; (b.sum() + s).backward()")
case("23 retain_grad before a write under no_grad", """
a = x * f; a.retain_grad(); b = s + a
with torch.no_grad(): a.copy_(a * 2)
e = a * y
(b.sum() + e.sum()).backward()
""")
case("12 an in-place change of shape of a view is no write to its base", """
a = s + s; b = a.expand(2); b.unsqueeze_(0)
(a * 9 + b.sum()).backward()
""")
