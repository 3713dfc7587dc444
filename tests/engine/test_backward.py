"""backward() and grad(): roots, inputs, accumulation, repetition."""

from __future__ import annotations

import warnings

import torch
from torch.autograd import backward, grad

from tests.engine.behaviour import caught, group, messages

api = group("backward / grad API")
accumulation = group("accumulation into .grad")
repeated = group("retain_graph and repeated backward")
leaves = group("leaf semantics, requires_grad, .data")
edges = group("gradient edges and introspection")


# ----- backward / grad API -----
@api("test_backward")
def chain(new):
    """Backward through products, powers and quotients, with a cotangent."""
    x, y, z = new.randn(5, 5), new(torch.rand(5, 5) + 0.1), new.randn(5, 5)
    q = x + (2 * x * z + 4) * x / y * (2 / y)
    q.backward(torch.ones(5, 5, dtype=torch.float64))
    return x.grad, y.grad, z.grad


@api("test_backward")
def scalar_root(new):
    """A scalar root needs no cotangent."""
    x = new(1.0, 2.0)
    (x * x).sum().backward()
    return x.grad


@api("test_backward_with_scalar_input")
def zero_dimensional(new):
    """Zero-dimensional leaves."""
    x, y = new.scalar(2.0), new.scalar(3.0)
    (x ** 2 + y * x + y ** 2).backward(retain_graph=True)
    return x.grad, y.grad


@api("test_multi_backward")
def two_roots(new):
    """Two independent roots with a cotangent each."""
    x, y = new.randn(3), new.randn(3)
    gx, gy = new.randn(3, grad=False), new.randn(3, grad=False)
    backward([x * 1, y * 2], [gx, gy])
    return x.grad, y.grad


@api("test_multi_backward_no_grad")
def two_roots_one_without_graph(new):
    """A root without a graph is refused even beside one with a graph."""
    x, y = new.randn(3), new.randn(3, grad=False)
    z, q = x + y, y * 2
    return caught(lambda: backward([z, q], [torch.ones(3).double()] * 2)), x.grad


@api("test_duplicate_backward_root")
def same_root_twice(new):
    """The same root twice adds both cotangents."""
    a, b = new.randn(3), new.randn(3)
    x, g1, g2 = a * b, new.randn(3, grad=False), new.randn(3, grad=False)
    backward([x, x], [g1, g2])
    return a.grad, b.grad


@api("test_dependent_backward")
def root_feeds_root(new):
    """A root that another root depends on."""
    x = new.randn(4)
    y = x ** 2
    z = y ** 3
    gy, gz = new.randn(4, grad=False), new.randn(4, grad=False)
    backward([y, z], [gy, gz])
    return x.grad


@api("test_backward_with_inputs")
def only_named_inputs(new):
    """backward(inputs=) accumulates into these leaves alone."""
    x, y = new.randn(2, 2), new.randn(2, 2)
    f = x ** 2 + y * x + y ** 2
    f.backward(torch.ones(2, 2).double(), inputs=[x], retain_graph=True)
    before = y.grad
    f.backward(torch.ones(2, 2).double(), inputs=y)
    return x.grad, before, y.grad


@api("test_backward_with_inputs")
def empty_inputs(new):
    """backward(inputs=[]) is an error."""
    x = new(1.0)
    return caught(lambda: (x * 2).backward(inputs=[]))


@api("test_backward_with_nonleaf_inputs")
def nonleaf_input(new):
    """backward(inputs=non-leaf) fills its .grad and stops there."""
    x = new.randn(2, 2)
    y = x * 1
    f = (x ** 2 + y * x + y ** 2)
    f.backward(torch.ones(2, 2).double(), inputs=[x, y])
    return x.grad, y.grad, y.retains_grad


@api("test_backward_with_nonleaf_inputs")
def unreachable_nonleaf_input(new):
    """An input that the root does not depend on stays without .grad."""
    x, y = new.randn(2), new.randn(2)
    z, w = x * 2, y * 2
    z.sum().backward(inputs=[x, w])
    return x.grad, w.grad


@api("test_backward_no_grad")
def no_history_in_no_grad(new):
    """A result computed under no_grad cannot be differentiated."""
    x = new.randn(2)
    with torch.no_grad():
        y = x + 2
    return caught(lambda: y.backward(torch.ones(2).double())), y.requires_grad


@api("test_grad")
def grad_and_hessian_product(new):
    """grad() with create_graph, then backward through the gradient."""
    x, y = new.randn(2, 2), new.randn(2, 2)
    z = x ** 2 + y * x + y ** 2
    z.backward(torch.ones(2, 2).double(), create_graph=False, retain_graph=True)
    x.grad = None
    gx, gy = grad(z, (x, y), torch.ones(2, 2).double(), create_graph=True)
    hv, = grad((gx * 2 + gy).sum(), x, retain_graph=True)
    return gx, gy, hv, x.grad, y.grad


@api("test_grad")
def cotangent_of_another_shape(new):
    """A cotangent must have the root's shape."""
    x = new.randn(2, 2)
    return caught(lambda: grad(x * 2, x, torch.ones(2).double()))


@api("test_grad_nonleaf")
def gradient_steps_stay_differentiable(new):
    """Ascent steps made of gradients carry gradients to what made them."""
    x0, y = new.randn(2, 2), new.randn(2, 2)
    x = x0
    for _ in range(3):
        g, = grad(x ** 2 + y * x + y ** 2, x, torch.ones(2, 2).double(), create_graph=True)
        x = x + 0.05 * g
    before = x0.grad, y.grad
    x.sum().backward()
    return x, before, x0.grad, y.grad


@api("test_grad_nonleaf_many_outputs")
def nonleaf_among_many_outputs(new):
    """grad() with respect to one output of a split leaves .grad alone."""
    x = new.randn(4, 2)
    a, b = x.split(2)
    out = (a + b).sum() + a.prod()
    g, = grad(out, a)
    return g, x.grad


@api("test_grad_unreachable")
def unused_input(new):
    """An input that was not used is an error, or None with allow_unused."""
    x, y = new(1.0), new(1.0)
    z, w = x * 2, y * 2
    return (caught(lambda: grad(x * 2, [x, y])), grad(x * 2, [x, y], allow_unused=True),
            grad(x * 2, [z, w], allow_unused=True))


@api("test_grad_unreachable_discovery")
def unneeded_branch_does_not_run(new):
    """Only the nodes between roots and inputs run."""
    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("must not run")

    x, y = new(1.0), new(1.0)
    out = Boom.apply(x) * y
    return grad(out, y), caught(lambda: out.sum().backward())


@api("test_grad_batched_grad")
def batched_cotangents(new):
    """is_grads_batched: one gradient for each slice of the cotangent."""
    x = new.randn(2, 2)
    out = x.clone()
    eye = torch.eye(4, dtype=torch.float64).reshape(4, 2, 2)
    jacobian, = grad(out, x, eye, is_grads_batched=True, retain_graph=True)
    wrong = caught(lambda: grad(out, x, torch.ones(2, 2).double(), is_grads_batched=True))
    return jacobian, wrong


@api("test_grad_empty_inputs")
def no_inputs(new):
    """grad() needs inputs."""
    x = new(1.0)
    return caught(lambda: grad(2 * x, [], grad_outputs=torch.tensor([1.0]).double()))


@api("test_grad_materialize_grads")
def missing_gradients_as_zeros(new):
    """materialize_grads gives zeros instead of None."""
    x, a = new.scalar(0.5), new.scalar(1.0)
    y = x * a
    dydx = grad(y, x, create_graph=True)
    none = grad(dydx, x, create_graph=True, allow_unused=True)
    zeros = grad(dydx, x, create_graph=True, allow_unused=True, materialize_grads=True)
    third = grad(zeros, x, materialize_grads=True)
    clash = caught(lambda: grad(y, x, allow_unused=False, materialize_grads=True))
    return none, zeros, third, clash


@api("test_unused_grad_requires_grad_with_materialize")
def materialized_zeros_and_their_flag(new):
    """Materialized zeros require grad under create_graph only."""
    x, u = new.randn(3), new.randn(3)
    y = (x ** 2).sum()
    g = grad(y, [x, u], create_graph=True, materialize_grads=True)
    z = x * 2
    h = grad(z.sum(), [x, u], materialize_grads=True)
    return [t.requires_grad for t in (*g, *h)], g, h


@api("test_sharded_grad")
def gradients_in_shards(new):
    """Gradients of intermediates in groups, then one backward from all of them."""
    xs = [new.randn(3) for _ in range(6)]
    mids = [x * i + x * x for i, x in enumerate(xs)]
    loss = sum(v * i for i, v in enumerate(mids)).sum()
    gs = [g for k in range(0, 6, 2) for g in grad(loss, mids[k:k + 2])]
    backward(mids, gs)
    return [x.grad for x in xs]


@api("test_unused_output")
def one_chunk_used(new):
    """The gradient of a split of which one part is used."""
    x = new.randn(6, 2)
    parts = x.chunk(3)
    (parts[1] * 2).sum().backward()
    return x.grad


@api("test_isolated_node")
def integer_path(new):
    """Indices of a maximum carry no gradient."""
    x, y = new.randn(4, 4), new.randn(4, 4)
    a = x + y
    b = torch.max(a, 1, True)[1].repeat(1, 4).double()
    (b + a).sum().backward()
    return x.grad, b.requires_grad


@api("test_unrelated_inputs")
def unrelated_leaf(new):
    """A leaf that was not used keeps .grad None."""
    x, y = new.randn(2), new.randn(2)
    (x ** 2).sum().backward()
    return x.grad, y.grad


@api("test_non_differentiable_ops")
def comparisons_have_no_graph(new):
    """Comparisons and integer results never require grad."""
    x = new.randn(4)
    return (x > 0).requires_grad, x.argmax().requires_grad, x.long().requires_grad, (x == x).requires_grad


@api("test_variable_traverse")
def long_lived_root(new):
    """A root whose inputs were dropped still differentiates."""
    def make():
        x = new.randn(3)
        return x, ((x * 2) + 1).exp()

    x, y = make()
    y.sum().backward()
    return x.grad


@api("test_backward_respects_torch_function")
def functions_and_methods_agree(new):
    """torch.autograd.backward and Tensor.backward do the same."""
    x, y = new.randn(3), new.randn(3)
    (x * x).sum().backward()
    torch.autograd.backward((y * y).sum())
    return x.grad, y.grad


@api("test_multi_backward")
def more_cotangents_than_roots(new):
    """As many cotangents as roots."""
    x = new(1.0, 2.0)
    return caught(lambda: backward([x * 2], [torch.ones(2).double(), torch.ones(2).double()])), x.grad


@api("test_grad")
def tuple_and_single_arguments(new):
    """Single tensors and sequences are accepted alike; the result is a tuple."""
    x = new(1.0, 2.0)
    return grad((x * 3).sum(), x), grad([(x * 3).sum()], [x]), grad(((x * 3).sum(),), (x, x))


@api("test_backward")
def root_is_a_leaf(new):
    """backward() of a leaf itself."""
    x = new(2.0)
    x.backward()
    return x.grad, grad(x, x)


@api("test_backward")
def mixed_precision_cotangent(new):
    """A cotangent of another floating dtype is cast to the root's."""
    x = new(1.0, 2.0)
    (x * 2).backward(torch.ones(2, dtype=torch.float32))
    return x.grad


@api("test_integer_outputs")
def diamond(new):
    """The cotangents of both paths of a diamond are summed."""
    x = new(1.5, -0.5)
    a = x.sin()
    (a * a.exp() + a).sum().backward()
    return x.grad


@api("test_backward")
def same_operand_twice(new):
    """One tensor in both operands."""
    x = new(1.5, -0.5)
    (x * x + x / x + x @ x).sum().backward()
    return x.grad


# ----- accumulation into .grad -----
@accumulation("test_accumulate_grad")
def in_place_without_create_graph(new):
    """A second backward adds into the same .grad object; with create_graph into a new one."""
    x = new.randn(3)
    g0 = torch.ones(3).double()
    y = x + 2
    y.backward(g0, retain_graph=True)
    first, keep = x.grad, x.grad.clone()
    y.backward(g0, retain_graph=True)
    same_object = x.grad is first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y.backward(g0, create_graph=True)
    return same_object, x.grad is first, keep, first, x.grad


@accumulation("test_accumulate_grad_with_zero_numel_grad")
def empty_gradient(new):
    """Tensors without elements."""
    x = new(torch.rand(4, 0))
    y = new(torch.rand(4, 1))
    (x + y).sum().backward()
    return x.grad, y.grad


@accumulation("test_backward_copy")
def no_sharing_of_cotangents(new):
    """Leaves whose cotangents are one tensor get memory of their own."""
    a, b, c = new.randn(3), new.randn(3), new.randn(3, grad=False)
    add1 = a + b
    add2 = add1 + c
    (add2 + add1).sum().backward()
    a.grad.add_(1)
    return a.grad, b.grad


@accumulation("test_backward_copy")
def user_cotangent_is_not_kept(new):
    """The caller's cotangent is neither kept nor written."""
    x = new.randn(3)
    g = torch.ones(3).double()
    (x + 1).backward(g)
    x.grad.mul_(5)
    return g, x.grad


@accumulation("test_input_buffer_accum")
def user_cotangent_is_not_written(new):
    """Summing inside the graph never writes into what the caller gave."""
    x = new.randn(3)
    g = torch.ones(3).double()
    a, b = x * 1, x * 2
    backward([a, b, a], [g, g, g])
    return g, x.grad


@accumulation("test_grad_assignment")
def assigning_grad(new):
    """What may be assigned to .grad."""
    def assign(value):
        x.grad = value

    x = new.randn(5, 5)
    good = torch.ones(5, 5).double()
    assign(good)
    kept = x.grad is good
    return (kept, caught(lambda: assign(torch.ones(2, 2).double())), caught(lambda: assign(0)),
            caught(lambda: assign(torch.ones(5, 5))), caught(lambda: assign(x)), x.grad)


@accumulation("test_strided_leaf_grad_layout")
def layout_of_grad(new):
    """.grad has the strides of a dense leaf, else row-major ones."""
    x = new(torch.rand(3, 4).double().t())
    if x.stride() != (1, 4):
        x = x.detach().t().contiguous().t().requires_grad_()
    (x * 2).sum().backward()
    y = new.randn(4, 4)
    (y.t() * torch.rand(4, 4).double()).sum().backward()
    return x.grad, y.grad, y.grad.stride()


@accumulation("test_tensor_grad_warnings")
def grad_of_nonleaf_warns(new):
    """Reading .grad of a non-leaf warns, unless it retains it."""
    x = new.randn(3)
    y = x * 2
    first = messages(lambda: y.grad)
    y.retain_grad()
    return [w is UserWarning for w in first], messages(lambda: y.grad), messages(lambda: x.grad)


@accumulation("test_accumulate_grad_tensor_reference")
def sparse_and_dense_added(new):
    """Sparse and dense gradients accumulate in either order, in place and under create_graph."""
    out = []
    for start, create in ((True, False), (True, True), (False, False), (False, True)):
        w = new(torch.randn(4, 2).double())
        dense = torch.full((4, 2), 2.0).double()
        w.grad = dense.to_sparse() if start else dense
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (w * 3).sum().backward(create_graph=create)
        out.append(w.grad.to_dense() if w.grad.is_sparse else w.grad)
    return out


@accumulation("test_accumulate_grad_tensor_reference")
def grad_set_beforehand(new):
    """Backward adds to a .grad that the user has set."""
    x = new.randn(3)
    x.grad = torch.full((3,), 2.0).double()
    held = x.grad
    (x * 3).sum().backward()
    return x.grad, held is x.grad


@accumulation("test_no_grad_copy")
def detached_cotangents(new):
    """A Function that returns one tensor for two arguments does not make their .grad one."""
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, g

    a, b = new.randn(4), new.randn(4)
    Twice.apply(a, b).sum().backward()
    a.grad.zero_()
    return a.grad, b.grad


@accumulation("test_accumulate_grad")
def set_to_none_between(new):
    """.grad = None starts anew."""
    x = new(1.0, 2.0)
    (x * 2).sum().backward()
    x.grad = None
    (x * 3).sum().backward()
    return x.grad


@accumulation("test_accumulate_grad")
def accumulates_over_steps(new):
    """Gradients of several losses add up."""
    x = new(1.0, 2.0)
    for k in range(3):
        (x * k).sum().backward()
    return x.grad


@accumulation("test_type_conversions")
def dtype_follows_the_leaf(new):
    """.grad has the leaf's dtype although the computation was wider."""
    x = new([1.0, 2.0], dtype=torch.float32)
    (x.double() * 3).sum().backward()
    return x.grad


# ----- retain_graph and repeated backward -----
@repeated("test_backward_twice_with_saved_values")
def second_run_needs_saved_values(new):
    """A second backward over freed values raises."""
    x = new.randn(3)
    y = (x * x).sum()
    y.backward()
    return caught(y.backward), x.grad


@repeated("test_backward_twice_retained_graph_with_saved_values")
def retained_then_freed(new):
    """retain_graph allows one more; the one that frees is the last."""
    x = new.randn(3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, caught(y.backward)


@repeated("test_backward_twice_with_saved_values")
def products_with_numbers(new):
    """A number in a product or quotient is saved as a tensor, elsewhere it is not."""
    def twice(f):
        x = new(0.5, -1.0, 2.0)
        y = f(x).sum()
        y.backward()
        return caught(y.backward, 30), x.grad

    return [twice(f) for f in (
        lambda x: x * 2, lambda x: 2 * x, lambda x: x / 3, lambda x: x * 1, lambda x: x.clone().mul_(2),
        lambda x: x * 2 + x * 2, lambda x: x + 2, lambda x: 2 - x, lambda x: -x, lambda x: x.lerp(x, 0.25),
        lambda x: x % 2, lambda x: x.mean(), lambda x: x.clone().div_(2), lambda x: torch.rsub(x, 2, alpha=3),
    )]


@repeated("test_backward_twice_without_saved_values")
def twins_with_numbers(new):
    """Equal products with a number, differentiated one after the other."""
    x = new(0.5, -1.0, 2.0)
    y, z = (x * 2).sum(), (x * 2).sum()
    y.backward()
    z.backward()
    return x.grad, caught(z.backward, 30), caught(y.backward, 30)


@repeated("test_backward_twice_without_saved_values")
def second_run_without_saved_values(new):
    """Where nothing was saved, a second backward works."""
    x, y = new.randn(3), new.randn(3)
    c = (x + y - x - x).sum()
    c.backward()
    c.backward()
    return x.grad, y.grad


@repeated("test_backward_twice_retained_graph_without_saved_values")
def retained_without_saved_values(new):
    """retain_graph where nothing was saved."""
    x = new.randn(3)
    c = (x + x).sum()
    c.backward(retain_graph=True)
    c.backward()
    return x.grad


@repeated("test_backward_twice_with_saved_values")
def shared_part_freed(new):
    """Two losses over one freed part: the second raises and changes nothing."""
    x = new.randn(3)
    shared = x.exp()
    a, b = (shared * 2).sum(), (shared * shared).sum()
    a.backward()
    before = x.grad.clone()
    return caught(b.backward), before, x.grad


@repeated("test_backward_twice_with_saved_values")
def shared_part_retained(new):
    """Two losses over one retained part."""
    x = new.randn(3)
    shared = x.exp()
    (shared * 2).sum().backward(retain_graph=True)
    (shared * shared).sum().backward()
    return x.grad


@repeated("test_backward_twice_with_saved_values")
def grad_then_backward(new):
    """grad() frees, unless told to retain or to create a graph."""
    x = new.randn(3)
    y = x.exp().sum()
    g, = grad(y, x, retain_graph=True)
    h, = grad(y, x, create_graph=True)
    y.backward()
    return g, h, x.grad, caught(lambda: grad(y, x))


# ----- leaf semantics -----
@leaves("test_requires_grad")
def what_requires_grad(new):
    """Results require grad when an operand does."""
    x, y, z = new.randn(5, grad=False), new.randn(5, grad=False), new.randn(5)
    a = x + y
    b = a + z
    b.backward(torch.ones(5).double())
    return a.requires_grad, b.requires_grad, a.is_leaf, b.is_leaf, z.is_leaf, x.grad, z.grad


@leaves("test_requires_grad_")
def switching_on(new):
    """requires_grad_ returns its tensor; only leaves can be switched off."""
    x = new.randn(5, grad=False)
    y = new.randn(5)
    r = x.requires_grad_()
    z = y * 2
    return r is x, x.requires_grad, y.requires_grad_(False).requires_grad, caught(lambda: z.requires_grad_(False))


@leaves("test_set_requires_grad_only_for_floats")
def only_floats(new):
    """Integers cannot require grad."""
    i = torch.ones(2, dtype=torch.long)
    return caught(i.requires_grad_, 20), caught(lambda: torch.ones(2, dtype=torch.int32, requires_grad=True), 12)


@leaves("test_requires_grad_factory")
def factories(new):
    """Factories honour requires_grad."""
    x = torch.ones(3, requires_grad=True)
    y = torch.ones_like(x, requires_grad=True)
    (x * y).sum().backward()
    return x.grad, y.grad


@leaves("test_requires_grad")
def switched_on_after_use(new):
    """Switching a leaf on does not reach back to earlier uses."""
    x, y = new(1.0, 2.0, grad=False), new(3.0, 4.0)
    a = x * y
    x.requires_grad_()
    (a + x * y).sum().backward()
    return x.grad, y.grad


@leaves("test_requires_grad")
def switched_off_after_use(new):
    """A leaf switched off takes no part in later operations."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    x.requires_grad_(False)
    b = x * y
    b.sum().backward()
    return b.requires_grad, x.grad, y.grad


@leaves("test_set_data_self_requires_grad")
def assigning_data(new):
    """x.data = ... keeps the object and its flag."""
    a, b = new.scalar(1.0), new.scalar(2.0, grad=False)
    a.data = b
    (a * 3).backward()
    return a, a.requires_grad, a.is_leaf, a.grad


@leaves("test_set_data_preserve_pyobj")
def optimizer_style_update(new):
    """Updates through .data do not enter the graph."""
    x = new(1.0, 2.0)
    (x * x).sum().backward()
    x.data.add_(x.grad, alpha=-0.1)
    y = (x * x).sum()
    x.grad = None
    y.backward()
    return x, x.grad, x.is_leaf


@leaves("test_attribute_deletion")
def deleting_grad(new):
    """del x.grad removes it."""
    x = new.randn(3)
    (x * 2).sum().backward()
    had = x.grad is not None
    del x.grad
    return had, x.grad


@leaves("test_requires_grad")
def detached_leaf(new):
    """A detached tensor starts a new graph."""
    x = new(1.0, 2.0)
    y = (x * 2).detach().requires_grad_()
    (y * 3).sum().backward()
    return x.grad, y.grad, y.is_leaf


# ----- gradient edges and introspection -----
@edges("test_grad_to_node")
def grad_to_edge(new):
    """An edge may stand for an input."""
    from torch.autograd.graph import get_gradient_edge
    x = new.randn(2)
    y = x * 2
    out = (y * y + x).sum()
    return (grad(out, get_gradient_edge(x), retain_graph=True), grad(out, get_gradient_edge(y), retain_graph=True),
            grad(out, [get_gradient_edge(y), x]))


@edges("test_gradient_edge_output")
def edge_as_root(new):
    """An edge may stand for a root."""
    from torch.autograd.graph import get_gradient_edge
    x = new.randn(2)
    edge = get_gradient_edge((x * x).sum())
    g, = grad([edge], [x], [torch.tensor(2.0).double()])
    return g, x.grad


@edges("test_backward_to_node")
def backward_to_edges(new):
    """backward(inputs=edges)."""
    from torch.autograd.graph import get_gradient_edge
    x, y = new.randn(2), new.randn(2)
    a = x * 1
    out = (a * y).sum()
    backward(out, inputs=(get_gradient_edge(x), y), retain_graph=True)
    return x.grad, y.grad


@edges("test_grad_to_node_multi")
def edges_of_several_outputs(new):
    """Edges to single outputs of a multi-output operation."""
    from torch.autograd.graph import get_gradient_edge
    x = new.randn(4)
    a, b = x.split(2)
    out = (a * 2 + b * b).sum()
    return grad(out, [get_gradient_edge(a), get_gradient_edge(b)])


@edges("test_grad_to_node_materialize")
def edges_cannot_be_materialized(new):
    """materialize_grads refuses an edge without a gradient."""
    from torch.autograd.graph import get_gradient_edge
    x, y = new.randn(2), new.randn(2)
    edge = get_gradient_edge(y * 2)
    out = (x * x).sum()
    return (grad(out, edge, allow_unused=True, retain_graph=True),
            caught(lambda: grad(out, [x, edge], materialize_grads=True), 20))


@edges("test_next_functions")
def functions_form_a_chain(new):
    """grad_fn and next_functions lead from a result to its leaves."""
    x, y = new.randn(5), new.randn(5)
    a = x + y
    b = a + 5
    nodes = a.grad_fn.next_functions
    return (a.grad_fn is not None, [n[0].name().endswith("AccumulateGrad") or n[0].name().endswith("Grad") for n in
            nodes], b.grad_fn.next_functions[0][0] is a.grad_fn, nodes[0][0].variable is x, x.grad_fn)


@edges("test_autograd_print_tensor")
def repr_shows_the_function(new):
    """repr says requires_grad=True or names the function."""
    x = new(1.0)
    y = x + 1
    return "requires_grad=True" in repr(x), "grad_fn=<Add" in repr(y), "grad_fn" in repr(y.detach())


@edges("test_current_node")
def name_of_the_node(new):
    """A node knows its name."""
    x = new(1.0)
    named = ((torch.exp, "Exp"), (torch.sin, "Sin"), (torch.tanh, "Tanh"))
    return [f(x).grad_fn.name().startswith(n) for f, n in named]


test_backward_and_grad = api.check()
test_accumulation = accumulation.check()
test_repeated = repeated.check()
test_leaves = leaves.check()
test_edges = edges.check()
