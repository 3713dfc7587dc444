"""Saved-tensor hooks, save_on_cpu, checkpoints, anomaly mode, re-entrant runs, callbacks."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch.autograd import Function, Variable, grad
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import autograd_opt as ao
from tests.engine.behaviour import caught, group
from tests.engine.functions import Fails

saved = group("saved tensors: hooks, save_on_cpu")
recomputed = group("checkpoint")
anomaly = group("anomaly mode")
reentrant = group("reentrant backward, callbacks, execution order")


# ----- saved tensors -----
@saved("test_setting_default_saved_variable_hooks_twice_should_use_inner")
def innermost_hooks_win(new):
    """The innermost pair of hooks is used."""
    a, b = new.randn(5), new.randn(5)
    with saved_tensors_hooks(lambda x: 3 * x, lambda x: 3 * x), saved_tensors_hooks(lambda x: 5 * x, lambda x: 5 * x):
        y = a * a
    with saved_tensors_hooks(lambda x: 3 * x, lambda x: 3 * x):
        with saved_tensors_hooks(lambda x: 5 * x, lambda x: 5 * x):
            pass
        z = b * b
    y.sum().backward()
    z.sum().backward()
    return a.grad, b.grad


@saved("test_setting_default_saved_variable_hooks_twice_should_not_fail")
def hooks_set_twice(new):
    """Installing hooks twice is no error."""
    x = new.randn(2)
    with saved_tensors_hooks(lambda t: t, lambda t: t), saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x.exp()
    y.sum().backward()
    return x.grad


@saved("test_unpack_hooks_exec_count")
def each_value_packed_once(new):
    """Each saved value is packed once and unpacked once a run."""
    counts = [0, 0]

    def pack(t):
        counts[0] += 1
        return t

    def unpack(t):
        counts[1] += 1
        return t

    x = new(torch.ones(5))
    with saved_tensors_hooks(pack, unpack):
        y = x * x
        z = y.sin()
    z.sum().backward(retain_graph=True)
    first = counts[:]
    z.sum().backward()
    return first, counts, x.grad


@saved("test_wrapped_number_saved_tensors_hooks")
def numbers_are_not_packed(new):
    """Python numbers do not go through the hooks."""
    seen = []
    x = new(torch.randn(2, 2))
    with saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        y = x * 2.0
    y.sum().backward()
    return [list(s) for s in seen], x.grad


@saved("test_default_saved_tensors_hooks_double_backward")
def hooks_and_double_backward(new):
    """Unpacked values stay connected in a run that creates a graph."""
    out = []
    for hooks in (contextlib.nullcontext, lambda: saved_tensors_hooks(lambda t: t * 1, lambda t: t * 1)):
        x = new(0.5, 1.5)
        with hooks():
            y = (x ** 3 * x.sin()).sum()
            g, = grad(y, x, create_graph=True)
            h, = grad((g * g).sum(), x)
        out += [g.detach(), h]
    return out


@saved("test_default_saved_tensors_hooks_double_backward")
def hooks_around_the_forward_only(new):
    """Hooks around the forward, two orders outside."""
    x = new(0.5, 1.5)
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = (x * x).tanh().sum()
    g, = grad(y, x, create_graph=True)
    h, = grad(g.sum(), x)
    return g, h


@saved("test_saved_tensor_hooks_custom_error_propagation")
def errors_of_hooks(new):
    """Exceptions of hooks reach the caller."""
    class Stop(Exception):
        pass

    def fails(t):
        raise Stop("hook")

    def packs():
        with saved_tensors_hooks(fails, lambda t: t):
            x.exp()

    def unpacks():
        with saved_tensors_hooks(lambda t: t, fails):
            y = x.exp()
        y.sum().backward()

    x = new(1.0)
    first, second = caught(packs), caught(unpacks)
    (x * x).backward()
    return first.text, second.text, x.grad


@saved("test_saved_tensor_hooks_custom_function_intermediates")
def hooks_and_functions(new):
    """What a Function saves goes through the hooks."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            mid = x.exp()
            ctx.save_for_backward(x, mid, None)
            return mid * x

        @staticmethod
        def backward(ctx, g):
            x, mid, none = ctx.saved_tensors
            assert none is None
            return g * (mid * x + mid)

    seen = []
    x = new(0.5, 1.5)
    with saved_tensors_hooks(lambda t: seen.append(1) or t * 1, lambda t: seen.append(2) or t):
        y = F.apply(x)
    y.sum().backward()
    return seen, x.grad


@saved("test_saving_variable_to_disk")
def hooks_that_store_elsewhere(new):
    """Hooks may return anything: here NumPy arrays and indices."""
    store = []

    def pack(t):
        store.append(t.detach().numpy().copy())
        return len(store) - 1

    x = new(torch.randn(4, 4))
    with saved_tensors_hooks(pack, lambda i: torch.from_numpy(store[i])):
        y = (x @ x).relu().logsumexp(0).sum()
    y.backward()
    return x.grad, len(store) > 0


@saved("test_graph_save_on_cpu")
def save_on_cpu_changes_nothing(new):
    """save_on_cpu gives the same gradients."""
    x = new(torch.randn(3, 3))
    with save_on_cpu():
        y = (x @ x).sigmoid().prod(0).sum()
    y.backward()
    return x.grad


@saved("test_save_on_cpu_and_checkpoint")
def save_on_cpu_and_checkpoint(new):
    """save_on_cpu around a checkpoint, and inside one."""
    a = new(torch.randn(2, 2))
    b = a.pow(2).pow(2)
    outer = b.pow(2).pow(2)
    outer.sum().backward()
    plain = a.grad.clone()
    a.grad = None
    with save_on_cpu():
        h = a.pow(2)
        h = checkpoint(lambda x: x.pow(2).pow(2), h, use_reentrant=False)
    h.pow(2).sum().backward()
    return plain, a.grad


@saved("test_saved_tensors_hook_version_counter_not_shared")
def written_after_packing(new):
    """With hooks on saved tensors, a later write to the operand is not an error."""
    a = new(torch.randn(3)) * 1
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = a * a
    a.add_(1)
    return grad(y.sum(), a, allow_unused=True)


@saved("test_basic")
def allowed_mutation(new):
    """allow_mutation_on_saved_tensors clones what is overwritten."""
    a = new(torch.rand(2, 3))
    out = []
    with torch.autograd.graph.allow_mutation_on_saved_tensors() as ctx:
        b = a.clone()
        c = (b ** 2).sin()
        b.sin_()
        out.append(len(ctx.cloned))
        c.sum().backward()
    return out, a.grad


@saved("test_saved_but_not_anymore")
def allowed_mutation_without_need(new):
    """Nothing is cloned when nothing saved is overwritten."""
    a = new(torch.randn(3))
    with torch.autograd.graph.allow_mutation_on_saved_tensors() as ctx:
        b = a * 2
        b.add_(1)
        (b ** 2).sum().backward()
        return len(ctx.cloned), a.grad


@saved("test_saved_tensor_constructor_forbidden_without_flag")
def hooks_disabled(new):
    """disable_saved_tensors_hooks forbids installing any."""
    def installs():
        hooks = saved_tensors_hooks(lambda t: t, lambda t: t)
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"), hooks:
            pass

    x = new(1.0)
    first = caught(installs)
    (x * x).backward()
    return first, x.grad


@saved("test_default_saved_tensors_hooks_double_backward")
def hooks_and_opaque_operators(new):
    """Operators differentiated by torch go through the hooks too."""
    seen = []
    x = new(torch.randn(3, 3))
    with saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        y = torch.linalg.inv(x @ x.T + torch.eye(3).double()).sum()
    y.backward()
    return len(seen) > 0, x.grad


@saved("test_default_saved_tensors_hooks_double_backward")
def hooks_and_inplace(new):
    """In-place forms under hooks."""
    x = new(torch.randn(4))
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x * 2
        y.mul_(x)
        y.sigmoid_()
        y[:2].exp_()
    y.sum().backward()
    return x.grad


# ----- checkpoint -----
def block(new):
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 4),
                               torch.nn.LayerNorm(4), torch.nn.GELU()).double()


def run_blocks(new, use):
    blocks = [block(new) for _ in range(2)]
    x = new(torch.randn(6, 4))
    torch.manual_seed(7)
    h = x
    for b in blocks:
        h = use(b, h)
    h.pow(2).sum().backward()
    return x.grad, [p.grad for b in blocks for p in b.parameters()]


@recomputed("test_checkpointing_without_reentrant")
def non_reentrant(new):
    """Non-reentrant checkpoints with dropout: the same gradients as without."""
    return run_blocks(new, lambda b, h: checkpoint(b, h, use_reentrant=False)), run_blocks(new, lambda b, h: b(h))


@recomputed("test_checkpointing")
def reentrant_variant(new):
    """Re-entrant checkpoints."""
    return run_blocks(new, lambda b, h: checkpoint(b, h, use_reentrant=True))


@recomputed("test_checkpoint_sequential_warns_if_use_reentrant_not_passed_explcitly")
def sequential(new):
    """checkpoint_sequential."""
    net, x = block(new), new(torch.randn(3, 4))
    checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
    return x.grad, [p.grad for p in net.parameters()]


@recomputed("test_checkpointing_without_reentrant_correct_grad")
def same_as_without(new):
    """Gradients of a, of b, and of both."""
    a = new(torch.randn(2, 2))
    def f(x):
        return (x ** 3).exp()

    b = f(a)
    b.sum().backward()
    g1 = a.grad.clone()
    a.grad = None
    checkpoint(f, a, use_reentrant=False).sum().backward()
    return g1, a.grad


@recomputed("test_checkpointing_without_reentrant_parameter_used_in_an_out")
def parameter_inside_and_outside(new):
    """A parameter used inside and outside the checkpoint."""
    w = new(torch.randn(4, 4))
    x = new(torch.rand(4, 4))
    out = checkpoint(lambda t: (t @ w).tanh(), x, use_reentrant=False) @ w + w
    out.sum().backward()
    return w.grad, x.grad


@recomputed("test_checkpointing_without_reentrant_arbitrary_input_output")
def other_arguments_and_results(new):
    """Dictionaries, keywords and results that are no tensors."""
    w = new(torch.randn(3))

    def f(d, *, scale):
        return {"y": d["x"] * w * scale, "n": 3, "list": [d["x"].sin()]}

    x = new(torch.randn(3))
    out = checkpoint(f, {"x": x}, scale=2.0, use_reentrant=False)
    (out["y"] + out["list"][0]).sum().backward()
    return out["n"], x.grad, w.grad


@recomputed("test_nested_checkpoint")
def nested(new):
    """Three levels of checkpoints and a second derivative."""
    def c(f):
        return lambda *a: checkpoint(f, *a, use_reentrant=False)

    def f(x):
        return c(lambda y: c(lambda z: z.sin().exp())(y.cos()) * y)(x).tanh()

    a = new(torch.randn(3))
    g, = grad(c(f)(a).sum(), a, create_graph=True)
    h, = grad(g.sum(), a)
    return g, h


@recomputed("test_nested_checkpoint_two_children")
def nested_two_children(new):
    """A gradient inside a checkpoint inside a gradient."""
    def c(f):
        return lambda *a: checkpoint(f, *a, use_reentrant=False)

    def d(f):
        def run(x):
            if not x.requires_grad:
                x = x.detach().requires_grad_()
            return grad(f(x), x, create_graph=True)[0]
        return run

    def total(f):
        return lambda x: f(x).sum()

    def hc(x):
        return c(lambda t: t.cos().sin().exp())(c(lambda t: t.sin().exp().sin())(x))

    a = new(torch.randn(3, 3))
    return d(total(d(total(c(hc)))))(a), d(total(c(d(total(c(hc))))))(a)


@recomputed("test_nested_checkpoint_kwargs")
def nested_with_keywords(new):
    """Keywords through nested checkpoints."""
    def inner(x, *, k):
        return x.exp() * k

    def outer(x, *, k):
        return checkpoint(inner, x, k=k, use_reentrant=False).sin()

    x, k = new(torch.randn(3)), new(torch.randn(3))
    checkpoint(outer, x, k=k, use_reentrant=False).sum().backward()
    return x.grad, k.grad


@recomputed("test_nested_checkpoint_reentrant_backwards")
def backward_inside_a_checkpoint(new):
    """A backward run inside a checkpointed function."""
    def f(a):
        out = a.sin().exp()
        y = a.detach().requires_grad_()
        inner, = grad((y * y).sum(), y)
        return out * inner

    a = new(torch.randn(3))
    checkpoint(f, a, use_reentrant=False).sum().backward()
    return a.grad


@recomputed("test_checkpoint_detects_non_determinism")
def non_determinism(new):
    """A recomputation that saves something else is an error."""
    first = [True]

    def f(x):
        if first[0]:
            first[0] = False
            return x.exp().sin()
        return x + 1

    x = new(torch.randn(3))
    out = checkpoint(f, x, use_reentrant=False)
    return caught(lambda: out.sum().backward(), 20)


@recomputed("test_checkpoint_valid_reset_on_error")
def reentrant_refuses_grad(new):
    """The re-entrant variant refuses grad(); backward works afterwards."""
    a = new(torch.randn(2, 2))
    b = checkpoint(lambda x: x.exp(), a, use_reentrant=True).sum()
    first = caught(lambda: grad(b, a), 20)
    c = checkpoint(lambda x: x.exp(), a, use_reentrant=True).sum()
    c.backward()
    return first, a.grad


@recomputed("test_checkpointing_without_reentrant_custom_function_works")
def functions_inside(new):
    """A Function inside a checkpoint."""
    class Mul(Function):
        @staticmethod
        def forward(ctx, x, y, z):
            w = x * y * z
            ctx.save_for_backward(x, y, z, w)
            return w

        @staticmethod
        def backward(ctx, g):
            x, y, z, w = ctx.saved_tensors
            return g * w / x, g * w / y, g * w / z

    x, y, z = (new(torch.rand(2) + 1) for _ in range(3))
    checkpoint(lambda *a: Mul.apply(*a), x, y, z, use_reentrant=False).sum().backward()
    return x.grad, y.grad, z.grad


@recomputed("test_checkpointing_without_reentrant_detached_tensor")
def detached_inside(new):
    """A checkpointed function that detaches."""
    x = new(torch.randn(3))
    out = checkpoint(lambda t: t.exp().detach() * t, x, use_reentrant=False)
    out.sum().backward()
    return x.grad


@recomputed("test_checkpointing_non_reentrant_autocast_cpu", tolerance=0.05)
def autocast_state_replayed(new):
    """Recomputation under the forward's autocast state."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x = new(torch.randn(5, 4), dtype=torch.float32)
    dtypes = []

    def f(t):
        y = net(t)
        dtypes.append(y.dtype)
        return y

    with torch.autocast("cpu", torch.bfloat16):
        out = checkpoint(f, x, use_reentrant=False)
    out.float().sum().backward()
    return set(dtypes) == {torch.bfloat16}, x.grad


@recomputed("test_checkpointing_without_reentrant_with_context_fn")
def context_functions(new):
    """context_fn surrounds the forward and the recomputation."""
    log = []

    @contextlib.contextmanager
    def note(name):
        log.append(name)
        yield

    x = new(torch.randn(3))
    out = checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False,
                     context_fn=lambda: (note("forward"), note("recompute")))
    out.sum().backward()
    return log, x.grad


@recomputed("test_checkpoint_graph_execution_group")
def recomputed_twice(new):
    """retain_graph: recomputed for each run."""
    count = [0]

    def f(t):
        count[0] += 1
        return t.sin().exp()

    x = new(torch.randn(3))
    out = checkpoint(f, x, use_reentrant=False).sum()
    out.backward(retain_graph=True)
    out.backward()
    return count[0], x.grad


@recomputed("test_nested_checkpoint_set_early_stop")
def early_stop(new):
    """Recomputation stops when the last value has been saved."""
    counts = []
    for flag in (True, False):
        count = [0]

        def f(t, count=count):
            y = t.sin().exp()
            count[0] += 1
            return y + 1 if count[0] else y

        x = new(torch.randn(3))
        with torch.utils.checkpoint.set_checkpoint_early_stop(flag):
            out = checkpoint(f, x, use_reentrant=False)
        out.sum().backward()
        counts.append(count[0])
    return counts


@recomputed("test_function_with_more_than_one_output")
def selective(new):
    """Selective checkpointing: what the policy keeps is not recomputed."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    x, w = new(torch.randn(3, 3)), new(torch.randn(3, 3))
    out = checkpoint(lambda t: (t @ w).sin() @ w, x, use_reentrant=False,
                     context_fn=lambda: create_selective_checkpoint_contexts(policy))
    out.sum().backward()
    return x.grad, w.grad


# ----- anomaly mode -----
def nan_function(which):
    class MyFunc(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a.sum(0, keepdim=True) + 0 * b.sum()

        @staticmethod
        def backward(ctx, g):
            bad = g.clone().expand(3) * float("nan")
            return (bad, None) if which == 0 else (None, bad)
    return MyFunc


@anomaly("test_anomaly_detect_nan")
def nan_names_the_function(new):
    """A NaN from a backward names the function and the number of the gradient."""
    def run(which):
        x, y = new.randn(3), new.randn(3)
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
            warnings.simplefilter("ignore")
            nan_function(which).apply(x, y).sum().backward()

    x, y = new.randn(3), new.randn(3)
    nan_function(0).apply(x, y).sum().backward()
    return bool(x.grad.isnan().all()), caught(lambda: run(0), 60), caught(lambda: run(1), 60)


@anomaly("test_anomaly_mode_no_check_nan")
def without_the_check(new):
    """check_nan=False lets a NaN pass."""
    x, y = new.randn(3), new.randn(3)
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        warnings.simplefilter("ignore")
        nan_function(0).apply(x, y).sum().backward()
    return x.grad


@anomaly("test_anomaly_grad_warnings")
def any_error_is_reported(new):
    """An error of any kind warns about the forward call."""
    x = new.randn(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.autograd.set_detect_anomaly(True):
            first = caught(lambda: Fails.apply(x).sum().backward())
    return first, any("Error detected in FailsBackward" in str(w.message) for w in seen)


@anomaly("test_nested_anomaly_detect_nan")
def nan_in_the_second_order(new):
    """A NaN in a gradient of a gradient."""
    def run():
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
            warnings.simplefilter("ignore")
            x = new(0.0)
            g, = grad((x.abs() ** 1.5).sum(), x, create_graph=True)
            (g / g * 0 + g).sum().backward()

    return caught(run, 9)


# ----- re-entrant backward -----
def running_backward(depth_left):
    class Nested(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x.detach()
            return x.detach() * 1

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                y = ctx.x.clone().requires_grad_()
                (y * y).sum().backward()
            return g * y.grad
    return Nested


@reentrant("test_simple_reentrant")
def backward_in_backward(new):
    """backward() inside a Function's backward."""
    x = new.randn(2, 2)
    running_backward(1).apply(x).sum().backward()
    return x.grad


@reentrant("test_reentrant_child_error")
def error_of_the_inner_run(new):
    """An error of the inner run reaches the caller of the outer one."""
    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                Fails.apply(torch.ones(2).double().requires_grad_()).sum().backward()
            return g

    x = new.randn(2)
    first = caught(lambda: Outer.apply(x).sum().backward())
    (x * x).sum().backward()
    return first, x.grad


@reentrant("test_deep_reentrant")
def two_thousand_deep(new):
    """2,000 runs inside each other."""
    class Deep(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.x = ctx.x - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x < 0:
                return g
            with torch.enable_grad():
                Deep.apply(ctx.x).sum().backward()
            return g

    v = new.scalar(2000.0)
    Deep.apply(v).sum().backward()
    return v.grad


@reentrant("test_reentrant_with_leaf_variable_hook")
def hook_runs_backward(new):
    """A hook of a leaf runs backward."""
    param = new.scalar(1.0)
    handle = None

    def hook(g):
        handle.remove()
        with torch.enable_grad():
            new_param = param.detach().requires_grad_()
            (g * 2 + new_param).backward(torch.ones(()).double())
            return g + new_param.grad

    handle = param.register_hook(hook)
    (param + 3).backward()
    return param.grad


@reentrant("test_reentrant_with_non_leaf_variable_hook")
def hook_of_an_intermediate_runs_backward(new):
    """A hook of an intermediate runs backward over the same leaf."""
    x = new(1.0, 2.0)
    y = x * 2

    def hook(g):
        with torch.enable_grad():
            (x * x).sum().backward()
        return g

    y.register_hook(hook)
    (y * 3).sum().backward()
    return x.grad


@reentrant("test_reentrant_priority")
def inner_run_first(new):
    """The inner run completes before the outer one goes on."""
    order = []

    class Plain(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            order.append("plain")
            return g

    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.x = ctx.x - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            order.append("reentrant")
            if ctx.x < 0:
                return g
            with torch.enable_grad():
                Inner.apply(ctx.x).backward()
            return g

    a = Plain.apply(new.scalar(6.0))
    b = Inner.apply(new.scalar(9.0))
    (a * b).backward()
    return order


@reentrant("test_reentrant_with_callbacks_both_depths")
def callbacks(new):
    """Callbacks run at the end of their own run, once, also those that add others."""
    log = []

    def last():
        log.append("last")

    def final():
        log.append("final")
        Variable._execution_engine.queue_callback(last)

    def hook(g):
        log.append("hook")
        Variable._execution_engine.queue_callback(final)
        with torch.enable_grad():
            z = torch.ones(2).double().requires_grad_()
            z.register_hook(lambda h: Variable._execution_engine.queue_callback(lambda: log.append("inner")))
            (z * 2).sum().backward()
        log.append("hook ends")

    x = new(1.0, 2.0)
    x.register_hook(hook)
    (x * x).sum().backward()
    return log, caught(lambda: Variable._execution_engine.queue_callback(print), 15)


@reentrant("test_set_sequence_nr")
def later_forward_first(new):
    """Nodes run by descending order of their forward."""
    order = []

    def noting(name):
        class Note(Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, g):
                order.append(name)
                return g
        return Note.apply

    x = new(1.0)
    a = noting("a")(x)
    b = noting("b")(x)
    c = noting("c")(a)
    d = noting("d")(b)
    (c + d).backward()
    return order


@reentrant("test_current_graph_task_id")
def task_numbers(new):
    """A run has a number of its own; outside there is none."""
    ids = []
    x = new(1.0)
    y = x * 1
    y.register_hook(lambda g: ids.append(torch._C._current_graph_task_id()))
    y.backward(retain_graph=True)
    y.backward()
    return torch._C._current_graph_task_id(), ids[1] > ids[0] >= 0


test_saved_tensors = saved.check()
test_checkpoint = recomputed.check()
test_anomaly_mode = anomaly.check()
test_reentrant = reentrant.check()


# ----- what a checkpoint saves -----
def saved_bytes(optimize, use):
    torch.manual_seed(0)
    x = ao.tensor(torch.randn(64, 64))
    w = ao.tensor(torch.randn(64, 64))

    def f(t):
        for _ in range(6):
            t = (t @ w).tanh() * (t @ w).sigmoid()
        return t

    with ao.AutogradGraph(optimize=optimize, allowance=0) as graph:
        out = f(x) if use is None else checkpoint(f, x, use_reentrant=use)
        size = graph.references.saved_bytes()
        out.sum().backward()
    return size, x.grad, w.grad


@pytest.mark.parametrize("variant", [False, True], ids=["non-reentrant", "reentrant"])
@pytest.mark.parametrize("optimize", [False, True])
def test_optimization_does_not_undo_a_checkpoint(optimize, variant):
    plain, *expected = saved_bytes(optimize, None)
    low, *mine = saved_bytes(optimize, variant)
    assert low <= plain / 5
    for a, b in zip(mine, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_values_inside_a_checkpoint_are_not_kept_for_reuse():
    x = ao.tensor(torch.randn(64, 64))
    with ao.AutogradGraph(optimize=True) as graph:
        before = graph.references.kept_bytes
        out = checkpoint(lambda t: t.exp().sin().cos().tanh(), x, use_reentrant=False)
        assert graph.references.kept_bytes == before
        out.sum().backward()
