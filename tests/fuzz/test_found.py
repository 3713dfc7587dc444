"""The shortest programs in which random ones differed from torch eager, by the behaviour of torch's that they show.

Each line of a program is one statement over the tensors of `tests.programs`; the oracle compares
values, gradients, hooks, flags, aliases and errors in every graph mode.
"""

from __future__ import annotations

import pytest

from tests.fuzz.oracle import compare
from tests.programs import Program

FOUND = {
    # ----- views -----
    "a write reaches the tensor that a kernel returned as a view of hidden memory": """
        v = torch.stack([y, y])
        v.select(0, 0).mul_(2.0)
        (v * v).sum().backward()""",
    "a write of something that requires grad through a view of a constant stack": """
        v = torch.stack([d, d])
        u = v.as_strided((2,), (1,))
        u.addcmul_(s, s)
        (v * v).sum().backward()""",
    "a view of a stack whose own tensor is gone": """
        u, t = torch.stack([y, y]).unbind(0)
        u = torch.stack([y * 1, y])[0]
        u.mul_(2)
        u.sum().backward()""",
    "an older view of a constant gets its history after an assignment to a slice of the base": """
        v = c.mT
        c[1:] *= s
        (v * v).sum().backward()""",
    "a view that nothing has read since its base required grad is taken for a leaf": """
        v = d[::2]
        d.add_(s)
        v.add_(v, alpha=2)""",
    "a view that was read since is written": """
        v = d[::2]
        d.add_(s)
        t = v * 1
        v.add_(v, alpha=2)
        d.sum().backward()""",
    "an assignment to a part of such a view reads it": """
        v = c[1:]
        c.copy_(f)
        v[0] = 2.0
        c.sum().backward()""",
    "an assignment by mask to such a view does not": """
        v = c[1:]
        c.copy_(f)
        v[v < 0] = 0.5""",
    "asking whether such a view requires grad is no reading": """
        v = c[1:]
        c.copy_(f)
        t = v.requires_grad
        v.mul_(2)""",
    "a view that was made a leaf stays one when it is written under no_grad": """
        v = F.gelu(c)
        u = v.diagonal()
        u.requires_grad_()
        with torch.no_grad(): u.copy_(u * 2)
        (u * u).sum().backward()""",
    "a hook on a view is not on the way of a write through it": """
        v = x * s
        u = v[1:]
        u.grad_fn; u.register_hook(see('u'))
        u.mul_(2)
        v.sum().backward()""",
    "nor a hook on what it is a view of": """
        v = x * s
        u = v[1:]
        u.grad_fn; u.register_hook(see('u'))
        t = u[0]
        t.mul_(2)
        v.sum().backward()""",
    "detached writes change a view's history, and torch.autograd.grad no longer finds it": """
        v = f.view(f.shape)
        t = v * 2
        v.detach().add_(1)
        a, b = torch.autograd.grad(t.sum(), [v, f], allow_unused=True)""",
    "reading .data asks nothing of a view": """
        v = x * 1
        u, t = v.chunk(2)
        v.exp_()
        t.data.mul_(2)""",
    "the gradient retained before a change of shape keeps the old one": """
        v = f * 2
        v.retain_grad()
        u = v * 3
        v.unsqueeze_(0)
        u.sum().backward()""",
    "an older view of a constant leaf that comes to require grad after a write": """
        v = d.as_strided((2,), (1,))
        v[..., 0] = -3
        d.requires_grad_()
        (v * v).sum().backward()""",
    "the same without a write": """
        v = d.as_strided((2,), (1,))
        d.requires_grad_()
        (v * v + d.sum()).sum().backward()""",
    "a view marked as requiring grad, and written through its base": """
        u = m.double()
        v = u.as_strided((2,), (1,))
        v.requires_grad_()
        u *= s
        (v * v).sum().backward()""",
    "an old view of a base written before it required grad, looked at by a comparison": """
        v = c[1:]
        with torch.no_grad(): torch.relu_(v)
        c.copy_(f)
        v.masked_fill_(v < 0, 0.5)""",
    "a gradient may be a view, which is not detached in place": """
        a, b = torch.autograd.grad(f.sum() * 2, [w, f], materialize_grads=True)
        b.detach_()""",
    "a stack is none": """
        v = torch.stack([y, d])
        v.detach_()""",
    "a call that returns its operand as it is asks nothing of it": """
        u, v = x.unbind(0)
        with torch.no_grad(): v.copy_(v * 2)
        t = u.contiguous()
        v.grad_fn""",
    "an index that does not fit is refused before the write is": """
        v = s.t()
        v[i[:1] % 2] = 2""",
    "a view made under no_grad of a value that nobody holds": """
        with torch.no_grad(): v = (w @ w).t()
        v.lerp_(w, 0.5)""",
    "a gradient whose only step is a view that merging spares is a view of the cotangent, and a leaf as torch's": """
        v = y.view(-1)
        u, = torch.autograd.grad(v, [y], v * 2)
        u.requires_grad, u.is_leaf""",
    "with both captured, the view's own gradient is the cotangent itself": """
        v = y.view(-1).reshape(y.shape)
        t = v.expand_as(v)
        a, b, e = torch.autograd.grad(t, [y, v, t], t * 2, retain_graph=True)
        (a.requires_grad, a.is_leaf, b.is_leaf, e.is_leaf)""",
    "a copied gradient of a product with one requires no grad": """
        v = y * 1
        u, = torch.autograd.grad(v, [y], v * 2)
        u.requires_grad, u.is_leaf""",
    "an assignment to all of a tensor is no write through a view, and leaves zeros without a history": """
        v = x * 2
        v[:] = s
        a, b = torch.autograd.grad((v * v).sum(), [x, s], create_graph=True)
        v = x * 2
        v[:, :5] = 3
        t = v * v
        v[0:2, ...] = d
        a, = torch.autograd.grad(v.sum(), [x], create_graph=True)""",
    "an assignment to all of its rows from the last on, or past a new axis, is one": """
        v = x * 2
        v[-2:] = 3
        a, = torch.autograd.grad((v * v).sum(), [x], create_graph=True)
        v = x * 2
        v[None, :] = y
        a, b = torch.autograd.grad((v * v).sum(), [x, y], create_graph=True)""",
    "an assignment to all of a constant": """
        u = c[1:]
        c[:] = x[None]
        v = d * 1
        v[...,] = y.float()
        (u.sum() * v).sum().backward()""",
    # ----- writes without a record -----
    "a write under no_grad leaves the gradient of a tensor where it was": """
        v = f * 2
        u = d * v
        with torch.no_grad(): v.masked_fill_(v < 0, 0.5)
        a, b = torch.autograd.grad(u.sum(), [s, v], allow_unused=True)""",
    "hooks set before and after a write under no_grad see one gradient": """
        v = f * 2
        v.register_hook(see('before'))
        u = d * v
        with torch.no_grad(): v.mul_(2)
        v.register_hook(see('after'))
        (u.sum() + v.sum()).backward()""",
    "what is captured and what is freed after a write under no_grad": """
        v = F.silu(y - w)
        u = v + d
        with torch.no_grad(): v.copy_(v * 2)
        t = (u * s).reciprocal()
        a, b = torch.autograd.grad(v.sum() + t.sum(), [u, v], allow_unused=True)
        (t.sum() + v.sum()).backward()""",
    # ----- differentiable or not -----
    "the gradient of a linear operation without a rule is a constant": """
        v = F.alpha_dropout(w, 0.5, training=True)
        a, b = torch.autograd.grad(v.sum(), [v, w], create_graph=True)""",
    "that of a change of shape in place as well": """
        v = f * 2
        v.unsqueeze_(0)
        a, b = torch.autograd.grad(v.sum(), [v, f], create_graph=True)""",
    "what second and third derivatives send to the result of vmap, which torch has saved, comes to its hooks": """
        v = torch.vmap(lambda t: (t * f.sum()).tanh())(w)
        v.register_hook(see('v'))
        a, = torch.autograd.grad((v * y).sum(), [f], create_graph=True)
        (torch.autograd.grad(a.square().sum(), [f], create_graph=True)[0].square().sum() * 3).backward()
        a = None""",
    "and to the result where it is asked for, written since or not": """
        v = torch.vmap(lambda t: (t * y).sigmoid())(x)
        v.retain_grad()
        a, = torch.autograd.grad(v.sum(), [y], create_graph=True)
        t = torch.autograd.grad(a.square().sum(), [v], create_graph=True)[0].square().sum()
        v.mul_(2)
        (a.sum() + t + v.sum()).backward(retain_graph=True)
        (a.sum() + t).backward()
        a = t = None""",
    "also for a batch of cotangents, and where no derivative is asked below it": """
        v = func.vjp(lambda t: (t * s).tanh(), y)[0]
        a, = torch.autograd.grad(v.sum(), [s], create_graph=True)
        b = torch.stack([a.detach(), a.detach()])
        t, = torch.autograd.grad(a, [v], b, is_grads_batched=True, create_graph=True)
        (t.square().sum() + v.sum()).backward()
        a = b = t = None""",
    # ----- a second run -----
    "numbers that are factors are freed with the graph": """
        v = x * 2
        v.sum().backward()
        v.sum().backward()""",
    "numbers that are divisors, too": """
        v = z / (2 - 1j)
        v.abs().sum().backward()
        v.real.sum().backward()""",
    "numbers that are added are not": """
        v = x + 2
        v.sum().backward()
        v.sum().backward()""",
    "a write to a part of a tensor is freed with the graph": """
        v = x + 1
        v[1:].copy_(y)
        v.sum().backward()
        v.sum().backward()""",
    "an assignment by mask as well": """
        v = x + 1
        v[v > 0] = 2.0
        v.sum().backward()
        v.sum().backward()""",
    "a write to the whole is not": """
        v = x + 1
        v[...] = y
        v.sum().backward()
        v.sum().backward()""",
    "a run that stops above equal operations does not free them": """
        v = (w + d).reciprocal()
        u = (w + d).reciprocal()
        t = u + f
        a, b = torch.autograd.grad(t.sum() * 2, [t, f])
        (t.sum() + u.sum()).backward()""",
    "nor one that goes beside them": """
        v = (w + d).reciprocal() * (s * s)
        u = (w + d).reciprocal() * (s * s)
        a, b = torch.autograd.grad(u.sum() * 2, [s, y], allow_unused=True)
        t = (w + d).reciprocal().sum()
        t.backward()""",
    "nor one that reaches one operand of theirs": """
        v = w.exp()
        u = w.exp()
        t = u * s
        r = v * s
        a, = torch.autograd.grad(t.sum() + r.sum(), [s])
        u.sum().backward()""",
    "an operation without a rule, for which torch saves nothing, runs again": """
        v = torch.normal(s, 1.0)
        u = v.flip(-1)
        v.backward()
        u.backward()""",
    "one for which torch saves something does not": """
        v = F.alpha_dropout(w, 0.5, training=True)
        v.sum().backward()
        v.sum().backward()""",
    "a foreach form writes several tensors that require grad": """
        v = d * f
        u = v * 2
        torch._foreach_mul_([v, u], 3.0)
        torch._foreach_add_([v, u], [u, d], alpha=2)
        torch._foreach_addcmul_([v, u], [f, f], [d, d], [2.0, 3.0])
        torch._foreach_addcdiv_([u], [f], [d], 0.5)
        torch._foreach_clamp_min_([v, u], 0.1)
        t = torch._foreach_exp_([v])[0]
        (v * u).sum().backward()
        t is v""",
    "a foreach form writes a leaf": """
        v = d * f
        torch._foreach_mul_([v, f], 3.0)""",
    "a hook writes a slice of a batch of cotangents": """
        v = f * 3
        v.register_hook(lambda g: g.mul(2).clamp_(min=0))
        f.register_hook(lambda g: g.clone().mul_(2))
        u, = torch.autograd.grad(v, [f], torch.stack([v.detach(), v.detach() * 2]), is_grads_batched=True)""",
    # ----- what torch saves -----
    "a Function, and a checkpoint by way of its own, refuses to save an inference tensor": """
        with torch.inference_mode(): v = c * 2
        t = checkpoint(lambda t: t.square().mean() + t, v, use_reentrant=False)""",
    "an inference tensor that a Function saves where no gradient is followed": """
        with torch.inference_mode(): v = c * 2
        t = Square.apply(v)""",
    "an inference tensor that a Function saves for another operand": """
        with torch.inference_mode(): v = d * 2
        t, u = Both.apply(f, v)""",
    "the result of copysign is saved for either operand": """
        v = torch.copysign(c, f)
        v.neg_()
        v.sum().backward()""",
    "the operand of take is saved, of which only the shape is read": """
        v = x * 1
        u = v.take(i)
        v.mul_(2)
        u.sum().backward()""",
    "that of masked_select, too": """
        v = x * 1
        u = v.masked_select(m)
        v.mul_(2)
        u.sum().backward()""",
    "the result of a power, for the exponent": """
        v = d ** x
        v.neg_()
        v.sum().backward()""",
    "a view of a constant, written before the constant required grad": """
        v = d.narrow(0, 0, 1)
        v.pow_(2)
        u = d.narrow(0, 0, 1)
        d.requires_grad_()
        (v.sum() * 4 + u.sum()).backward()""",
    # ----- values -----
    "the gradient of sgn is zero whatever it is multiplied by": """
        ((x * inf).sgn().sum() + x.sum()).backward()""",
    "in a batched run, too": """
        v = (d * f / (d - d)).sgn()
        u, = torch.autograd.grad(v, [f], torch.stack([v.detach(), v.detach()]), is_grads_batched=True)
        t = torch.vmap(lambda g: torch.autograd.grad((f * inf).sgn(), [f], g)[0])(torch.ones(2, 3))""",
    "also in a recorded run": """
        v = (x * inf).sgn()
        a, b = torch.autograd.grad(v.sum() + (y * s).sum(), [x, s], create_graph=True)
        u = a * 2
        t = a * 2
        (u.sum() * inf + b).backward()""",
    "and where it is added to others": """
        v = x * 2
        u = v.sgn() * inf
        (u.sum() * inf + v.sin().sum() + (v * 3).sum() + v.sgn().sum()).backward()
        x.grad.add_(1)""",
    "a gradient that merging would leave expanded can be written": """
        v = 1.0 + f
        u = v.clone()
        t = v.exp()
        a, b = torch.autograd.grad(u.sum() * 2 + u.sum() * 4, [v, t], allow_unused=True, create_graph=True)
        a[1:] *= 2.0""",
    "writes to two parts of a stack under no_grad leave its history": """
        v = torch.stack([f, f])
        with torch.no_grad(): v[0] = s
        with torch.no_grad(): v[1] = 0.5
        (v.sum() * 4).backward()""",
    # ----- several outputs -----
    "to ask for one output of a call is to reach the others, too": """
        u, v = (c / f).split(1)
        v.retain_grad()
        a, b = torch.autograd.grad(v.sum() * 2 + u.sum() * 3, [u, f], allow_unused=True)""",
    "also for hooks that a run with inputs= has left": """
        v1, v2 = x.unbind(0)
        (x.sum() * 2).backward(inputs=[v1], retain_graph=True)
        a, b = torch.autograd.grad((v1 * 2).sum() + (v2 * 3).sum(), [v2, s], allow_unused=True)""",
    "a hook of an output that nothing reaches sees None": """
        u, v = x.unbind(0)
        u.grad_fn; u.register_hook(lambda g: g * 2)
        v.sum().backward()""",
    "the deviation is saved for the mean beside it": """
        u, v = torch.std_mean(x)
        u += False
        v.backward()""",
    "the order of a sort is saved": """
        u, v = x.sort(0)
        v.zero_()
        u.sum().backward()""",
    "the factors of a decomposition are saved": """
        u, t, v = torch.linalg.svd(w)
        t.add_(1)
        u.abs().sum().backward()""",
    "an operand that no rule of the run reads is found written": """
        u, v = x * 1, c * f
        t = u * v
        u.add_(1)
        a, = torch.autograd.grad(t.sum(), [x])""",
    # ----- memory that only a kernel knows -----
    "a stack is no view, so that a write to it is one to the whole": """
        v = torch.stack([d * f, f])
        v.fill_(1)
        u = v[None]
        u.sum().backward()
        (v.sum() * 3).backward()""",
    "views of a stack, made under no_grad": """
        u = torch.stack([f, f])
        with torch.no_grad(): v = u.squeeze()
        v.grad_fn; v.register_hook(lambda g: g * 2)""",
    "views of a stack that comes to require grad": """
        u = torch.stack([d, d])
        v = u.select(-1, 0)
        u.requires_grad_()
        (v.sum() + u.sum()).backward()""",
    # ----- views made under no_grad -----
    "torch saves nothing for a product of views that lead nowhere": """
        with torch.no_grad(): u = z.imag
        v = u * u
        v.sum().backward()
        t = c * v
        u.data.mul_(2)
        (s * 2 + t.sum()).backward()""",
    "such a view of a constant is refused once the constant has a history": """
        with torch.set_grad_enabled(False): u = c[1:]
        v = c[1:]
        v.select(0, 0).mul_(f)
        t = torch.mul(u, -3)""",
    # ----- what only the wider statements reach -----
    "an argument of a checkpoint is found written": """
        v = -w
        u = checkpoint(lambda t: t.cos() * 2, v, use_reentrant=False)
        v *= 2
        u.sum().backward()""",
    "hooks of a root run where it leads to no target": """
        y.register_hook(see('leaf'))
        v = y * 2
        v.grad_fn; v.register_hook(see('root'))
        a, b = torch.autograd.grad(y, [z, s], d, allow_unused=True)
        a, b = torch.autograd.grad(v, [z, s], d, allow_unused=True)
        a, b = torch.autograd.grad([y, v, v.sum()], [z, s], [d, d, None], allow_unused=True)""",
    "a Function of constants may save what is no tensor": """
        a, b = Both.apply(c, True)""",
    "a Function that writes its input returns an alias under no_grad": """
        v = w * 2
        with torch.no_grad(): u = Doubled.apply(v)
        (u * w + v).sum().backward()""",
    "requires_grad is not assigned to what is no leaf": """
        v = f - s
        v.requires_grad_()
        v.requires_grad = True""",
    "numbers of NumPy's are exponents and factors": """
        v = y.abs() ** np.float32(0.5) * np.int64(3)
        v.sum().backward()""",
    "out= gives a tensor another shape": """
        v = s * 2
        u = d.sum()
        torch.mul(d, 2, out=u)
        (u * f).sum().backward()""",
    "also one that shares its memory with an equal value": """
        v = d.tanh()
        u = d.tanh()
        with torch.no_grad(): torch.mul(w, 2, out=u)
        (u * w).sum().backward()""",
    "a leaf under no_grad, whose gradient is summed": """
        with torch.no_grad(): torch.mul(d, 2, out=s)
        v = (c / s).square()
        v.sum().backward()""",
    "a product over every axis is summed in torch's order": """
        v = c + y
        u = torch.tensordot(v, v, v.dim())
        t = torch.tensordot(v, v.mT, ([0, 1], [1, 0]))""",
    "hooks on several tensors, asked for a root or for no leaf that comes": """
        v = w.tanh()
        u = v.sin()
        graph.register_multi_grad_hook([f, u], see_all('a'))
        graph.register_multi_grad_hook([w, z], see_all('b'))
        a, = torch.autograd.grad([u, u.abs().sum()], [v], [u.detach(), None], retain_graph=True)
        a, = torch.autograd.grad(w, [w], torch.stack([c[0] * w.detach()] * 2), is_grads_batched=True)""",
    "and of a leaf that a view without a way leads to": """
        graph.register_multi_grad_hook([s, f], see_all('a'))
        with torch.inference_mode(): v = s.view(-1)
        (v.sum() * 2 + f.sum() * 3).backward()""",
    "the gradient of axes of length one is a view": """
        v = f[..., None]
        a, b = torch.autograd.grad(v.sum() * 2 + (v * 4).sum(), [v, f], create_graph=True)
        a.requires_grad_()""",
    "a function transform of a tensor that was written through a view": """
        v = c.softmax(0)
        v.real.mul_(2)
        u = func.grad(lambda t: t.sin().sum() * 2)(v)""",
    "resize_ gives a constant another shape": """
        v = s.sigmoid()
        d.resize_(1)
        u = v + d
        (u * 2 + d / u).sum().backward()""",
    "a run inside a run leaves merges as they are": """
        v = s / c
        u = s / c
        t = F.gelu(u)
        r = checkpoint(lambda t: t.clone().mul_(2).tanh(), f, use_reentrant=True)
        (t.sum() * 2 + u.sum() * 3 + r.sum() * 4 + F.softplus(u).sum() * 5).backward()""",
    "a run does not come to a tensor that leads nowhere": """
        with torch.no_grad(): u = torch.view_as_real(z)
        v = u.transpose(0, -1)
        v.register_hook(see('v'))
        a, b = torch.autograd.grad(v.sum() * 2 + s, [s, z], allow_unused=True)
        v.sum().backward()""",
    "a write through a view that repeats its memory has no derivative": """
        v = f * m
        u = v.expand(2, *v.shape)
        u.zero_()
        v.sum().backward()""",
    "a product with two zeros has no gradient, also from a NaN": """
        v = w.prod().var(0)
        (v * 2).backward(retain_graph=True)""",
    "a copy of a view has its strides, and shares memory with what is copied beside it": """
        v = c.index_select(0, i % c.shape[0]).select(-1, 0)
        u = copy.deepcopy(v)
        a, b = copy.deepcopy([d, d[1:]])
        a.mul_(2)""",
    "inference tensors never require grad outside": """
        with torch.inference_mode(): v = f * 2
        v.requires_grad_()""",
    "what torch saves of several operands, whichever requires grad": """
        v = d * 1
        u = torch.addcdiv(x, d, v)
        v.add_(1)
        u.sum().backward()""",
    "a scan saves what it scans": """
        v = x * 1
        u, t = v.cummax(0)
        v.add_(1)
        u.sum().backward()""",
    "a target that is executed for nobody finds what it saved written": """
        v = y / d
        d.cumsum_(0)
        v.sum().backward(inputs=[v], retain_graph=True)""",
    "torch multiplies a vector as a matrix, and a target executes the view of the product": """
        v = torch.matmul(d, w)
        d.mul_(2)
        (v.sum() * 2).backward(inputs=[v])""",
    "a merged sum is one gradient of all targets to which it is handed on": """
        v1 = F.logsigmoid(f)
        v2 = torch.add(w, v1, alpha=1)
        v3, v4 = torch.autograd.grad(f.sum() * 2 + v2.sum() * 3 + v2.sum() * 4, [v2, w], materialize_grads=True)
        v4.requires_grad_()
    """,
    "a loss under autocast is cast as one call": """
        with torch.autocast('cpu'): v = F.cross_entropy(F.linear(x.float(), w.float()), i[:2])
        v.backward()""",
    "a loss refuses targets that do not fit": """
        v = F.cross_entropy(x, i)""",
    "to be asked for a gradient is to be read": """
        v = d.t()
        d -= f
        u = (d * 2).atan()
        a, b = torch.autograd.grad(u.sum() * 2, [v, f], allow_unused=True)
        v.pow_(2)
        d.sum().backward()""",
    "a call that torch composes of several has an output for each": """
        u, v = torch.tensor_split(x, 2)
        v.grad_fn; v.register_hook(see('v'))
        (u * 2).sum().backward()""",
    "the gradient of a power of zero is zero also where the cotangent is infinite": """
        v = y.abs() ** c
        (v * (v / 0.0)).sum().backward()""",
    "a view made under no_grad requires none once its base is detached": """
        v = f * 2
        with torch.no_grad(): u = v[1:]
        with torch.no_grad(): v.pow_(2)
        v.detach_()
        t = u.sin()""",
    "a write through a view of a view that was made a leaf is refused": """
        v = c[1:]
        v.requires_grad_()
        u = v[None]
        u.add_(-3)""",
    "a view is not read by a call that returns it": """
        v = torch.normal(c, 1.0)
        u = v[..., None]
        v[0] = (d + f).erf()
        t = u.contiguous()
        t.pow_(2)""",
    "nor by a cast to its own type": """
        v = torch.normal(c, 1.0)
        u = v[..., None]
        v[0] = (d + f).erf()
        t = u.to(torch.float64)
        t.pow_(2)""",
    "a product of a leaf with itself beside another leaf": """
        v = f @ f
        (s * 2 + v * 3).backward(retain_graph=True)""",
    "retain_grad of a view that was made before its base required grad": """
        u = d[None]
        v = d[None]
        v.mul_(y)
        u.retain_grad(); (u.sum() * 2).backward()""",
    "an assignment to a leaf at an index that does not fit": """
        s[..., 0] = -0.0""",
    "the way to one part of a split leads through a tensor made of another": """
        u, v = x.split(1)
        t = u * s
        (t.sum() * 3).backward(inputs=[t], retain_graph=True)
        torch.autograd.grad(t.relu().sum() * 2, [v, s], allow_unused=True)""",
    "the gradient of a mean that grad returns can be written": """
        v = w.mean()
        a, b = torch.autograd.grad(v * 2, [w, z], allow_unused=True)
        torch.relu_(a)""",
    "and that which a tensor retains": """
        v = w * 1
        v.retain_grad(); v.mean().backward(); v.grad.mul_(2)""",
    "one output of several is a target on the way to another": """
        u, v = x.abs().topk(1, 0)
        a, b = torch.autograd.grad(u.sum() * 2, [u, x], materialize_grads=True, retain_graph=True)
        t, r = torch.var_mean(y, dim=0)
        a, b = torch.autograd.grad(t.sum() * 2, [y, t], allow_unused=True, retain_graph=True)""",
    "a target of which only a view is executed has freed nothing": """
        v = torch.matmul(d, w)
        a, b = torch.autograd.grad(v.sum() * 2, [w, z], materialize_grads=True)
        (v.sum() * 3).backward(inputs=[v], retain_graph=True)""",
    "an assignment to a view of a leaf at an index that does not fit": """
        v = s.t()
        v[..., 0] = 2.0""",
    "the gradient through a product with one can be written": """
        v = 1 * f
        a, b = torch.autograd.grad(z.abs().sum() * 2 + v.sum() * 3, [z, f], retain_graph=True)
        b.copy_(d)""",
    "an index by a mask into a view that leads nowhere": """
        with torch.no_grad(): v = w.reshape(-1)
        u = v[v > 0]
        (u.sum() * 2 + v.sum() * 5).backward()""",
    "an assignment writes to the selected part of a view that repeats its memory": """
        v1 = torch.addcmul(s, s, c, value=2)
        v2, v3 = torch.meshgrid(v1.flatten(), y, indexing='ij')
        v2[..., 0] = nan
        (v1.sum() * 2 + v3.sum() * 3 + v2.sum() * 4).backward(retain_graph=True)""",
    "which is refused where that repeats its memory, too": """
        v1, v2 = torch.meshgrid(c.flatten(), y, indexing='ij')
        v1[0] = 0.5""",
    "and so does one of a tensor": """
        v = (y * 2).expand(3, 2)
        v[0] = s * 3
        v[1:2, None] = (d * f)[None, None]
        (v * v).sum().backward()""",
    "a written view of a constant that has become a leaf, read under no_grad": """
        v3 = c.t()
        v3.sin_()
        c.requires_grad_()
        with torch.no_grad(): v8 = v3.square()
        (v3 * 3).sum().backward()""",
    "a rule goes on reading the result that it has saved when .data gives the tensor another": """
        v1 = x.sigmoid()
        u = v1.exp()
        v1.data = v1.data * 2
        (v1.sum() * 2 + u.sum() * 3).backward(retain_graph=True)
        v1.data = v1.data + 1
        v4 = v1.tanh() + x.sigmoid()
        (v1 * v4).sum().backward()""",
    "and one that wrote in place": """
        with graph.save_on_cpu(): v1 = s.exp()
        v1.sigmoid_()
        v1.data = v1.data * 2
        v1.backward()""",
    "the gradient of the variance of too few values does not depend on them further": """
        v = (s.abs() + 0.5).log()
        u = v.var(0)
        a, b = torch.autograd.grad(u * 2, [u, v], materialize_grads=True, create_graph=True)
        t = y.var(0, correction=5)
        r, = torch.autograd.grad(t * 2, [y], create_graph=True)
        t = y.std(correction=y.numel() + 1)
        r, = torch.autograd.grad(t * 2, [y], create_graph=True)""",
    "the gradient of what was broadcast over new axes is a view": """
        v = F.mse_loss(*torch.broadcast_tensors(x, y))
        a, b = torch.autograd.grad(v * 2, [s, y], materialize_grads=True, retain_graph=True)
        b.detach_()""",
    "a sum of two such gradients is none": """
        v = x * y + (x * 2).sin() * y
        a, b = torch.autograd.grad(v.sum() * 2, [y, s], materialize_grads=True)
        a.detach_()
        u = x.atan2(y)
        a, b = torch.autograd.grad(u.sum() * 2, [y, s], materialize_grads=True, create_graph=True)
        a.detach_()""",
    "a target that is executed for nobody finds another of its results written": """
        v, u = torch.std_mean(x)
        v.sqrt_()
        u.retain_grad(); (s * 2 + v * 3).backward(inputs=[u], retain_graph=True)""",
    "an exponential linear unit has no second derivative at zero": """
        c.requires_grad_()
        v = F.elu(c, 0.5) + F.selu(c) + F.celu(c, 2.0)
        a, = torch.autograd.grad(v.sum() * 4, [c], create_graph=True)
        a.sum().backward()""",
    "a Function that is a target of backward is called": """
        v = checkpoint(lambda t: (t * t).exp().sum(), f, use_reentrant=True)
        (v * 2 + f.sum() * 3).backward(inputs=[v], retain_graph=True)""",
    "also by way of another of its results": """
        v, u = Both.apply(x * 1, d)
        (v.sum() * 2).backward(inputs=[u])
        (v.sum() * 2).backward(inputs=[u])""",
    "and frees what it has saved": """
        v = Square.apply(f)
        (v * 2).sum().backward(inputs=[v])
        v.sum().backward()""",
    "what an index_put saves are indices": """
        v, u = x * 1, y * 2
        t = torch.index_put(v, (i[:2] % 2,), u, accumulate=True)
        v.add_(1); u.add_(1)
        t.sum().backward()
        v = x * 1
        v.index_put_((i[:2] % 2,), u)
        u.mul_(2)
        v.sin().sum().backward()""",
    "an operand of a product that alone requires grad is not saved": """
        v = x * 1
        t = torch.einsum('ij,ij->i', v, c)
        v.add_(1)
        t.sin().sum().backward()
        v, u = x * 1, w * 1
        t = torch.einsum('ij,jk->ik', v, u)
        v.add_(1)
        t.sum().backward()""",
    "the inverse error function saves its argument": """
        v = (x * 0.1).erfinv()
        v.mul_(2)
        v.sum().backward()
        v = y * 0.1
        u = v.erfinv()
        v.add_(1)
        u.sum().backward()""",
    "decompositions save their results": """
        v = w * 1
        u, t = torch.linalg.eigh(v)
        v.zero_()
        (u.sum() * 2 + (t * t * w.detach()).sum()).backward()
        v = w * 1
        u = torch.linalg.svdvals(v) + torch.linalg.svd(v)[1] + torch.linalg.eig(v)[0].abs()
        v.zero_()
        u.sum().backward()""",
    "the gradient of eigenvectors is that of a symmetric matrix": """
        u, t = torch.linalg.eigh(w)
        ((t.abs() * w.detach()).sum() + u[0]).backward()""",
    "a view of a leaf that is a view of a constant's cast": """
        v = m.double()
        u = v[..., 1:]
        u.requires_grad_()
        u[0].t_()""",
    "a part of memory taken under no_grad is a leaf that requires grad": """
        v = x[..., 0]
        with torch.no_grad(): u = v.as_strided((2,), (1,))
        a = u.sin()""",
    "a view of the bits has no history, of the same type neither": """
        v = x.view(torch.float64)
        u = (x * 2).view(x.dtype)
        t = (v * u).sum()
        u.mul_(3)
        (x.sin().sum() + (x * 2 + v).sum()).backward()
        v.add_(1)
        t.backward()""",
    # ----- identity -----
    "the gradients of a number and of its sum are two tensors": """
        v = s.sum(0)
        a, b = torch.autograd.grad(w.sum() * 2 + v * 3, [s, v], allow_unused=True, retain_graph=True)
        a.requires_grad_()""",
    "a squeeze that changes nothing hands on the gradient itself": """
        v = s.squeeze()
        a, b = torch.autograd.grad(v * 4, [v, s], create_graph=True)
        b.requires_grad_()""",
    "a slice of everything makes another one": """
        v = x[:]
        a, b = torch.autograd.grad(v.sum() * 2 + v.sum() * 3, [v, x])
        b.add_(1)""",
    "the part of an axis of length one does, too": """
        v = x[:1]
        u = v[0]
        a, b = torch.autograd.grad(u.sum() * 2 + u.sum() * 3, [u, v])
        b.add_(1)""",
    "a gradient that is a view made in the run is not written with a history": """
        v = d + z.real
        u = torch.stack([+d, v]).sum(0)
        a, b = torch.autograd.grad((u * d).sum(), [v, f], materialize_grads=True)
        a -= s""",
    "one that is a product may be": """
        v = (y * 1.0)[None].exp()
        a, = torch.autograd.grad(v.sum() * 2 + v.sum() * 3, [y])
        a -= s""",
    "the same leaf asked for twice": """
        v, u = torch.autograd.grad(z.abs().sum() * 2 + z.abs().sum() * 4, [z, z], create_graph=True)
        v.abs().sum().backward()""",
    "a number that becomes a vector gets the gradient that it had as a number": """
        v = s * m
        with torch.no_grad(): s.unsqueeze_(0)
        (v.sum() * 3).backward()""",
    "the gradient of a mean is no zero without memory": """
        v = (y * 1).mean()
        a, = torch.autograd.grad(v.sgn(), [y])
        a.add_(1)""",
    "the gradient of what is subtracted twice is no zero without memory": """
        v = y.sigmoid()
        u = torch.sub(d, v, alpha=3).sgn()
        a, b = torch.autograd.grad(u.sum() * 2 + s, [u, v], allow_unused=True)
        b.add_(a, alpha=2)""",
    "the result of a power of two tensors, for the base": """
        a = x.abs() ** d
        a.neg_()
        a.sum().backward()""",
    "that of a power with a number is not": """
        a = (x * 1) ** 2
        a.neg_()
        a.sum().backward()""",
    "the real part of the gradient of an imaginary part is zero, also where it is infinite": """
        v = z.imag * inf
        v.sum().backward()""",
    "a piece of a split, written and read without gradients, is refused as soon as they are on": """
        v, u = x.split(1)
        with torch.no_grad(): v[0] = d
        with torch.no_grad(): t = torch.stack([v, u]).sum(0)
        v.grad_fn""",
    "a dropout of nothing asks nothing of such a piece": """
        v, u = c.mul_(y).chunk(2)
        with torch.no_grad(): v[0] = d
        a = F.dropout(v, 0.0)
        b = F.dropout(v, 0.5, training=False)
        t = F.alpha_dropout(v, 0.5)
        r = torch.feature_dropout(v.cpu(), 0.5, False)
        a.sum().backward()""",
    "one of something draws before it does": """
        v, u = c.mul_(y).chunk(2)
        with torch.no_grad(): v[0] = d
        a = F.dropout(v, 0.5)""",
    "a hook may write the gradient of a mean": """
        v, u, t = x * 2, x.sin(), w.t()
        v.register_hook(lambda g: (g.mul_(3), None)[1])
        u.register_hook(lambda g: (g[0].zero_(), None)[1])
        w.register_hook(lambda g: (g.add_(1), None)[1])
        (v.mean() + u.flatten().mean() * 2 + v.mean(0).sum() + t.mean()).backward()""",
    "the first gradient that is retained is row-major": """
        v = x * 2
        v.retain_grad()
        (v.t() * 3).sum().backward()
        u = v.grad.view(-1)
        a = v.grad""",
    "the Kronecker product is a view of nothing": """
        v = torch.kron(x, y)
        v.detach_()""",
    "a view made under no_grad of one that nothing has read since the write": """
        v, u = c.mT, c[0]
        u.copy_(s)
        with torch.no_grad(): t, r = v.permute(-1, 0), v[0]
        a = t * 2
        (a.sum() + v.sum() * 3 + r.sin().sum()).backward()
        c.mul_(2)
        b = t + 1""",
    "the gradient of a matrix that a product has read turned is row-major": """
        v, u = torch.autograd.grad((x @ w.t()).sum() * 2, [x, w])
        a, b = u.view(-1), v.view(-1)
        v, u = torch.autograd.grad(F.linear(x, w.t()).sum() * 2, [x, w])
        a, b = u.view(-1), v.view(-1)
        v, u = torch.autograd.grad((w.mT @ x.t()).sum() * 2, [x, w])
        a, b = u.view(-1), v.view(-1)
        v, u = torch.autograd.grad((x.t().t() @ w.t().t()).sum() * 2, [x, w])
        a, b = u.view(-1), v.view(-1)""",
    "a tensor that retains its gradient and is reshaped does not begin anew": """
        d[...] = s
        f.sum().backward(inputs=[d], retain_graph=True)
        d.unsqueeze_(0)
        d.retain_grad()
        (d * 2).sum().backward()""",
    "a leaf that is a view, and whose memory was written with a history, gets no gradient": """
        v, u = c.reshape(-1), c.reshape(-1)
        u.requires_grad_()
        v[...] = u
        (c.sum() * 5).backward()""",
    "what was computed of it before the write gets none either": """
        v, u = c.reshape(-1), c.reshape(-1)
        u.requires_grad_()
        t = u * 2
        v[...] = s
        a, b = torch.autograd.grad(t.sum() * 2 + c.sum(), [u, s], allow_unused=True, retain_graph=True)
        u.requires_grad
        t.sum().backward()""",
    "a write under no_grad of what requires grad itself is enough": """
        u = c.reshape(-1)
        u.requires_grad_()
        c.requires_grad_()
        t = u * 2
        (t.sum() + c.sum()).backward(retain_graph=True)
        with torch.no_grad(): c.mul_(2)
        (t.sum() + c.sum()).backward()""",
    "a call taken whole is executed as a target, which needs what an earlier run has freed": """
        v = F.rrelu(w.relu(), training=True)
        v.sum().backward()
        v.sum().backward(inputs=[v], retain_graph=True)""",
    "so is the noise of a dropout": """
        v = F.dropout(w.relu(), 0.5)
        v.sum().backward()
        v.sum().backward(inputs=[v], retain_graph=True)""",
    "of a call in several steps the last alone is executed, which may need nothing": """
        v = torch.chain_matmul(x * 1, w, w)
        u = torch.trapz(x * 1)
        (v.sum() + u.sum()).backward()
        v.sum().backward(inputs=[v], retain_graph=True)
        u.sum().backward(inputs=[u], retain_graph=True)
        v.sum().backward(inputs=[x])""",
    "a real part that gets another shape under no_grad has its gradient in the shape that it was made in": """
        v = (z * 2).real
        with torch.no_grad(): v.unsqueeze_(0)
        v.grad_fn; v.register_hook(see('v'))
        u = v * 3
        a, b = torch.autograd.grad(u.sum() * 2, [v, z], retain_graph=True)
        v.retain_grad()
        u.sum().backward()""",
    "a part of real memory has it in its present one": """
        v = (x * 2)[1:]
        with torch.no_grad(): v.unsqueeze_(0)
        v.grad_fn; v.register_hook(see('v'))
        a, b = torch.autograd.grad(v.sum() * 2, [v, x])""",
    "pieces of a tensor_split have a node each: nothing leads from one to another": """
        a, b = torch.tensor_split(x, 2)
        u = (a * 2).reciprocal()
        u.unsqueeze_(0)
        v, w = torch.autograd.grad(u.sum() * 2, [b, u], allow_unused=True, retain_graph=True)""",
    "a re-entrant checkpoint that returns its operands as they are": """
        a, b = checkpoint(lambda t, q: (t, q), s, y, use_reentrant=True)
        (a.sum() * 2 + b.sum() * 3).backward()""",
    "of views and computed tensors, too": """
        a, b = checkpoint(lambda t, q: (q, t), (x * 2)[1:], y, use_reentrant=True)
        (a.sum() * 2 + (b * b).sum() * 3).backward()""",
    # ----- operands, views and hooks at the edge of a graph -----
    "a comparison asks the class of an operand that is no tensor, on either side": """
        tell([isinstance(t == Duck(1), torch.Tensor) for t in (w, d, w * 2)])
        tell([isinstance(Duck(1) == t, torch.Tensor) for t in (w, d, w * 2)])""",
    "zeros that vmap's grad makes under no_grad": """
        with torch.no_grad(): u = torch.vmap(lambda v: torch.autograd.grad(z, y, v, create_graph=True,\
 materialize_grads=True, retain_graph=True)[0])(torch.ones_like(z)[None].expand(3, *z.shape))
        (u.sum() + w.sum()).backward()""",
    "a gradient that vmap computes with a history under no_grad": """
        with torch.no_grad(): u = torch.vmap(lambda v: torch.autograd.grad(z * z, z, v,\
 create_graph=True)[0])(torch.ones_like(z)[None].expand(3, *z.shape))
        (u.sum() + w.sum()).backward()""",
    "a view made under no_grad is read in a later graph": """
        v = f.mean(0, keepdim=True)
        with torch.no_grad(): u = v[1:]
        fresh()
        (u.sum() * 2).backward(retain_graph=True)""",
    "a view made in inference mode is read in a later graph": """
        with torch.inference_mode(): v = w.view(-1)
        fresh()
        (s * 2 + v.sum() * 5).backward()""",
    "a hook of several tensors, one a result of a Function whose other result is asked for": """
        u, v = Both.apply(c, f)
        y.grad_fn; graph.register_multi_grad_hook([y, v], see_all('y:3'))
        a, b = torch.autograd.grad(v.sum() * 2, [z, u], allow_unused=True, retain_graph=True)""",
    "a post-hook of the node of a result that backward(inputs=) ends at is called without cotangents of operands": """
        v = z.real
        u = v.cumsum(-1)
        called = []
        u.grad_fn.register_hook(lambda i, o: called.append([[t is None for t in i], [t is None for t in o]]))
        t = (v * u).exp()
        t.grad_fn.register_hook(lambda i, o: called.append([[t is None for t in i], [t is None for t in o]]))
        (v.sum() * 2 + u.sum() * 3).backward(inputs=[u], retain_graph=True)
        (t.sum() + u.sum()).backward(inputs=[t], retain_graph=True)
        torch.autograd.grad(t.sum() + u.sum(), [u, t], retain_graph=True)
        (v.sum() * 2 + t.sum() * 3).backward(retain_graph=True)
        tell(called)""",
    # ----- what lives, and for how long -----
    "a leaf that no living record reads": """
        u = laid(y.detach(), 'permuted').requires_grad_()
        (u.sum() * 2 + z.abs().sum() * 3).backward()
        watch(u); del u; alive()""",
    "the output of a Function that carries no gradient": """
        u, v, a = function('several unmaterialized').apply(w)
        watch(v); del v; alive()""",
    "an operand that a Function has marked as dirty": """
        u = function('dirty').apply(d * 1, s)
        watch(u); del u; alive()""",
    # ----- views made where no gradient is followed -----
    "a view made under no_grad is a leaf in a later graph": """
        with torch.no_grad(): u = y[..., None]
        fresh()
        tell([u.requires_grad, u.is_leaf])""",
    "a view made in inference mode, of a result in hidden memory": """
        u = F.instance_norm(ramp(2, 4, 3, 2).requires_grad_(), weight=ramp(4).requires_grad_())
        with torch.inference_mode(): v = u.view(-1)
        tell([v.requires_grad, v.is_leaf])""",
    "a view whose base requires grad since is read in a later graph": """
        with torch.inference_mode(): u = c.view(-1)
        c.requires_grad = True
        fresh()
        v = function('setup unmaterialized').apply(u, None, 'text', 3)
        tell([u.requires_grad, u.is_leaf, v.requires_grad])""",
    "a view made under no_grad of a sparse leaf": """
        u = w.detach().to_sparse().coalesce().requires_grad_()
        with torch.no_grad(): v = u.t()
        tell([v.requires_grad, v.is_leaf])""",
    "an operand of instance_norm that torch copies is written": """
        u = laid(ramp(2, 2, 3, 3), 'permuted').requires_grad_()
        v = F.instance_norm(u, weight=laid(ramp(2), 'offset') * s)
        with torch.no_grad(): u.tril_()
        (v * u.detach()).sum().backward()""",
    "a pooled constant is no view": """
        u = F.max_pool1d(d.reshape(1, 1, -1), 2)
        u.detach_()""",
    # ----- calls -----
    "sort takes `stable` only where the axis is named": """
        u = (d * w).sort(dim=-1, stable=True)[0]
        v = (d * w).sort(-1, stable=True)[0]""",
    "the same of the function": """
        u = torch.sort(x, stable=True, descending=True)[0]
        v = torch.sort(x, -1, True, stable=True)[0]""",
    "a product over all axes is a view": """
        v = torch.tensordot(w, w, w.dim())
        u = torch.tensordot(s[None], s[None], 1)
        tell([v.grad_fn.name(), u.grad_fn.name(), printed(v, True)])""",
    "an edge of one result of a transform, whose other result nobody has": """
        v = func.jvp(lambda t: t.sin() * s, (c,), (c.detach(),))[1]
        u, = torch.autograd.grad(edge(v), [s], torch.ones_like(v), allow_unused=True)""",
    "what a transform gives does not read the tensor that it closes over": """
        v = func.grad_and_value(lambda t: (t * t).sum() * s)(y)[0]
        with torch.no_grad(): s.add_(1)
        v.sum().backward()""",
    "a product with a matrix in columns is no write to it": """
        u = w.detach().to_sparse_csc()
        v = torch.mv(u, y)
        a = u @ (c * c).mT
        with torch.no_grad(): b = u @ (c * c).mT
        with torch.no_grad(): u.to_dense()
        tell(u._version)
        v.sum().backward()""",
    "a product with a view of a sparse leaf under no_grad": """
        u = c.detach().to_sparse_csr().requires_grad_()
        with torch.no_grad(): v = (w.t() @ u.t()).t()
        (w * v.to_dense()).sum().backward()""",
    "a view whose base requires grad since is the root of a run in vmap": """
        v = c.mT
        c.sub_(w.sum())
        u = torch.vmap(lambda t: torch.autograd.grad(v, w, t)[0])(torch.stack([v.detach(), v.detach()]))""",
    "a Function makes a leaf of a constant in a run of many cotangents": """
        v = function('setup within').apply(c.amax(), y * 1)
        u, = torch.autograd.grad(v, [y], torch.stack([v.detach(), v.detach()]), is_grads_batched=True)""",
    "a run that ends where it starts calls the hooks of all results of that call": """
        u, v = Both.apply(s, s)
        u.register_hook(lambda g: tell('u', g)); v.register_hook(lambda g: tell('v', g))
        a, = torch.autograd.grad(v, [y], allow_unused=True, create_graph=True)""",
    "what a transform gives may be written, also where torch has made a view of it": """
        v = func.grad(lambda t: t.prod())(w)
        v.abs_()
        v.sum().backward()""",
    "a leaf that was written under no_grad is a leaf": """
        u = torch.zeros(6).view(6).requires_grad_()
        with torch.no_grad(): u.mul_(2)
        u.view(-1).clamp_(-1, 1)""",
    "and is not written with a record": """
        u = torch.zeros(6).view(6).requires_grad_()
        with torch.no_grad(): u.mul_(2)
        u.clamp_(-1, 1)""",
    "the data of a leaf hold no leaf": """
        v = s.detach().clone().requires_grad_()
        v.data[...] = 0.25
        watch(v); del v; alive()""",
    "a quotient is computed again where its operand was written through an array": """
        v = c / s
        u = torch.as_tensor(np.asarray(c))
        u[u > 0] = -5.0
        v.sum().backward()""",
    "a tensor that is given other memory lives no longer than its last name": """
        u = c.view(-1)
        u.data = u.data * 2
        watch(u); del u; alive()""",
    "nor does a leaf that is the root of a run": """
        u = torch.zeros(6).view(6).requires_grad_()
        v, = torch.autograd.grad(u, [s], u.detach(), allow_unused=True, retain_graph=True)
        watch(u); del u; alive()""",
    "the first derivative of hardsigmoid requires grad": """
        v, = torch.autograd.grad(F.hardsigmoid(x).sum(), [x], create_graph=True)
        tell(v.requires_grad)
        F.hardsigmoid(s).backward()""",
    "there is no second one": """
        v, = torch.autograd.grad(F.hardsigmoid(x).sum(), [x], create_graph=True)
        u, = torch.autograd.grad((v * v).sum(), [x])""",
    # ----- gradients that vmap computes -----
    "an unused gradient is a view": """
        u = torch.vmap(lambda v: torch.autograd.grad(z, f, v, create_graph=True, materialize_grads=True,\
 retain_graph=True)[0])(torch.ones_like(z)[None].expand(3, *z.shape))
        tell([u._is_view(), u.stride()])""",
    "a cotangent that is handed on is what was given": """
        u = torch.vmap(lambda v: torch.autograd.grad(f + s, f, v, create_graph=True)[0])(torch.ones_like(f)[None]\
.expand(3, *f.shape))
        u.tanh_()""",
    "a run does not come to an operand that no derivative leads to": """
        u = func.jacrev(lambda t: t * t.sin() * s)(w)
        v = torch.vmap(lambda v: torch.autograd.grad(u, s, v, create_graph=True,\
 retain_graph=True)[0])(torch.ones_like(u)[None].expand(3, *u.shape))
        s.register_hook(see('s'))
        v.sum().backward()""",
    # ----- hooks -----
    "the first gradient of several leaves, one of which the graph has used before": """
        (s * 2 + z.abs().sum() * 3).backward()
        graph.register_multi_grad_hook([s, w], see('s:7'), mode='any')
        (s * 2 + F.elu(f, 0.5).sum() * 3 + y.sum() * 4 + w.clamp(-0.5, 0.5).sum() * 5).backward()""",
    "a hook of a root that was written under no_grad, where nothing leads to the target": """
        u = f.logsumexp(0)
        with torch.no_grad(): u.mul_(2)
        u.register_hook(lambda g: [])
        v, = torch.autograd.grad(u, [z], allow_unused=True)""",
    "an operand that a Function returns in two places": """
        u, v = checkpoint(lambda t, n, q: (t, q), d, 2, d, use_reentrant=True)
        a, b = checkpoint(lambda t, n, q: (t, q), f, 2, f, use_reentrant=True)
        (a.sum() * 2 + b.sum() * 3).backward()""",
    "the rule of a Function runs again, where it reads nothing that it had saved": """
        v, u, t = function('attribute once several').apply(s)
        (v * 3).backward()
        (v * 2 + function('output unmaterialized').apply(v, v)).backward()""",
    "but what it had saved is gone": """
        v = function('').apply(x, y)
        (v * 3).sum().backward()
        v.grad_fn.saved_tensors""",
    "the ctx keeps what the user has put there": """
        v = function('attribute').apply(x, y * 1)
        (v * 3).sum().backward()
        watch(v.grad_fn.b)
        alive()""",
    "a constant that has been given another shape, after many records": """
        v = copy.deepcopy(torch.autograd.grad(f.sum() * 2, [f], create_graph=True)[0])
        spent(70)
        (v * z[0]).abs().sum().backward()""",
    "a gradient that nothing leads to has the leaf below it that torch has made": """
        v = torch.vmap(lambda g: torch.autograd.grad(y * 2, w, g, create_graph=True, materialize_grads=True)[0])(\
torch.ones(3, 3, dtype=torch.float64))
        tell(len(v.grad_fn.next_functions))""",
    "floor division holds no operand": """
        v = x * 1
        u = v // 2
        watch(v); del v; alive()""",
    "a dense copy of a sparse constant is no write": """
        v = c.detach().to_sparse_csr()
        u = w @ v.t()
        t = v.to_dense()
        tell(v._version)
        u.sum().backward()""",
    "hooks of a view whose base has come to require grad": """
        v = d * 2
        u = v[1:]
        v.requires_grad_()
        graph.register_multi_grad_hook([z, u], see('u'), mode='any')
        u.register_post_accumulate_grad_hook(see('u'))
        (u * 2 + v[1:]).sum().backward()""",
    "what a transform returned keeps its history through a write without a record": """
        v = func.grad(lambda t: t.prod())(y)
        with torch.no_grad(): v.fill_(True)
        (v.sum() * 5).backward()""",
    "an assignment to a view of a leaf that a transform has made": """
        v = torch.vmap(lambda g: torch.autograd.grad(f, x, g, create_graph=True, materialize_grads=True)[0])(\
torch.stack([torch.ones_like(f), f.detach()]))
        v[i[:1] % 2] = inf""",
    "a view of hidden memory whose axes are exchanged without a record": """
        v = torch.einsum('ij,kj->ik', x, w)
        with torch.no_grad(): v.t_()
        (v * w[:, :2]).sum().backward()""",
    "a square one, whose gradient is exchanged, too": """
        v = torch.einsum('ij,kj->ki', w, w * s)
        with torch.no_grad(): v.t_()
        (v * w).sum().backward()""",
    "a view of hidden memory that `out=` gives another size": """
        v = x.expand(2, *x.shape)
        u = torch.einsum('...i,...i->...', v, v)
        with torch.no_grad(): torch.mul(v, 2, out=u)
        (v.sum() * 2 + u.sum() * 5).backward()""",
    "a view that `out=` makes smaller, then larger than its base": """
        v = (x * s)[1]
        with torch.no_grad(): torch.mul(s, 2, out=v)
        (v * w).sum().backward()
        u = (x * s).t()
        with torch.no_grad(): torch.mul(w, 2, out=u)
        a, = torch.autograd.grad((u * u).sum(), [x], create_graph=True)
        (a * a).sum().backward()""",
    "such a view of another type": """
        v = torch.view_as_real(z * s)
        with torch.no_grad(): torch.mul(torch.ones(9, 9), 2, out=v)
        v.sum().backward()""",
    "letters for the axes of an ellipsis": """
        v = torch.einsum('...i,...i', x, w[:2])
        u = torch.einsum('i...,j...->ij', x, c)
        t = torch.einsum('...ij,...jk->...ik', torch.stack([x, c]), torch.stack([w, w]))
        a = torch.einsum('...i->i', torch.stack([x, c]))
        b = torch.einsum('...i,i->...', x, y)
        (v.sum() + u.sum() * 2 + (t * t).sum() + a.sin().sum() + (b * torch.einsum('...,i', x, y)).sum()).backward()""",
    "an ellipsis twice in one operand": """
        v = torch.einsum('...i...,...i->...', x, y)""",
    "an activation in place saves its result, which is then written": """
        v = w * 1
        F.leaky_relu(v, 0.2, inplace=True)
        v.mul_(2)
        v.sum().backward()""",
    "activations in place: derivatives of two orders, and their names": """
        v, u, t, a = w * 1, w * 2, w * 3, w * 0.5
        F.leaky_relu(v, 0.2, True), F.elu_(u), torch.celu_(t), torch.selu_(a)
        tell([k.grad_fn.name() for k in (v, u, t, a, F.threshold_(w * 1, 0.1, 0.5))])
        e, = torch.autograd.grad((v * u * t * a * a).sum(), [w], create_graph=True)
        (e * e).sum().backward()""",
    "an activation in place of a part": """
        v = w * 1
        F.elu(v[0], 0.7, inplace=True)
        (v * v).sum().backward()""",
    "an activation in place with a negative slope": """
        v = w * 1
        F.leaky_relu(v, -0.2, inplace=True)
        v.sum().backward()""",
    "a transform holds what torch has saved for it": """
        v, u = s.sin(), y.sin()
        t = func.vmap(lambda a, b: a * b, in_dims=(0, None))(d, v)
        a = func.vmap(lambda a, b: a * b, in_dims=(0, None))(u, v * 2)
        watch(v); del v; watch(u); del u; alive()
        b, = torch.autograd.grad((a * a).sum() + t.sum(), [y], create_graph=True)
        (b * b).sum().backward()""",
    "a constant that requires grad when a checkpoint computes it again": """
        v = checkpoint(lambda t, n, q: q.exp() * t, c, 2, z, use_reentrant=False)
        c.requires_grad = True
        v.abs().sum().backward()""",
    "zeros without memory are the cotangent of a re-entrant checkpoint": """
        v = checkpoint(lambda t: t.reshape(-1)[:1] * t + function('within').apply(t, s), f, use_reentrant=True)
        u = checkpoint(lambda t: t.reshape(-1)[:1] * t, f * 1.01, use_reentrant=True) + v
        (u.sgn().sum() * 2 + x.sum()).backward()""",
    "a pre-hook of the node of one of two results of a transform, in a run that ends there": """
        v = func.grad_and_value(lambda t: (t * t).sum() * s)(d)[0]
        v.grad_fn; v.grad_fn.register_prehook(lambda o: tuple(None if g is None else g * 2 for g in o))
        u, = torch.autograd.grad(v.norm(), [v], create_graph=True)
        u.sum().backward()""",
    "an argument of the wrong type is refused before the write of a view of a leaf": """
        v = f.movedim(0, -1)
        v.addcmul_(2, 2)""",
    "a mask that does not fit is refused after the write of a view of a leaf": """
        v = z.imag
        v[m[0, :1]] = 1.0""",
    "names of nodes of elements that are put in a tensor, and of views that are written": """
        v, u, t, a = w * 1, w * 1, w * 1, w * 1
        v[i[:1] % 2] = 2.0
        u[u > 0] = 2.0
        t[0, i[:1] % 2] = 2.0
        a[i[0] % 2] = 2.0
        tell([k.grad_fn.name() for k in (v, u, t, a)])""",
    "a hook of several tensors, one of which is the root and one of two results of a checkpoint": """
        v, u = checkpoint(lambda t, n, q: (t, q), c, 2, w, use_reentrant=True)
        t = w.exp()
        t.grad_fn; graph.register_multi_grad_hook([t, u], see_all('a'))
        torch.autograd.backward([u], [torch.ones_like(u)], retain_graph=True)""",
    "a write of several tensors, one of them a view of hidden memory": """
        u = laid(ramp(2, 4, 3, 2), 'channels').requires_grad_()
        v = torch.einsum('nchw,nchw->nc', u, u)
        torch._foreach_mul_([v], 2.0)
        v.sum().backward()""",
    "a view of a leaf that was frozen after a run has used it": """
        v = laid(s.detach(), 'channels').requires_grad_()
        (y.sum() * 2 + v * 4).backward()
        v.requires_grad_(False)
        v.t().add_(1.0)
        (v * s).sum().backward()""",
    "a view of a sparse leaf made under no_grad": """
        v = c.detach().to_sparse_csc().requires_grad_()
        with torch.no_grad(): u = v.t()
        tell([u.is_leaf, u.requires_grad])
        (u @ w).sum().backward()""",
    "a written view of a tensor that came to require grad, asked in a later graph": """
        v = d.t()
        v.sin_()
        d.requires_grad_()
        fresh()
        tell(v.is_leaf); tell(v.grad_fn and v.grad_fn.name())""",
    "a sparse product, asked for its dense operand alone": """
        v = w.detach().to_sparse_csc().requires_grad_()
        u = torch.sparse.mm(v, w)
        t, = torch.autograd.grad(u.abs().sum(), [edge(w)], retain_graph=True)
        q, = torch.autograd.grad(u.sum(), [w], create_graph=True)
        u.sum().backward(inputs=[w])""",
    "a root that out= has made larger, beside what is computed of it": """
        u = f.sum()
        v = u ** 2.0
        with torch.no_grad(): torch.mul(c, 2, out=v)
        t, = torch.autograd.grad([v, v.sum()], [f], [torch.ones_like(v), None], retain_graph=True)
        q, = torch.autograd.grad([v.sum(), v], [u], [None, torch.ones_like(v)], retain_graph=True)
        torch.autograd.backward([v, v.abs().sum()], [torch.ones_like(v), None])""",
    "a view that was written without a record is printed": """
        v = f.unsqueeze(0)
        with torch.no_grad(): v.neg_()
        with outside(): tell(printed(v))
        tell(printed(v))
        u = (w * 1).t()
        with torch.no_grad(): u.mul_(2)
        tell(printed(u)); tell(u.grad_fn.name())
        with outside(): tell(printed(u))""",
    "hooks of several leaves from before the graph": """
        graph.register_multi_grad_hook([y, f], see('y'), mode='any')
        fresh()
        f * 2
        (y.sum() * 3 + f.sum() * 4).backward()""",
    "a leaf of which nothing is recorded is held by nobody": """
        v = checkpoint(lambda t, n, q: (t, q), c, 0.5, laid(d, 'permuted').requires_grad_(), use_reentrant=False)[1]
        watch(v); del v; alive()
        u = w.detach().to_sparse_csc().requires_grad_()
        with torch.no_grad(): t = (w.t() @ u.t()).t()
        watch(u); del u; alive()
        u = w.detach().requires_grad_()
        with torch.no_grad(): u * 2, u.sin()
        watch(u); del u; alive()
        u = w.detach().requires_grad_()
        t = torch.vmap(lambda g: torch.autograd.grad(s, u, g, materialize_grads=True, retain_graph=True)[0])(d)
        watch(u); del u; alive()""",
    "a hook of several leaves sees another result of a call that a run is asked for": """
        v, u = Both.apply(y, f)
        graph.register_multi_grad_hook([z, v], see_all('z'))
        (u.sum() * 2 + v.sum() * 3).backward(inputs=[u], retain_graph=True)
        t, q = torch.stack([y, f]).unbind(0)
        graph.register_multi_grad_hook([t, f], see_all('t'))
        (q.sum() * 2 + t.sum() * 3).backward(inputs=[q], retain_graph=True)
        (z.sum() + u.sum() * 2 + v.sum() * 3).backward()""",
    "a call without a rule holds what torch has saved": """
        v = y * 2
        u = torch.trapezoid(v)
        watch(v); del v; alive()
        v = y * 2
        t = torch.cdist(v[None], y[None])
        watch(v); del v; alive()
        v = w * 2
        a = x.detach().to_sparse_csr() @ v
        watch(v); del v; alive()
        v = w * 2
        b = torch.sparse.mm(x.detach().to_sparse(), v)
        watch(v); del v; alive()
        v = s * 3
        q = F.alpha_dropout(v, 0.5, training=True)
        watch(v); del v; alive()
        (u + t.sum() + q.sum() + a.sum() + b.sum()).backward()""",
    "a value found in inference mode": """
        v = y * 3
        v.sum().backward(retain_graph=True)
        with torch.no_grad(): u = v * 2 + v.sin() + v @ v
        with torch.inference_mode(): a = v * 2; b = v.sin(); t = v @ v; q = a + b
        tell([a.is_inference(), b.is_inference(), t.is_inference(), q.is_inference()])
        with torch.no_grad(): u = v * 2
        tell(u.is_inference())""",
    "a Function writes a view of a leaf that is itself a view": """
        v = laid(ramp(2, 4), 'steps').requires_grad_()
        u = Doubled.apply(v[0])""",
    "a view from no_grad or inference mode comes to require grad after a write to its memory": """
        v = d * s
        with torch.no_grad(): u = v.view(-1)
        v.mul_(2)
        u.requires_grad = True; tell(u.requires_grad)
        u.is_leaf""",
    "a view from inference mode comes to require grad after a write that a Function has made": """
        d.div_(s)
        with torch.inference_mode(): v = d.view(-1)
        u = Doubled.apply(d)
        v.requires_grad = True; tell(v.requires_grad)
        v * 2""",
    "a view from no_grad is printed after a write to its memory": """
        with torch.no_grad(): u = y[:]; u *= 2
        tell(printed(u)); tell(printed(u, True))
        v = y * 2
        with torch.no_grad(): t = v[:]
        v.mul_(2)
        tell(printed(t))
        t.requires_grad_(); tell(printed(t))""",
    "a view from inference mode comes to require grad in a later graph": """
        v = s.exp() * c
        with torch.inference_mode(): u = v.view(-1)
        fresh()
        u.requires_grad = True
        (torch.sub(u, s, alpha=3) * u).sum().backward()""",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND.keys())
def test_as_in_eager(text: str) -> None:
    compare(Program([line.strip() for line in text.strip().splitlines()]))
