"""Checkpoints: nested, selective, under autocast and grad modes, with errors."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from torch.autograd import Function, grad
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from tests.engine.behaviour import caught, group

Tensor = torch.Tensor
checkpoints = group("checkpoint: nested, selective, under other modes")


@checkpoints("test_checkpoint_warns_if_use_reentrant_not_passed_explcitly")
def variant_not_named(new):
    """A warning, or an error, where use_reentrant is not given."""
    x = new.randn(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with contextlib.suppress(ValueError):
            checkpoint(torch.exp, x)
    return any("use_reentrant" in str(w.message) for w in seen), x


@checkpoints("test_checkpointing_without_reentrant_saved_object_identity")
def identity_of_saved_objects(new):
    """What a Function saves inside a checkpoint and outside."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.exp()

    a = new.randn(3)
    checkpoint(F.apply, a, use_reentrant=False).sum().backward()
    return a.grad


@checkpoints("test_nested_checkpoint_non_tensor_inputs_and_outputs")
def nested_with_other_results(new):
    """Numbers, strings and callables through nested checkpoints."""
    def f(k, a, b, g):
        return g(k * a * b.exp()), 1, "abcd"

    def outer(k, a, b, g):
        return checkpoint(f, k, a, b, g, use_reentrant=False)

    a, b = new.scalar(2.0), new.scalar(3.0)
    out, one, text = checkpoint(outer, 3, a, b, torch.sin, use_reentrant=False)
    out.backward()
    return one, text, a.grad, b.grad


@checkpoints("test_bad_inputs")
def bad_policies(new):
    """A policy must be a callable or a list of operators."""
    return caught(lambda: create_selective_checkpoint_contexts([2]), 10), caught(
        lambda: create_selective_checkpoint_contexts("x"), 10), new(1.0)


@checkpoints("test_policy_with_state")
def policy_with_a_counter(new):
    """A stateful policy counts calls in the forward and in the recomputation in the same way."""
    counters = []

    class Policy:
        def __init__(self):
            self.counter = [0]
            self.recompute = [0]

        def __call__(self, ctx, func, *args, **kwargs):
            (self.recompute if ctx.is_recompute else self.counter)[0] += func == torch.ops.aten.mm.default
            return CheckpointPolicy.MUST_SAVE

    def contexts():
        policy = Policy()
        counters.append(policy)
        return create_selective_checkpoint_contexts(policy)

    x = new(torch.randn(3, 3))
    out = checkpoint(lambda t: torch.mm(torch.mm(t, t), t).sin(), x, use_reentrant=False, context_fn=contexts)
    out.sum().backward()
    return [p.counter[0] > 0 for p in counters], x.grad


@checkpoints("test_function_with_non_tensor_output")
def selective_with_other_results(new):
    """Selective checkpointing of an operation whose result is no tensor."""
    x = new(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def f(t):
        return t.sin() * int(torch.sum(t.detach()).item() > 0)

    out = checkpoint(f, x, use_reentrant=False,
                     context_fn=lambda: create_selective_checkpoint_contexts([torch.ops.aten.sin.default]))
    out.sum().backward()
    return x.grad


@checkpoints("test_output_already_has_autograd_meta")
def detached_output_in_selective(new):
    """Selective checkpointing with an output used twice."""
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE

    x = new.randn(3)

    def f(t):
        s = t.sin()
        return s.exp() * s.detach()

    out = checkpoint(f, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
    out.sum().backward()
    return x.grad


@checkpoints("test_custom_autograd_ac_early_stop")
def function_in_an_early_stopped_recomputation(new):
    """A Function as the last operation of a checkpoint."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clone()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * (x + y)

    x = new.randn(3)
    checkpoint(lambda t: F.apply(t.sin().exp()), x, use_reentrant=False).sum().backward()
    return x.grad


def block(t: Tensor, scale: float = 1.0, *, shift: Any = 0.0) -> Tensor:
    return torch.nn.functional.dropout((t * scale + shift).exp(), 0.5).tanh()


def both(program: Any) -> list[Any]:
    """What a program gives with each variant."""
    out = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")
        for reentrant in (True, False):
            torch.manual_seed(0)
            out.append(program(reentrant))
    return out


@checkpoints("")
def one_inside_the_other(new):
    """Checkpoints of each variant inside each variant."""
    def program(outer: bool) -> Any:
        out = []
        for inner in (True, False):
            x = new(1.0, 2.0)
            y = checkpoint(lambda t, inner=inner: checkpoint(block, t.sin(), 0.5, use_reentrant=inner) * t, x,
                           use_reentrant=outer)
            y.sum().backward()
            out += [y, x.grad]
        return out
    return both(program)


@checkpoints("")
def keyword_arguments(new):
    """Keyword arguments, tensors among them, and nested outputs."""
    x, s = new(1.0, 2.0), new(0.5, 0.25)
    torch.manual_seed(0)
    y, (z, n) = checkpoint(lambda t, *, shift: (block(t, shift=shift), (t * shift, 5)), x, shift=s, use_reentrant=False)
    (y + z).sum().backward()
    return y, z, n, x.grad, s.grad


@checkpoints("")
def without_the_generator(new):
    """preserve_rng_state=False draws anew."""
    def program(reentrant: bool) -> Any:
        x = new(1.0, 2.0)
        y = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=False)
        y.sum().backward()
        return y, x.grad, torch.rand(1)
    return both(program)


@checkpoints("")
def under_autocast(new):
    """The recomputation happens under the autocast of the forward."""
    def program(reentrant: bool) -> Any:
        x, w = new([[1.0, 2.0]], dtype=torch.float32), new([[0.5, 0.25], [1.0, 2.0]], dtype=torch.float32)
        seen: list[Any] = []

        def f(a: Tensor, b: Tensor) -> Tensor:
            out = a @ b
            seen.append(out.dtype)
            return out.float().exp()

        with torch.autocast("cpu", torch.bfloat16):
            y = checkpoint(f, x, w, use_reentrant=reentrant)
        y.sum().backward()
        return seen, x.grad, w.grad
    return both(program)


@checkpoints("")
def sequential(new):
    """checkpoint_sequential over modules."""
    def program(reentrant: bool) -> Any:
        net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()) for _ in range(4)])
        net = net.double()
        x = new([[1.0, 2.0]])
        y = checkpoint_sequential(net, 2, x, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad, [p.grad for p in net.parameters()]
    return both(program)


@checkpoints("")
def no_early_stop(new):
    """Without early stop the whole function runs again."""
    x, calls = new(1.0, 2.0), []

    def f(t: Tensor) -> Tensor:
        calls.append("start")
        y = t.exp().sin()
        calls.append("end")
        return y

    with set_checkpoint_early_stop(False):
        checkpoint(f, x, use_reentrant=False).sum().backward()
    checkpoint(f, x, use_reentrant=False).sum().backward()
    return calls, x.grad


@checkpoints("")
def with_grad_and_second_order(new):
    """grad() through the variant that allows it, twice differentiated."""
    x = new(1.0, 2.0)
    y = checkpoint(lambda t: t.exp() * t, x, use_reentrant=False).sum()
    (g,) = grad(y, x, create_graph=True)
    (h,) = grad(g.sum(), x)
    z = checkpoint(lambda t: t.exp(), x, use_reentrant=True).sum()
    return g, h, caught(lambda: grad(z, x), 40), caught(lambda: z.backward(inputs=[x]), 40)


@checkpoints("")
def an_error_while_recomputing(new):
    """The recomputation raises; the next step is right."""
    x, fails = new(1.0, 2.0), [False]

    def f(t: Tensor) -> Tensor:
        if fails[0]:
            raise KeyError("again")
        return t.exp() * t

    y = checkpoint(f, x, use_reentrant=False).sum()
    fails[0] = True
    error = caught(y.backward)
    fails[0] = False
    x.grad = None
    checkpoint(f, x, use_reentrant=False).sum().backward()
    return error, x.grad


@checkpoints("")
def another_recomputation(new):
    """A recomputation of another shape is noticed."""
    x, n = new(1.0, 2.0), [0]

    def f(t: Tensor) -> Tensor:
        n[0] += 1
        return (t.exp() * t).sin() if n[0] == 1 else (torch.cat([t, t]).exp() * torch.cat([t, t])).sin()[:2]

    y = checkpoint(f, x, use_reentrant=False).sum()
    return caught(y.backward, 40)


@checkpoints("")
def nothing_requires_grad(new):
    """Inputs that do not require grad."""
    x, w = new(1.0, 2.0, grad=False), new(0.5, 0.25)

    def program(reentrant: bool) -> Any:
        y = checkpoint(lambda t: t * w, x, use_reentrant=reentrant)
        return y, y.requires_grad, caught(lambda: y.sum().backward(), 40)

    return both(program), w.grad


@checkpoints("test_nested_checkpoint_set_early_stop_no_recompution_needed")
def nothing_to_recompute(new):
    """With early stop a checkpoint whose last operation saves nothing runs once"""
    counts = []

    def program(stop):
        count = [0]

        def body(x):
            count[0] += 1
            return x + 1

        x = new.randn(2)
        with set_checkpoint_early_stop(stop):
            checkpoint(body, x, use_reentrant=False).sum().backward()
        counts.append(count[0])
        return x.grad

    return program(True), program(False), counts


@checkpoints("test_can_only_trigger_recompute_once")
def recomputed_only_once(new):
    """Values kept by a policy are gone after one recomputation"""
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE

    x = new.randn(3)
    out = checkpoint(lambda t: t.sin().cos().exp(), x, use_reentrant=False,
                     context_fn=lambda: create_selective_checkpoint_contexts(policy))
    out.sum().backward(retain_graph=True)
    return x.grad, caught(lambda: out.sum().backward(), 20)


@checkpoints("test_checkpointing_without_reentrant_dataparallel")
def checkpoints_inside_data_parallel(new):
    """A checkpoint inside DataParallel, which on a CPU calls its module"""
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)

    class Body(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return checkpoint(lambda v: self.layer(v).tanh(), x, use_reentrant=False)

    x = new.randn(4, 3)
    torch.nn.DataParallel(Body())(x).sum().backward()
    return x.grad, layer.weight.grad, layer.bias.grad


test_checkpoints = checkpoints.check()
