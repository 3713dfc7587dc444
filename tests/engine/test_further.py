"""Behaviours of torch's own suite that need something unusual: sparse values, odd views, torch's gradcheck."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd import Function, grad, gradcheck
from torch.autograd.graph import allow_mutation_on_saved_tensors, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from tests.engine.behaviour import caught, group

leaves = group("leaves and .grad, continued")
dirty = group("custom Function, continued once more")
checks = group("gradcheck / gradgradcheck (torch's own, inside a context), continued")
inference = group("inference_mode and views")
sparse = group("sparse values")
further = group("hooks, checkpoints, saved tensors, operators, continued")


# ----- leaves and .grad -----
@leaves("test_grad_dtype")
def gradient_of_another_dtype(new):
    """grad_dtype: .grad has the dtype that the leaf asks for"""
    x = torch.randn(3, dtype=torch.float32).requires_grad_()
    before = x.grad_dtype
    x.grad_dtype = torch.float64
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    return str(before), x.grad.dtype, x.grad


@leaves("test_set_data_tensorimpl_type")
def data_of_another_layout(new):
    """A dense tensor takes no sparse .data"""
    x = new.randn(1, 2)
    s = torch.sparse_coo_tensor(torch.zeros([1, 1]), torch.ones([1]))

    def assign():
        x.data = s
    return caught(assign, 20)


@leaves("test_no_grad_copy_sparse")
def sparse_gradient_for_two(new):
    """One sparse tensor returned for two arguments is not one .grad"""
    class Sparse(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.shape = a.shape
            return (a + b).sum()

        @staticmethod
        def backward(ctx, g):
            i = torch.tensor([[0, 1]])
            s = torch.sparse_coo_tensor(i, torch.ones(2, *ctx.shape[1:], dtype=g.dtype) * g, ctx.shape)
            return s, s

    a, b = new.randn(3, 2), new.randn(3, 2)
    Sparse.apply(a, b).backward()
    a.grad._values().mul_(7)
    return a.grad.to_dense(), b.grad.to_dense()


# ----- custom Function -----
class DoubleInplace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, x

    @staticmethod
    def backward(ctx, g1, g2):
        return g1 * 2 + g2 * 2


@dirty("test_return_duplicate_inplace")
def written_and_returned_twice(new):
    """A written input returned twice; leaves and views refused"""
    x = new.randn(3)
    a, b = DoubleInplace.apply(x.clone())
    (a + b).sum().backward()
    of_a_leaf = caught(lambda: DoubleInplace.apply(x), 20)
    return a is b, x.grad, of_a_leaf, caught(lambda: DoubleInplace.apply(x.clone()[0]), 0)


@dirty("test_custom_function_mark_dirty_not_differentiable")
def written_without_gradient(new):
    """mark_dirty where nothing requires grad returns the tensor itself"""
    x = new(1.0, 2.0, grad=False)
    a, b = DoubleInplace.apply(x)
    return a is x, b is x, a.requires_grad, x


@dirty("test_custom_function_return_view_in_nograd")
def view_returned_under_no_grad(new):
    """A view made by a Function under no_grad cannot be written under grad mode"""
    class Alias(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:]

        @staticmethod
        def backward(ctx, g):
            return g

    x = new.randn(2)
    with torch.no_grad():
        out, expected = Alias.apply(x), x[:]
    return out.detach(), caught(lambda: out.zero_(), 0), caught(lambda: expected.zero_(), 0)


@dirty("test_custom_function_preserve_torch_function_when_return_as_is")
def class_of_what_is_returned(new):
    """A subclass with a torch function keeps its class through a Function that returns it as it is"""
    class Custom(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    x = torch.randn(2).as_subclass(Custom)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                 # a context says once that it does not ask the torch function
        return type(Same.apply(x)).__name__


# ----- gradcheck -----
@checks("test_gradcheck_backward_mul_by_grad_output")
def backward_that_forgets_its_cotangent(new):
    """A backward that does not multiply by its cotangent is found out"""
    class Forgets(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return torch.ones_like(g) * 3

    x = new.randn(3)
    return gradcheck(Forgets.apply, (x,), raise_exception=False), caught(lambda: gradcheck(Forgets.apply, (x,)), 20)


@checks("test_gradcheck_check_forward_or_backward_only")
def neither_direction(new):
    """A check of neither direction is refused"""
    x = new.randn(2)
    return caught(lambda: gradcheck(torch.sin, (x,), check_forward_ad=False, check_backward_ad=False), 30)


@checks("test_gradcheck_test_outputs")
def outputs_without_gradient(new):
    """Complex and integer outputs beside a differentiable one"""
    x = new.randn(3)
    integers = gradcheck(lambda v: (v * 2, (v > 0).to(torch.int64)), (x,))
    return integers, gradcheck(lambda v: torch.complex(v, v * 3), (x,))


@checks("test_gradcheck_get_analytical_jacobian")
def analytical_and_numerical(new):
    """A backward that depends on chance is told apart from a wrong one"""
    class Chance(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * (1 + torch.rand_like(g))

    x = new.randn(2)
    return caught(lambda: gradcheck(Chance.apply, (x,)), 0)


# ----- inference mode and views -----
@inference("test_inference_mode_inf_tensor_in_normal_mode_view_op")
def view_of_an_inference_tensor(new):
    """A view of an inference tensor, taken outside"""
    with torch.inference_mode():
        s = torch.ones(1, 2, 3, dtype=torch.float64)
    v = s.view(2, 3)
    return v.is_inference(), v.requires_grad, v


@inference("test_mix_inference_and_normal_tensor_view_op")
def view_as_an_inference_tensor(new):
    """A leaf viewed as the shape of an inference tensor, and the other way round"""
    with torch.inference_mode():
        s = torch.ones(2, 3, dtype=torch.float64)
    x = new.randn(6)
    y = x.clone().view_as(s)
    (y * 2).sum().backward()
    return y.requires_grad, x.grad, s.view_as(y).requires_grad


@inference("test_inference_mode_handle_direct_view_on_rebase")
def direct_view_made_inside_and_written(new):
    """Writing, under grad mode, a view that was made inside"""
    x = new.randn(2, 3)
    a = x.clone()
    with torch.inference_mode():
        v = a.view(6)
    return caught(lambda: v.add_(2), 20)


# ----- sparse -----
class Fixed(Function):
    """A gradient of the caller's."""

    @staticmethod
    def forward(ctx, x, gradient):
        ctx.save_for_backward(gradient)
        return (x * 0).sum()

    @staticmethod
    def backward(ctx, g):
        gradient, = ctx.saved_tensors
        return gradient, None


@pytest.fixture(autouse=True)
def _checked_sparse_values():
    """Without a choice torch warns at the first sparse tensor of a process."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def sparse_values(seed):
    generator = torch.Generator().manual_seed(seed)
    i = torch.tensor([[0, 3, 4]])
    return torch.sparse_coo_tensor(i, torch.randn(3, 2, generator=generator, dtype=torch.float64), (6, 2))


@sparse("test_sparse_backward")
def sparse_and_dense_in_every_order(new):
    """Sparse, dense and sparse gradients of one leaf summed inside the graph"""
    dense = torch.randn(6, 2, dtype=torch.float64)
    out = []
    for order in ((0, 1), (0, 2), (2, 0), (0, 2, 1), (2, 0, 1), (0, 1, 2)):
        x = new.randn(6, 2)
        parts = [sparse_values(0), sparse_values(1), dense]
        total = Fixed.apply(x, parts[order[0]])
        for k in order[1:]:
            total = total + Fixed.apply(x, parts[k])
        total.backward()
        out += [x.grad.is_sparse, x.grad.to_dense() if x.grad.is_sparse else x.grad]
    return out


@sparse("test_sparse_mask_autograd")
def values_under_a_mask(new):
    """sparse_mask passes gradients to what the mask covers"""
    x = torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    mask = torch.eye(3, dtype=torch.float64).to_sparse()
    x.sparse_mask(mask).to_dense().sum().backward()
    return x.grad


@sparse("test_sparse_ctor_getter_backward")
def values_of_a_sparse_tensor(new):
    """Values put into a sparse tensor and read out of it, coalesced"""
    v = torch.randn(3, dtype=torch.float64).requires_grad_()
    s = torch.sparse_coo_tensor(torch.tensor([[0, 2, 2]]), v, (4,))
    s.coalesce().values().mul(torch.tensor([2.0, 3.0], dtype=torch.float64)).sum().backward()
    return v.grad


# ----- the rest -----
@further("test_tensor_hooks_inplace_over_view")
def hooks_of_a_view_whose_base_is_written(new):
    """A hook on a view stays with the value before a write through its sibling"""
    x = new.randn(4)
    seen = []
    base = x.clone()
    first, second = base[:2], base[2:]
    second.register_hook(lambda g: seen.append(g.clone()))
    (second * 3).sum().backward(retain_graph=True)
    second.mul_(2)
    (base * 5).sum().backward()
    return seen[0], x.grad, first.detach()


@further("test_nested_checkpoint_set_early_stop_no_recompution_needed")
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


@further("test_can_only_trigger_recompute_once")
def recomputed_only_once(new):
    """Values kept by a policy are gone after one recomputation"""
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE

    x = new.randn(3)
    out = checkpoint(lambda t: t.sin().cos().exp(), x, use_reentrant=False,
                     context_fn=lambda: create_selective_checkpoint_contexts(policy))
    out.sum().backward(retain_graph=True)
    return x.grad, caught(lambda: out.sum().backward(), 20)


@further("test_checkpointing_without_reentrant_dataparallel")
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


@further("test_backward_out_of_context")
def mutation_mode_left_before_backward(new):
    """Backward outside the mode that kept the clones, and inside another one"""
    x = new.randn(2, 3)
    with allow_mutation_on_saved_tensors():
        out = (x ** 2).sum()
    first = caught(out.backward, 25)
    with allow_mutation_on_saved_tensors():
        out = (x ** 2).sum()
    with allow_mutation_on_saved_tensors():
        second = caught(out.backward, 25)
    return first, second


@further("test_with_math_views")
def mutation_of_conjugate_views(new):
    """A saved conjugate whose base is written under the mode"""
    x = torch.tensor([1.0 + 1j, 2.0 - 3j], dtype=torch.complex128).requires_grad_()
    with allow_mutation_on_saved_tensors():
        b = x.clone()
        c = b.conj()
        out = (c ** 2).abs()
        b.sin_()
        out.sum().backward()
    return x.grad


@further("test_saved_tensor_hooks_extra_enter_during_bw_no_leak")
def hooks_entered_by_an_unpack_hook(new):
    """An unpack hook that installs hooks of its own, which end with it"""
    seen = []

    def unpack(t):
        with saved_tensors_hooks(lambda v: v, lambda v: v):
            seen.append("unpacked")
            return t * 1.0

    x = new.randn(3)
    with saved_tensors_hooks(lambda v: v, unpack):
        y = x.sin() * x
    y.sum().backward()
    packs = []
    with saved_tensors_hooks(lambda v: packs.append(1) or v, lambda v: v):
        x.exp()
    return x.grad, len(seen) > 0, len(packs) > 0


@further("test_set_multithreading_enabled_as_context_manager_and_function")
def one_thread_for_backward(new):
    """The switch for the threads of backward, as a context and as a function"""
    x = new.randn(2)
    with torch.autograd.set_multithreading_enabled(False):
        inside = torch._C._is_multithreading_enabled()
        x.sin().sum().backward()
    torch.autograd.set_multithreading_enabled(False)
    after = torch._C._is_multithreading_enabled()
    torch.autograd.set_multithreading_enabled(True)
    return inside, after, torch._C._is_multithreading_enabled(), x.grad


@further("test_scatter_index_reduce_prod_gradgrad_error")
def second_derivative_of_a_product_with_zeros(new):
    """Products of scattered values: the second derivative at zeros is refused"""
    x, src = new(2.0, 0.0, 3.0), new(1.0, 0.0)
    index = torch.tensor([0, 1])
    out = x.scatter_reduce(0, index, src, "prod")
    g, = grad(out.sum(), src, create_graph=True)
    return g.detach(), caught(lambda: grad(g.sum(), x), 20)


@further("test_lobpcg", tolerance=1e-4)
def extreme_eigenvalue(new):
    """The largest eigenvalue by lobpcg"""
    torch.manual_seed(3)
    a = torch.randn(6, 6, dtype=torch.float64)
    x = new((a @ a.T + 6 * torch.eye(6)).tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, _ = torch.lobpcg((x + x.T) / 2, k=1, niter=200)
    values.sum().backward()
    return values.detach(), x.grad


@further("test_autograd_multiple_dispatch_registrations")
def operator_with_a_rule_for_each_device(new):
    """torch's own test operators, whose rule depends on the dispatch key"""
    x = new.randn(3, 3)
    torch._test_autograd_multiple_dispatch(x).sum().backward()
    y = new.randn(3, 3)
    torch._test_autograd_multiple_dispatch(y, True).sum().backward()
    return x.grad, y.grad


@further("test_autograd_composite_implicit_and_dispatch_registration")
def view_operator_with_a_rule_for_each_device(new):
    """The same with a view, written afterwards"""
    x = new.randn(3, 3)
    v = torch._test_autograd_multiple_dispatch_view(x.clone())
    (v * 2).sum().backward()
    return v.detach(), x.grad


@further("test_per_dispatch_key_input_saving")
def sum_and_coalesced_sum(new):
    """An input saved by one variant of an operator only"""
    x = new.randn(3)
    y = torch.relu(x.clone())
    y.mul_(2)
    return caught(lambda: y.sum().backward(), 20), x.grad


@further("test_inplace_on_view_multi_output_unsafe")
def parts_that_may_be_written(new):
    """unsafe_split, unsafe_chunk and unsafe_split_with_sizes allow writes"""
    out = []
    for split in (lambda t: t.unsafe_split(1), lambda t: t.unsafe_split_with_sizes((1, 1, 1)),
                  lambda t: t.unsafe_chunk(3)):
        a = new.randn(3, 3)
        parts = split(a + a)
        s1, s2, s3 = parts
        s1.mul_(s2)
        s1.sum().backward()
        out += [a.grad, s3.detach()]
    return out


test = leaves.check()
test_function = dirty.check()
test_gradcheck = checks.check()
test_inference = inference.check()
test_sparse = sparse.check()
test_further = further.check()
