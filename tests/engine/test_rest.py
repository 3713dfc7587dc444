"""Behaviours at the edges of the other modules' groups."""

from __future__ import annotations

import contextlib
import gc
import warnings

import torch
from torch.autograd import Function, Variable, grad, gradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.autograd.graph import allow_mutation_on_saved_tensors, get_gradient_edge
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.engine.behaviour import caught, group
from tests.engine.functions import Double

mutation = group("saved tensors: allow_mutation_on_saved_tensors")
functions = group("custom Function, continued")
inference = group("inference_mode, continued")
recomputed = group("checkpoint, continued")
checks = group("gradcheck / gradgradcheck (torch's own, inside a context)")
rest = group("edges, views, callbacks, sparse gathers")


# ----- allow_mutation_on_saved_tensors -----
def mutated(program):
    """The program under the mode; what it returns, and how much was cloned."""
    with allow_mutation_on_saved_tensors() as ctx:
        out = program()
        return out, len(ctx.cloned) > 0


@mutation("test_basic")
def write_of_a_saved_value(new):
    """A saved value that is overwritten is cloned first."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        out = (b ** 2).sin()
        b.sin_()
        out.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_views")
def write_of_a_view_of_it(new):
    """A write through a view of a saved value."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b.view_as(b)
        out = (b ** 2).sin()
        c.sin_()
        out.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_save_base_and_modify_view")
def saved_base_written_view(new):
    """The base is saved, a view is written."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b[:1]
        out = b ** 2
        c *= 10
        out.sum().backward()
        return a.grad, b
    return mutated(program)


@mutation("test_save_view_modify_base")
def saved_view_written_base(new):
    """A view is saved, the base is written."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b[:]
        out = (c ** 2).sum()
        b *= 2
        out.backward()
        return a.grad
    return mutated(program)


@mutation("test_double_backward")
def write_and_second_order(new):
    """A second derivative of overwritten values."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        out = (b ** 2).sin()
        b.sin_()
        g, = grad(out.sum(), a, create_graph=True)
        h, = grad(g.sum(), a)
        return g.detach(), h
    return mutated(program)


@mutation("test_saved_same_tensor_many_times")
def saved_many_times(new):
    """One value saved by several operations."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c, d, e = b ** 2, b ** 2, b ** 3
        b.sin_()
        (c + d + e).sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_saved_same_tensor_different_versions")
def saved_at_several_versions(new):
    """One tensor saved between writes."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b ** 2
        b.sin_()
        d = b ** 2
        b.sin_()
        (c + d).sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_with_out_variant")
def overwritten_by_out(new):
    """A saved constant overwritten by out=."""
    a, b = new(torch.rand(2, 3)), torch.rand(2, 3).double()

    def program():
        d = a * b
        torch.sin(b.clone(), out=b)
        d.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_inplace_foreach")
def overwritten_by_foreach(new):
    """Saved constants overwritten by a foreach form."""
    a, b = new(torch.rand(3)), [torch.rand(3).double(), torch.rand(3).double()]

    def program():
        d = a * b[0] + a * a * b[1]
        torch._foreach_add_(b, 1.0)
        d.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_disallow_nesting")
def not_nested(new):
    """The mode does not nest."""
    def program():
        with allow_mutation_on_saved_tensors(), allow_mutation_on_saved_tensors():
            pass
    return caught(program, 20), new(1.0)


# ----- functions -----
@functions("test_legacy_function_deprecation_exception")
def old_style_functions(new):
    """Functions with methods that are not static are refused."""
    class Old(Function):
        def forward(self, x):
            return x

        def backward(self, g):
            return g

    return caught(lambda: Old()(new(1.0)), 12)


@functions("test_custom_function_vmap_defaults")
def no_vmap_rule_by_default(new):
    """A Function has no vmap rule of its own by default."""
    Double.apply(new(1.0)).backward()
    return Double.generate_vmap_rule, hasattr(Double, "vmap")


@functions("test_custom_function_mark_output_view_of_intermediate")
def view_of_an_intermediate(new):
    """An output that is a view of a temporary."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone().view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = new(1.0, 2.0)
    F.apply(x).sum().backward()
    return x.grad


@functions("test_clear_saved_tensors_on_access_double_access_error")
def cleared_values_read_twice(new):
    """Values cleared on access cannot be read again."""
    class F(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            ctx.saved_tensors
            return g * ctx.saved_tensors[0]

    x = new(1.0, 2.0)
    return isinstance(caught(lambda: F.apply(x).sum().backward()).type(), RuntimeError), x.grad


@functions("test_autograd_multiple_views_python")
def several_views_returned(new):
    """Several views returned by one Function cannot be written."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2], x[2:]

        @staticmethod
        def backward(ctx, a, b):
            return torch.cat([a, b])

    x = new.randn(4)
    a, b = F.apply(x.clone())
    refused = caught(lambda: a.mul_(2), 9)
    (a * 2 + b).sum().backward()
    return refused, x.grad


@functions("test_inplace_not_requires_grad")
def view_of_a_constant(new):
    """A view of a constant beside an argument that requires grad."""
    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a.view_as(a)

        @staticmethod
        def backward(ctx, g):
            return g, g

    a = torch.randn(3).double()
    b = new.randn(3)
    out = F.apply(a, b)
    out.sum().backward()
    return out.requires_grad, b.grad


@functions("test_custom_function_saving_mutated_view_no_leak")
def saving_a_written_view(new):
    """A Function that saves and writes a view."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            view = x.clone()[:2]
            view.mul_(2)
            ctx.save_for_backward(view)
            return view * 1

        @staticmethod
        def backward(ctx, g):
            out = torch.zeros(4).double()
            out[:2] = g * 2 + 0 * ctx.saved_tensors[0]
            return out

    x = new.randn(4)
    F.apply(x).sum().backward()
    return x.grad


@functions("test_inplace_on_view_undefined_grad_output")
def undefined_through_a_written_view(new):
    """One output of a Function that writes is not used."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x, x.detach() * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 0

    a = new.randn(3)
    b = a.clone()
    F.apply(b)[0].sum().backward()
    return a.grad


@functions("test_gc_in_destructor")
def collected_during_backward(new):
    """The collector runs while a graph is differentiated."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            gc.collect()
            return g * 2

    x = new(1.0)
    F.apply(F.apply(x)).backward()
    gc.collect()
    return x.grad


# ----- inference mode -----
def inference_leaf():
    with torch.inference_mode():
        return torch.ones(2, 3)


@inference("test_inference_mode_inf_tensor_in_inf_mode_inplace_op")
def written_inside(new):
    """Inference tensors may be written inside."""
    with torch.inference_mode():
        c = torch.ones(2, 3)
        c.mul_(2)
        return c.is_inference(), c.clone()


@inference("test_inference_mode_inf_tensor_in_inf_mode_view_op")
def viewed_inside(new):
    """Views of inference tensors are inference tensors."""
    with torch.inference_mode():
        v = torch.ones(2, 3).view(-1)
        return v.is_inference(), v.requires_grad, v.is_leaf


@inference("test_inference_mode_inf_tensor_in_normal_mode_functional_op")
def used_outside(new):
    """Outside, operations on inference tensors give normal tensors."""
    r = inference_leaf().add(2)
    return r.is_inference(), r.requires_grad, r.is_leaf


@inference("test_mix_inference_and_normal_tensor_functional_op")
def mixed_where_nothing_is_saved(new):
    """A sum of a normal leaf and an inference tensor."""
    x = new.randn(2, 3)
    (x + inference_leaf()).sum().backward()
    return x.grad


@inference("test_mix_inference_and_normal_tensor_inplace_op")
def inference_operand_of_a_write(new):
    """A normal tensor written with an inference tensor."""
    x = new.randn(2, 3)
    a = x.clone()
    a.add_(inference_leaf())
    a.sum().backward()
    return x.grad, caught(lambda: x.clone().mul_(inference_leaf()), 20)


@inference("test_normal_tensor_inplace_output_in_inference_mode")
def normal_values_written_inside(new):
    """Normal values written inside keep their history's gradient."""
    x = new.randn(2, 3)
    a = x.clone()
    with torch.inference_mode():
        a.add_(1)
    (a * 1).sum().backward()
    return x.grad, a.requires_grad


# ----- checkpoint -----
@recomputed("test_checkpoint_warns_if_use_reentrant_not_passed_explcitly")
def variant_not_named(new):
    """A warning, or an error, where use_reentrant is not given."""
    x = new.randn(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with contextlib.suppress(ValueError):
            checkpoint(torch.exp, x)
    return any("use_reentrant" in str(w.message) for w in seen), x


@recomputed("test_checkpointing_without_reentrant_saved_object_identity")
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


@recomputed("test_nested_checkpoint_non_tensor_inputs_and_outputs")
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


@recomputed("test_bad_inputs")
def bad_policies(new):
    """A policy must be a callable or a list of operators."""
    return caught(lambda: create_selective_checkpoint_contexts([2]), 10), caught(
        lambda: create_selective_checkpoint_contexts("x"), 10), new(1.0)


@recomputed("test_policy_with_state")
def policy_with_a_counter(new):
    """A policy with state counts forward and recomputation alike."""
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


@recomputed("test_function_with_non_tensor_output")
def selective_with_other_results(new):
    """Selective checkpointing of an operation whose result is no tensor."""
    x = new(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def f(t):
        return t.sin() * int(torch.sum(t.detach()).item() > 0)

    out = checkpoint(f, x, use_reentrant=False,
                     context_fn=lambda: create_selective_checkpoint_contexts([torch.ops.aten.sin.default]))
    out.sum().backward()
    return x.grad


@recomputed("test_output_already_has_autograd_meta")
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


@recomputed("test_custom_autograd_ac_early_stop")
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


# ----- torch's gradcheck -----
@checks("test_gradcheck_single_input")
def single_input(new):
    """A single tensor instead of a tuple, fast and slow."""
    x = new.randn(3)
    return [gradcheck(lambda t: t.mul(5) * t, x, fast_mode=fast) for fast in (False, True)]


@checks("test_gradcheck_nondeterministic")
def not_deterministic(new):
    """A backward that is not reproducible is found."""
    class Jitter(Function):
        @staticmethod
        def forward(ctx, x, jitter=0.0):
            ctx.jitter = jitter
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + ctx.jitter * torch.randn_like(g), None

    x = new.randn(3)
    return caught(lambda: gradcheck(lambda t: Jitter.apply(t, 1e-2), (x,)), 5)


@checks("test_gradcheck_jacobian_mismatch")
def wrong_gradient(new):
    """A wrong gradient is found, with the type of error."""
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = new.randn(3)
    return (caught(lambda: gradcheck(Wrong.apply, (x,)), 8), gradcheck(Wrong.apply, (x,), raise_exception=False),
            issubclass(GradcheckError, RuntimeError))


@checks("test_gradcheck_output_shape_or_dtype_depend_on_values")
def output_that_depends_on_values(new):
    """A function whose output's shape depends on its input's values."""
    x = new(torch.ones(3))

    def f(t):
        return torch.cat([t, t]) if bool((t >= 1).all()) else t

    return caught(lambda: gradcheck(f, (x,), fast_mode=False), 20)


@checks("test_gradcheck_get_numerical_jacobian")
def numerical_jacobian(new):
    """The numerical Jacobian of a function of two inputs."""
    from torch.autograd.gradcheck import get_numerical_jacobian
    x, y = new.randn(2), new.randn(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = caught(lambda: get_numerical_jacobian(lambda i: (2 * i[0] + i[1],), (x, y)))
        return found if not isinstance(found, tuple) else [j.round(decimals=4) for j in found]


@checks("test_gradcheck_adjusted_atol_complex_inputs")
def complex_inputs(new):
    """gradcheck of a complex function in fast mode."""
    z = new([1.0 + 2.0j, -0.5 + 0.3j], dtype=torch.complex128)
    return gradcheck(lambda t: t.exp() * t.conj(), (z,), fast_mode=True)


@checks("test_gradcheck_check_no_differentiable_outputs")
def no_differentiable_output(new):
    """A function without a differentiable output has numerical derivative zero."""
    x = new.randn(3)
    return gradcheck(lambda t: torch.tensor([1.0]), (x,)), caught(lambda: gradcheck(lambda t: t.detach() * 2, (x,)), 10)


# ----- the rest -----
@rest("test_grad_to_node_inplace")
def edges_and_writes(new):
    """An edge taken before a write belongs to the value before it."""
    x = new.randn(2)
    y = x * 2
    before = get_gradient_edge(y)
    y.mul_(3)
    after = get_gradient_edge(y)
    out = y.sum()
    return grad(out, before, retain_graph=True), grad(out, after, retain_graph=True), grad(out, y)


@rest("test_gradient_edge_graph_ownership")
def edge_keeps_the_graph(new):
    """An edge keeps what is needed to differentiate it."""
    x = new.randn(2)

    def make():
        return torch.autograd.graph.get_gradient_edge((x.exp() * x).sum())

    edge = make()
    gc.collect()
    return grad(edge, x)


@rest("test_select_expanded_v")
def select_with_expanded_cotangent(new):
    """select with an expanded cotangent."""
    a, v = new.randn(4, 4), torch.rand([]).double()
    return grad(a.select(0, 1), a, v.expand(4))


@rest("test_slice_expanded_v")
def slice_with_expanded_cotangent(new):
    """slice with an expanded cotangent."""
    a, v = new.randn(4, 4), torch.rand(1, 4).double()
    return grad(a[1:3], a, v.expand(2, 4))


@rest("test_reentrant_with_callbacks_depth_0")
def callback_of_the_outer_run(new):
    """A callback queued by the outer run."""
    count = [0]

    def hook(g):
        Variable._execution_engine.queue_callback(lambda: count.__setitem__(0, count[0] + 1))
        with torch.enable_grad():
            z = torch.ones(2).double().requires_grad_()
            (z * z).sum().backward()

    x = new(1.0, 2.0)
    x.register_hook(hook)
    (x * x).sum().backward()
    return count, x.grad


@rest("test_reentrant_with_callbacks_depth_1")
def callback_of_the_inner_run(new):
    """A callback queued by the inner run."""
    log = []

    def inner(g):
        Variable._execution_engine.queue_callback(lambda: log.append("inner ends"))

    def hook(g):
        with torch.enable_grad():
            z = torch.ones(2).double().requires_grad_()
            z.register_hook(inner)
            (z * z).sum().backward()
        log.append("hook ends")

    x = new(1.0, 2.0)
    x.register_hook(hook)
    (x * x).sum().backward()
    return log


@rest("test_where_scalar")
def where_with_numbers(new):
    """where(cond, tensor, number), twice differentiated."""
    x, cond = new.randn(5), torch.tensor([True, False, True, True, False])
    y = torch.where(cond, x.exp(), 4.0) + torch.where(cond, 2.0, x.sin())
    g, = grad(y.sum(), x, create_graph=True)
    return y, g, grad(g.sum(), x)


def gathered(new, shape, dim, index):
    x = new.randn(*shape) if shape else new.scalar(1.5)
    torch.gather(x, dim, index, sparse_grad=True).pow(2).sum().backward()
    return x.grad.is_sparse, x.grad.to_dense()


@rest("test_sparse_gather_dim0")
def sparse_gather_0(new):
    """gather(sparse_grad=True) along dimension 0."""
    return gathered(new, (4, 3), 0, torch.tensor([[0, 1, 2], [3, 3, 0]]))


@rest("test_sparse_gather_dim1")
def sparse_gather_1(new):
    """Along dimension 1."""
    return gathered(new, (4, 3), 1, torch.tensor([[0], [1], [2], [0]]))


@rest("test_sparse_gather_dim_neg")
def sparse_gather_last(new):
    """Along the last dimension."""
    return gathered(new, (4, 3), -1, torch.tensor([[0, 0], [1, 2], [2, 1], [0, 0]]))


@rest("test_sparse_gather_ind_scalar")
def sparse_gather_scalar_index(new):
    """With a zero-dimensional index."""
    return gathered(new, (4,), 0, torch.tensor(2))


@rest("test_sparse_gather_x_scalar")
def sparse_gather_scalar_source(new):
    """From a zero-dimensional tensor."""
    return gathered(new, (), 0, torch.tensor([0]))


@rest("test_sparse_gather_both_scalar")
def sparse_gather_scalars(new):
    """Both zero-dimensional."""
    return gathered(new, (), 0, torch.tensor(0))


test_mutation = mutation.check()
test_functions = functions.check()
test_inference_mode = inference.check()
test_checkpoint = recomputed.check()
test_gradcheck = checks.check()
test_the_rest = rest.check()
