"""Writes in place, version counters, views and writes through them; complex, sparse, conventions at edges."""

from __future__ import annotations

import io
import pickle

import torch
from torch.autograd import Function, grad

from tests.engine.behaviour import caught, group

inplace = group("in-place and version counter")
views = group("views and in-place on views")
complex_ = group("complex")
sparse = group("sparse")
conventions = group("op-level gradient conventions")
ONES = torch.ones(3).double()


# ----- in place -----
@inplace("test_inplace")
def needed_value_overwritten(new):
    """Only a value that some rule needs makes a write an error."""
    x = new.randn(3)
    y = x * 1
    added = y + y
    y.add_(1)
    fine = grad(added.sum(), x, retain_graph=True)
    z = x * 1
    product = z * z
    z.add_(1)
    return fine, caught(lambda: product.sum().backward(), 30)


@inplace("test_no_unnecessary_save")
def only_what_is_wanted_is_saved(new):
    """x * const saves the constant only: x may be written."""
    x, mu = new.randn(3), torch.full((3,), 2.0).double()
    loss = 0
    y = x * 1
    for _ in range(4):
        y = y * mu
        loss = loss + y.sum()
    loss.backward()
    data = torch.randn(3).double()
    w = new.randn(3)
    out = w * data
    w_grad = caught(lambda: out.sum().backward())
    return x.grad, w.grad, w_grad


@inplace("test_requires_grad_inplace")
def write_makes_require_grad(new):
    """A write with an operand that requires grad makes the target require grad."""
    a, b = new.randn(3, grad=False), new.randn(3)
    a += b
    a.sum().backward()
    return a.requires_grad, b.grad


@inplace("test_no_requires_grad_inplace")
def leaf_switched_on_after_a_write(new):
    """A leaf may be switched on after it was written, and is then protected."""
    a = new.randn(3, grad=False)
    a.add_(5)
    a.requires_grad = True
    a.sum().backward()
    return a.grad, caught(lambda: a.add_(10), 20)


@inplace("test_version_counter")
def versions_are_shared_by_views(new):
    """Writes count, views share the counter, x.data = keeps it."""
    x = torch.randn(1, 2)
    seen = [x._version]
    x.add_(1)
    y = x[0]
    y.add_(1)
    seen += [x._version, y._version, x.detach()._version]
    x.data = torch.randn(1, 2)
    return [*seen, x._version]


@inplace("test_increment_version")
def version_counted_by_hand(new):
    """increment_version invalidates saved values."""
    x = new.randn(2)
    y = x * 1
    z = y.exp() * y
    torch.autograd.graph.increment_version(y)
    return caught(lambda: z.sum().backward(), 30), y._version


@inplace("test_leaf_assignment")
def parts_of_a_result_assigned(new):
    """Assigning to parts of a result."""
    x = new.randn(5)
    y = x.clone()
    y[0:2] = 0
    z = torch.zeros(5).double()
    z[2:] = x[:3] * 2
    (y + z).sum().backward()
    return x.grad, z


@inplace("test_leaf_assignment")
def parts_of_a_leaf_assigned(new):
    """A part of a leaf cannot be assigned."""
    x = new.randn(5)

    def assign():
        x[0] = 1

    return caught(assign, 20)


@inplace("test_out_variant_raises_when_inputs_require_grad")
def out_argument(new):
    """out= refuses arguments that require grad, also as out."""
    a, b, x = new.randn(2, 2), new.randn(2, 2), torch.zeros(2, 2).double()
    first = caught(lambda: torch.mul(a, b, out=x))
    with torch.no_grad():
        torch.mul(a, b, out=x)
    leaf = torch.zeros(2, 2).double().requires_grad_()
    return first, x, caught(lambda: torch.mul(a.detach(), b.detach(), out=leaf), 8)


@inplace("test_index_backward_does_not_save_tensor")
def index_saves_no_values(new):
    """Indexing by tensors saves no values: the source may be written."""
    a = new(1.0, 2.0, 3.0)
    b = torch.zeros([2, 2]).long()
    c = torch.ones([2, 2]).long()
    d = a * 1
    e = d.reshape(3)[b + c]
    d.add_(1)
    e.sum().backward()
    return a.grad


@inplace("test_setitem")
def assignments_by_index(new):
    """Assignment of numbers and tensors by every kind of index."""
    out = []
    for index in (1, slice(1, 3), [0, 2], torch.tensor([3, 1]), (slice(None), 2),
                  (torch.tensor([0, 1]), torch.tensor([2, 2])), None, Ellipsis,
                  torch.tensor([True, False, True, False])):
        x = new.randn(4, 4)
        y = x + 2
        y[index] = 3
        (y * y).sum().backward()
        z, value = new.randn(4, 4), new(torch.ones_like(x.detach()[index]))
        w = z + 2
        w[index] = value
        (w * w).sum().backward()
        out += [x.grad, z.grad, value.grad]
    return out


@inplace("test_setitem_mask")
def assignments_by_mask(new):
    """Assignment by a mask, with a broadcast value."""
    x, value = new.randn(5, 5), new(2.0)
    mask = torch.rand(5, 5) > 0.5
    y = x * 1
    y[mask] = value
    (y * y).sum().backward()
    return x.grad, value.grad


@inplace("test_resize_version_bump")
def resizing(new):
    """resize_ counts as a write, and refuses tensors that require grad."""
    x = torch.rand(4)
    x.resize_(2)
    y = new.randn(4)
    return x._version, caught(lambda: y.resize_(2), 14)


@inplace("test_inplace")
def every_elementwise_form(new):
    """In-place forms of many operators."""
    x, y = new(torch.rand(6) + 0.5), new(torch.rand(6) + 0.5)
    z = x * 1
    for name, args in (("add_", (y,)), ("sub_", (1.0,)), ("mul_", (y,)), ("div_", (2.0,)), ("neg_", ()), ("abs_", ()),
                       ("exp_", ()), ("log_", ()), ("sigmoid_", ()), ("sqrt_", ()), ("sin_", ()), ("tanh_", ()),
                       ("clamp_", (-0.5, 0.9)), ("pow_", (2,)), ("addcmul_", (x, y)),
                       ("lerp_", (y, 0.3)), ("clamp_min_", (0.1,)), ("square_", ()), ("mul_", (0.01,))):
        z = z * 1
        getattr(z, name)(*args)
    z.sum().backward()
    return z, x.grad, y.grad


@inplace("test_inplace")
def fills(new):
    """zero_, fill_, masked_fill_, copy_ and random fills stop or pass gradients."""
    out = []
    for write in (lambda z, y: z.zero_(), lambda z, y: z.fill_(3), lambda z, y: z.fill_(y[0]), lambda z, y: z.copy_(y),
                  lambda z, y: z.masked_fill_(z > 0, 1.5), lambda z, y: z[:2].fill_(0), lambda z, y: z.normal_(),
                  lambda z, y: z.uniform_(0, 1), lambda z, y: z.bernoulli_(0.5)):
        torch.manual_seed(1)
        x, y = new(torch.linspace(-1, 1, 4)), new(torch.linspace(2, 3, 4))
        z = x * 2
        write(z, y)
        ((z * z).sum() + x.sum()).backward()
        out += [z, x.grad, y.grad]
    return out


@inplace("test_inplace")
def foreach_forms(new):
    """torch._foreach in-place forms under no_grad, as optimizers use them."""
    xs = [new(1.0, 2.0), new(3.0, 4.0)]
    for _ in range(2):
        sum((x * x).sum() for x in xs).backward()
        with torch.no_grad():
            torch._foreach_add_(xs, [x.grad for x in xs], alpha=-0.1)
            torch._foreach_zero_([x.grad for x in xs])
    return xs, [x.grad for x in xs]


# ----- views -----
@views("test_inplace_on_view_backprop_base")
def base_after_a_write(new):
    """A write through a view reaches the base."""
    root = new.randn(2, 2)
    x = root.clone()
    v1 = x.narrow(0, 0, 1)
    v1.mul_(2)
    x.sum().backward()
    return root.grad


@views("test_inplace_on_view_backprop_view_of_view")
def sibling_after_a_write(new):
    """A write through one view reaches another."""
    root = new.randn(2, 2)
    x = root.clone()
    v1, v2 = x.narrow(0, 0, 1), x.narrow(0, 0, 1)
    v1.mul_(2)
    v2.sum().backward()
    return root.grad


@views("test_inplace_on_view_of_view")
def view_of_a_view(new):
    """A write through a view of a view."""
    root = new.randn(2, 2)
    x = root.clone()
    v1 = x.narrow(0, 0, 1)
    v2 = v1.narrow(1, 1, 1)
    v2.mul_(2)
    x.sum().backward()
    return root.grad, v1, x


@views("test_inplace_on_view_then_no_grad")
def then_no_grad(new):
    """A write through a view, then one under no_grad."""
    a = new(torch.ones(3, 1))
    b = a * 2
    c = b.view_as(b)
    c[0][0] = 3
    with torch.no_grad():
        c[0][0] = 4
    c.sum().backward()
    return a.grad, c


@views("test_inplace_on_view_multiple_outputs")
def multi_view_outputs(new):
    """Outputs of unbind, split and chunk cannot be written."""
    x = new.randn(4, 4) * 1
    kinds = (lambda t: t.unbind(), lambda t: t.split(2), lambda t: t.chunk(2))
    return [caught(lambda f=f: f(x)[0].mul_(2), 9) for f in kinds]


@views("test_inplace_on_view_of_multiple_output_view")
def view_of_a_multi_view(new):
    """Views of outputs of unbind, split and chunk cannot be written."""
    x = new.randn(4) * 1
    v = x.unbind(0)[0].view_as(x[0])
    return caught(lambda: v.mul_(2), 9)


@views("test_inplace_multiple_output_view_of_view")
def multi_view_of_a_view(new):
    """Multi-views of a view."""
    x = new.randn(4) * 1
    c = x.view_as(x).unbind(0)
    return caught(lambda: c[0].mul_(2), 9)


@views("test_inplace_on_view_makes_base_require_grad")
def base_comes_to_require_grad(new):
    """A write with a gradient through a view of a constant."""
    a = torch.randn(4, 4).double()
    b = new.randn(2, 4)
    v = a.narrow(0, 0, 2)
    before = a.requires_grad
    v.mul_(b)
    a.sum().backward()
    return before, a.requires_grad, v.requires_grad, b.grad


@views("test_inplace_on_view_modify_base")
def view_made_before_the_base_required_grad(new):
    """A view made while its base was a constant follows it."""
    r = new(torch.ones(1))
    x = torch.ones(5).double()
    v = x.select(0, 1)
    before = v.requires_grad, v.grad_fn
    x.add_(r)
    after = v.requires_grad
    v.sum().backward()
    return before, after, r.grad


@views("test_inplace_on_view_modify_base")
def constant_view_used_in_the_graph(new):
    """A view of a constant, used as an operand after its base got a history."""
    r, w = new(torch.ones(1)), new(2.0)
    x = torch.ones(4).double()
    v = x[:2]
    x.mul_(r * 3)
    (v * w).sum().backward()
    return r.grad, w.grad


@views("test_inplace_on_view_gradcheck")
def overlapping_writes(new):
    """Writes through two overlapping views."""
    a, b = new.randn(4, 4), new.randn(2, 2)

    def f(root, b):
        x = root.clone()
        x.narrow(1, 2, 2).narrow(0, 1, 2).mul_(b)
        x.narrow(1, 0, 2).narrow(0, 1, 2).mul_(b)
        return x

    out = f(a, b)
    (out * out).sum().backward()
    return out, a.grad, b.grad


@views("test_inplace_on_view_non_contig")
def not_contiguous(new):
    """Views of transposed memory."""
    root = new(torch.ones(2, 3, 2).select(2, 1).t())
    x = root.clone()
    v1 = x.narrow(0, 0, 1)
    v2 = v1.narrow(1, 1, 1)
    v2.mul_(2)
    x.sum().backward()
    return root.grad


@views("test_inplace_on_view_multi_output_safe")
def unsafe_splits_may_be_written(new):
    """unsafe_split and unsafe_chunk give plain tensors."""
    a = new.randn(3, 3)
    out = []
    for f in (lambda t: t.unsafe_split(1, 0), lambda t: t.unsafe_chunk(3, 0)):
        x = a.clone()
        s = f(x)
        s[0].mul_(s[1])
        out.append(grad(s[0].sum(), a))
    return out


@views("test_inplace_on_view_leaf_errors")
def views_of_leaves(new):
    """A view of a leaf cannot be written."""
    x = new.randn(5)
    return caught(lambda: x.view_as(x).add_(1)), caught(lambda: x[1:3].zero_())


@views("test_inplace_on_view_weak_grad_fn")
def function_of_a_written_view(new):
    """A view written twice."""
    a = new(torch.arange(10.0))
    b = a.narrow(0, 0, 2).clone().view(-1)
    b.relu_()
    c = b.clone()
    c.relu_()
    c.sum().backward()
    return a.grad


@views("test_inplace_on_view_saved_output")
def saved_output_of_a_write(new):
    """An in-place form that saves its output, through a view."""
    root = new.randn(3, 3)
    x = root.clone()
    v = x.view(-1)
    v.sigmoid_()
    x.sum().backward()
    return root.grad


@views("test_inplace_on_view_python")
def function_that_writes_a_view(new):
    """A Function that writes a view of the base."""
    class Add(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.mark_dirty(x)
            x.add_(y)
            return x

        @staticmethod
        def backward(ctx, g):
            return g, g

    a, b = new.randn(4), new.randn(2)
    x = a.clone()
    Add.apply(x.narrow(0, 1, 2), b)
    (x * x).sum().backward()
    return x, a.grad, b.grad


@views("test_autograd_inplace_views_creation_meta")
def views_made_without_grad(new):
    """A view made under no_grad cannot be written under grad."""
    base = new.randn(2, 3) * 1
    with torch.no_grad():
        v = base.view(3, 2)
    first = caught(lambda: v.add_(1))
    with torch.no_grad():
        v.mul_(2)
    base.sum().backward()
    return first, base


@views("test_diagonal_expanded_v")
def expanded_cotangents(new):
    """Expanded cotangents of diagonal, select and slice."""
    value = torch.rand([]).double()
    a = new.randn(4, 4)
    out = []
    for part in (a.diagonal(), a[0], a[1:3, 0]):
        out.append(grad(part, a, value.expand(part.shape)))
    return out


@views("test_view_copy")
def copies_of_views(new):
    """reshape and contiguous where they copy."""
    a = new.randn(3, 4)
    b = a.t().reshape(12)
    c = a.t().contiguous()
    (b * b).sum().backward(retain_graph=True)
    c.pow(3).sum().backward()
    return a.grad


@views("test_autograd_views_codegen")
def every_view(new):
    """Reading through every kind of view after a write to the base."""
    kinds = (lambda t: t.view(8, 2), lambda t: t[1], lambda t: t[:, 1:3], lambda t: t.t(), lambda t: t.transpose(0, 1),
             lambda t: t.unsqueeze(0), lambda t: t.expand(2, 4, 4), lambda t: t.diagonal(), lambda t: t.flatten(),
             lambda t: t.permute(1, 0), lambda t: t.narrow(0, 1, 2), lambda t: t.as_strided((2, 2), (1, 2)),
             lambda t: t.movedim(0, 1), lambda t: t.unfold(0, 2, 1), lambda t: t.swapaxes(0, 1), lambda t: t.squeeze(),
             lambda t: t.view_as(t), lambda t: t.detach().requires_grad_(), lambda t: t.mT, lambda t: t.select(1, 2))
    out = []
    for k, view in enumerate(kinds):
        x = new(torch.linspace(-1, 1, 16).reshape(4, 4))
        y = x * 2
        v = view(y)
        y.mul_(3)
        (v * v).sum().backward()
        out += [k, v, x.grad]
    return out


@views("test_inplace_on_view_backprop_view")
def write_then_read_everything(new):
    """Base, written view and sibling after one write."""
    a = new(2.0, 5.0)
    b = new([3.0])
    res = a.clone()
    view = res.view(2)
    other = res.view(1, 2)
    view[0:1].mul_(b)
    (res.sum() + view.sum() * 2 + other.sum() * 3).backward()
    return a.grad, b.grad


# ----- complex -----
@complex_("test_gradcheck_complex_non_complex_outputs")
def conjugate_convention(new):
    """Gradients of real functions of complex leaves are conjugate Wirtinger derivatives."""
    z = new([1.0 + 2.0j, -0.5 + 0.3j], dtype=torch.complex128)
    w = new([0.5 - 1.0j, 2.0 + 0.1j], dtype=torch.complex128)
    ((z * w).abs() + z.angle() + (z * z).real + w.imag ** 2 + (z / w).exp().real).sum().backward()
    return torch.view_as_real(z.grad), torch.view_as_real(w.grad)


@complex_("test_copy_r_to_c")
def real_copied_into_complex(new):
    """A real value copied into a complex tensor: the real part returns."""
    x, out = new(1.0, 2.0), torch.zeros(2, dtype=torch.complex128)
    out.copy_(x)
    (out * (1 + 2j)).sum().abs().backward()
    return x.grad


@complex_("test_to_r_to_c")
def real_cast_to_complex(new):
    """A cast to complex."""
    x = new(1.0, 2.0)
    (x.to(torch.complex128) * (3 - 1j)).sum().abs().backward()
    return x.grad


@complex_("test_cat_stack_r_to_c")
def real_and_complex_joined(new):
    """cat and stack of real and complex tensors."""
    x = new(1.0, 2.0)
    z = new([1.0 + 2.0j, -0.5 + 0.3j], dtype=torch.complex128)
    (torch.cat([x, z]) * torch.tensor([1j, 2, 3j, 4])).sum().abs().backward()
    first = x.grad.clone(), torch.view_as_real(z.grad.clone())
    torch.stack([z, x]).abs().sum().backward()
    return first, x.grad, torch.view_as_real(z.grad)


@complex_("test_pow_real_negative_base_complex_exponent")
def powers(new):
    """Complex powers of complex bases."""
    z = new([1.0 + 2.0j, -0.5 + 0.3j], dtype=torch.complex128)
    ((z ** (1.5 - 0.5j)).abs() + (2 ** z).real).sum().backward()
    return torch.view_as_real(z.grad)


@complex_("test_named_tensor_for_complex_views")
def complex_views(new):
    """view_as_real, view_as_complex, conj, real and imag."""
    x = new.randn(3, 2)
    z = torch.view_as_complex(x * 1)
    parts = torch.view_as_real(z.conj() * z) * torch.tensor([1.0, 2.0]).double()
    (parts + z.real[:, None] * z.imag[:, None]).sum().backward()
    return x.grad


# ----- sparse -----
@sparse("test_to_sparse_backward")
def to_sparse_and_back(new):
    """to_sparse and to_dense."""
    x = new(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    (x.to_sparse().to_dense() * torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double()).sum().backward()
    return x.grad


@sparse("test_sparse_mm_backward")
def sparse_times_dense(new):
    """A constant sparse matrix times a dense leaf."""
    s = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).double().to_sparse()
    x = new.randn(2, 3)
    torch.sparse.mm(s, x).pow(2).sum().backward()
    return x.grad


@sparse("test_sparse_gather_dim0")
def sparse_embedding_gradient(new):
    """Embedding(sparse=True) gives a sparse .grad, which accumulates."""
    net = torch.nn.Embedding(5, 3, sparse=True).double()
    for _ in range(2):
        net(torch.tensor([1, 3, 1])).pow(2).sum().backward()
    return net.weight.grad.is_sparse, net.weight.grad.to_dense()


# ----- conventions -----
@conventions("test_min_max_median_backprops_to_all_values")
def ties_share(new):
    """Equal extremes share the gradient."""
    out = []
    for f in (torch.min, torch.max, torch.amax, torch.amin, torch.median, torch.nanmedian):
        x = new([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
        f(x).backward()
        out.append(x.grad)
    return out


@conventions("test_scatter_index_reduce_amin_amax_backprops_to_all_values")
def scattered_ties_share(new):
    """scatter_reduce of equal values."""
    out = []
    for how in ("amax", "amin", "sum", "mean", "prod"):
        x, src = new([1.0, 1.0, 0.5]), new([1.0, 1.0, 2.0])
        x.scatter_reduce(0, torch.tensor([0, 0, 2]), src, how).sum().backward()
        out += [x.grad, src.grad]
    return out


@conventions("test_pow_zero_tensor_gradient")
def power_of_zero(new):
    """0 ** 0, 0 ** 2 and 0 ** -1."""
    out = []
    for base, exponent in ((0.0, 0.0), (0.0, 2.0), (0.0, -1.0), (2.0, 0.0)):
        x, p = new(base), new(exponent)
        (x ** p).sum().backward()
        out += [x.grad, p.grad]
    return out


@conventions("test_power_function")
def number_to_a_power(new):
    """A number to the power of a tensor."""
    a, b = torch.tensor([0.0, 0.0, 0.0]).double(), new([-1.0, 0.0, 1.0])
    (a ** b).sum().backward()
    s = new([-1.0, 0.0, 1.0])
    (0 ** s).sum().backward()
    return b.grad, s.grad


@conventions("test_atan2_zero_gradient")
def atan2_at_the_origin(new):
    """atan2(0, 0) has gradient zero."""
    a, b = new(0.0), new(0.0)
    torch.atan2(a, b).backward()
    return a.grad, b.grad


@conventions("test_trace_backward_nonsquare_171704")
def trace_of_a_rectangle(new):
    """trace of matrices that are not square."""
    out = []
    for shape in ((4, 2), (2, 4)):
        x = new.randn(*shape)
        torch.trace(x).backward()
        out.append(x.grad)
    return out


@conventions("test_mv_grad_stride_0")
def expanded_vector(new):
    """mv with an expanded vector."""
    mat, vec = torch.randn(2, 2).double(), new.randn(1)
    (mat @ vec.expand(2)).sum().backward()
    return vec.grad


@conventions("test_where_functional")
def where_forms(new):
    """where with tensors and numbers."""
    x, y, cond = new.randn(5, 5), new.randn(5, 1), torch.rand(5, 5) > 0.5
    (torch.where(cond, x, y) + torch.where(cond, x, 3.0) + torch.where(cond, 2.0, y)).sum().backward()
    return x.grad, y.grad


@conventions("test_where_functional")
def where_hides_nan(new):
    """where keeps the gradient of the other branch zero, not NaN times zero."""
    x = new([0.0, 4.0])
    torch.where(x > 0, x.sqrt(), torch.zeros(2).double()).sum().backward()
    return x.grad


@conventions("test_indexing_duplicates")
def duplicates_accumulate(new):
    """Repeated indices add up."""
    x = new.randn(5, 3)
    idx = torch.tensor([0, 0, 3, 0])
    (x[idx] * torch.arange(12.0).reshape(4, 3).double()).sum().backward()
    return x.grad


@conventions("test_indexing")
def every_index(new):
    """Indices of every kind."""
    x = new.randn(4, 4, 4)
    i = torch.tensor([[1, 0], [2, 3]])
    for index in (1, (1, 2), slice(0, 3, 2), (Ellipsis, 2), (None, 1), (i, i), (slice(None), i),
                  ([1, 2], slice(None), [0, 3]), torch.rand(4) > 0.5, (i, slice(1, 3), 2), -1, (slice(None), -2)):
        x[index].pow(2).sum().backward()
    return x.grad


@conventions("test_advanced_indexing_backwards_memory_format")
def channels_last_index(new):
    """Advanced indices into a channels-last tensor."""
    x = new(torch.rand(2, 3, 4, 4).double())
    y = x.contiguous(memory_format=torch.channels_last)
    y[torch.tensor([1, 0, 1])].sum().backward()
    return x.grad


@conventions("OpInfo: sum")
def sum_saves_nothing(new):
    """sum does not save its input."""
    x = new.randn(3)
    y = x * 1
    z = y.sum()
    y.add_(1)
    z.backward()
    return x.grad


@conventions("OpInfo: linear algebra")
def symmetric_decompositions(new):
    """Eigenvalues, Cholesky, QR and solve."""
    a = new.randn(3, 3)
    s = a @ a.T + 2 * torch.eye(3).double()
    (torch.linalg.eigvalsh(s).pow(2).sum() + torch.linalg.cholesky(s).sum() + torch.linalg.qr(s)[1].abs().sum()
     + torch.linalg.solve(s, a).sum() + torch.linalg.svdvals(s).sum() + torch.linalg.slogdet(s)[1]).backward()
    return a.grad


@conventions("OpInfo: products")
def cumulative_products(new):
    """prod and cumprod at zeros."""
    out = []
    for values in ([2.0, 3.0, 4.0], [0.0, 3.0, 4.0], [0.0, 0.0, 4.0]):
        x = new(values)
        (x.prod() + x.cumprod(0).sum()).backward()
        out.append(x.grad)
    return out


@conventions("test_pickle")
def pickled_leaves(new):
    """Pickling keeps requires_grad."""
    x = torch.randn(3, requires_grad=True)
    y = pickle.loads(pickle.dumps(x))
    return y.requires_grad, bool((x == y).all())


@conventions("test_pickle")
def pickled_results(new):
    """Pickling a result takes its value: a leaf where it is read, of torch's own type."""
    y = new.randn(3) * 2
    read = pickle.loads(pickle.dumps(y))
    file = io.BytesIO()
    torch.save(y, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    return [(type(t) is torch.Tensor, t.is_leaf, t.requires_grad, t.detach()) for t in (read, loaded)]


@conventions("broadcast_tensors")
def broadcast_tensors_of_the_right_shape(new):
    """A tensor that already has the common shape is returned itself."""
    x, y = new.randn(3, 4), new.randn(4)
    a, b = torch.broadcast_tensors(x, y)
    torch.distributions.Normal(x, 1.0).loc.sum().backward()
    return a is x, b is y, b.is_leaf, a.is_leaf, x.grad


test_inplace = inplace.check()
test_views = views.check()
test_complex = complex_.check()
test_sparse = sparse.check()
test_conventions = conventions.check()
