"""Misuse: the types and texts of torch, and a graph that is unharmed afterwards."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch.autograd import Function, grad

import autograd_opt as ao
from tests.engine.behaviour import caught, group

misuse = group("misuse and error messages")


def case(name, letters=30, torch_test=""):
    """A misuse whose error is the observation; the docstring is its name."""
    def add(program):
        def run(new):
            return [caught(lambda: program(new), letters)]
        run.__name__ = program.__name__
        run.__doc__ = name
        misuse(torch_test or "error_messages: " + name)(run)
        return program
    return add


@case("backward, root has no graph", torch_test="test_backward_badcalls")
def no_graph(new):
    torch.ones(1).backward()


@case("backward, root not scalar, no gradient")
def not_scalar(new):
    (new.randn(3) * 2).backward()


@case("backward, complex scalar root", torch_test="test_complex_scalar_backward")
def complex_root(new):
    (new(1.0) * 0.5j).backward()


@case("grad_output of the wrong shape")
def wrong_shape(new):
    x = new.randn(3)
    grad(x * 2, x, torch.ones(2))


@case("grad_output complex for a real output")
def complex_cotangent(new):
    x = new.randn(3)
    grad(x * 2, x, torch.ones(3, dtype=torch.complex128))


@case("two grad_outputs for one output (no error)")
def two_cotangents(new):
    x = new.randn(3)
    return grad([x * 2], [x], [torch.ones(3).double(), torch.ones(3).double()])


@case("grad_output not a tensor")
def cotangent_no_tensor(new):
    torch.autograd.backward([new.randn(3) * 2], [3])


@case("grad w.r.t. nothing")
def no_inputs(new):
    grad(new(1.0) * 2, [])


@case("backward(inputs=[])")
def no_backward_inputs(new):
    (new(1.0) * 2).backward(inputs=[])


@case("grad w.r.t. a tensor without requires_grad", torch_test="test_grad_badcalls")
def constant_input(new):
    grad(new(1.0) * 2, torch.ones(1))


@case("grad w.r.t. an unused tensor")
def unused(new):
    grad(new(1.0) * 2, new(1.0))


@case("materialize_grads with allow_unused=False")
def clash(new):
    x = new(1.0)
    grad(x * 2, x, allow_unused=False, materialize_grads=True)


@case("is_grads_batched, wrong leading shape")
def batched_shape(new):
    x = new.randn(2, 2)
    grad(x.clone(), x, torch.ones(2, 2).double(), is_grads_batched=True)


@case("second backward, graph freed")
def twice(new):
    x = new.randn(3)
    y = (x * x).sum()
    y.backward()
    y.backward()


@case("second backward without saved values (no error)")
def twice_without_saved(new):
    x = new.randn(3)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    return x.grad


@case("saved tensor modified in place")
def saved_modified(new):
    y = new.randn(3) * 1
    z = y * y
    y.add_(1)
    z.sum().backward()


@case("saved output modified in place")
def output_modified(new):
    z = new.randn(3).exp()
    w = z * 1
    z.mul_(2)
    w.sum().backward()


@case("leaf modified in place")
def leaf_modified(new):
    new.randn(3).add_(1)


@case("view of a leaf modified in place")
def leaf_view_modified(new):
    x = new.randn(3)
    x.view_as(x).add_(1)


@case("output of a multi-view function modified in place")
def multi_view(new):
    (new.randn(3, 3) * 1).unbind()[0].mul_(2)


@case("view made in no_grad modified in place")
def no_grad_view(new):
    x = new.randn(3) * 1
    with torch.no_grad():
        v = x[:]
    v.add_(1)


class View(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g


@case("view made in a custom Function modified in place")
def function_view(new):
    caught_error = None
    v = View.apply(new.randn(3) * 1)
    try:
        v.add_(1)
    except RuntimeError as error:
        caught_error = "This view was created inside a custom Function" in str(error)
    return caught_error


@case("out= with an input that requires grad")
def out_argument(new):
    torch.mul(new.randn(2), new.randn(2), out=torch.zeros(2, dtype=torch.float64))


@case("requires_grad_ on an integer tensor")
def integer_leaf(new):
    torch.ones(2, dtype=torch.long).requires_grad_()


@case("requires_grad_(False) on a non-leaf")
def nonleaf_off(new):
    (new.randn(2) * 2).requires_grad_(False)


@case("numpy() on a tensor that requires grad")
def numpy(new):
    new.randn(2).numpy()


@case("detach_ on a view")
def detach_view(new):
    (new.randn(4) * 1).narrow(0, 0, 2).detach_()


@case("x.grad = 0")
def grad_number(new):
    new.randn(2).grad = 0


@case("x.grad of another shape")
def grad_shape(new):
    new.randn(2).grad = torch.ones(3, dtype=torch.float64)


@case("x.grad of another dtype")
def grad_dtype(new):
    new.randn(2).grad = torch.ones(2, dtype=torch.float32)


@case("x.grad = x")
def grad_itself(new):
    x = new.randn(2)
    x.grad = x


@case("register_hook on a tensor without requires_grad")
def hook_constant(new):
    torch.ones(2).register_hook(lambda g: g)


@case("retain_grad on a tensor without requires_grad")
def retain_constant(new):
    torch.ones(2).retain_grad()


@case("post-accumulate hook on a non-leaf")
def post_nonleaf(new):
    (new.randn(2) * 2).register_post_accumulate_grad_hook(lambda t: None)


@case("post-accumulate hook returns a value")
def post_returns(new):
    x = new.randn(2)
    x.register_post_accumulate_grad_hook(lambda t: t.grad)
    x.sum().backward()


@case("tensor hook changes the shape")
def hook_shape(new):
    y = new.randn(2) * 2
    y.register_hook(lambda g: torch.ones(3, dtype=torch.float64))
    y.sum().backward()


@case("tensor hook returns no tensor")
def hook_number(new):
    y = new.randn(2) * 2
    y.register_hook(lambda g: 3)
    y.sum().backward()


@case("deepcopy of a non-leaf")
def deepcopy_nonleaf(new):
    copy.deepcopy(new.randn(2) * 2)


def function(forward, backward):
    return type("Case", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


@case("custom Function: too many gradients")
def many_gradients(new):
    function(lambda ctx, x: x * 2, lambda ctx, g: (g, g)).apply(new.randn(2)).sum().backward()


@case("custom Function: too few gradients")
def few_gradients(new):
    function(lambda ctx, x, y: x * y, lambda ctx, g: g).apply(new.randn(2), new.randn(2)).sum().backward()


@case("custom Function: gradient of the wrong shape", torch_test="test_invalid_gradients")
def gradient_shape(new):
    function(lambda ctx, x: x * 2, lambda ctx, g: torch.ones(7)).apply(new.randn(2)).sum().backward()


@case("custom Function: gradient not a tensor")
def gradient_number(new):
    function(lambda ctx, x: x * 2, lambda ctx, g: 3).apply(new.randn(2)).sum().backward()


@case("custom Function: no backward")
def no_backward(new):
    type("Case", (Function,), {"forward": staticmethod(lambda ctx, x: x.clone())}).apply(new.randn(2)).sum().backward()


@case("custom Function: no forward")
def no_forward(new):
    type("Case", (Function,), {"backward": staticmethod(lambda ctx, g: g)}).apply(new.randn(2))


@case("custom Function: once_differentiable differentiated twice")
def once_twice(new):
    x = new.randn(2)
    once = torch.autograd.function.once_differentiable(lambda ctx, g: g * 2)
    g, = grad((function(lambda ctx, x: x * 2, once).apply(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()


def dirty(ctx, x):
    x.add_(1)
    ctx.mark_dirty(x)
    return x


@case("custom Function: mark_dirty on a leaf")
def dirty_leaf(new):
    function(dirty, lambda ctx, g: g).apply(new.randn(2))


@case("custom Function: mark_dirty on a view of a leaf")
def dirty_leaf_view(new):
    x = new.randn(2)
    function(dirty, lambda ctx, g: g).apply(x.view_as(x))


@case("op without a derivative", torch_test="test_not_implemented_grad")
def no_derivative(new):
    x = new.randn(2)
    torch.igamma(x.abs(), x.abs()).sum().backward()


@case("no second derivative")
def no_second_derivative(new):
    lp = new(torch.randn(5, 2, 4).double().log_softmax(2))
    args = torch.tensor([[1, 2], [2, 3]]), torch.tensor([5, 5]), torch.tensor([2, 2])
    g, = grad(torch.nn.functional.ctc_loss(lp, *args), lp, create_graph=True)
    g.sum().backward()


@case("anomaly mode, NaN", 14)
def nan_in_backward(new):
    with torch.autograd.set_detect_anomaly(True):
        (new(0.0).sqrt() * 0).sum().backward()


@case("inference tensor saved for backward")
def inference_saved(new):
    with torch.inference_mode():
        c = torch.ones(2, dtype=torch.float64)
    c * new.randn(2)


@case("inference tensor modified outside")
def inference_written(new):
    with torch.inference_mode():
        c = torch.ones(2)
    c.add_(1)


@case("version of an inference tensor")
def inference_version(new):
    with torch.inference_mode():
        c = torch.ones(2)
    return c._version


@case("pack hook modifies its input")
def pack_writes(new):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
        (new.randn(2) * 1).exp()


@case("unpack hook returns no tensor")
def unpack_number(new):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 1):
        y = new.randn(2).sin()
    y.sum().backward()


@case("checkpoint(use_reentrant=True) with autograd.grad")
def reentrant_with_grad(new):
    x = new.randn(2)
    grad(torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=True).sum(), x)


@case("gradcheck without an input that requires grad")
def gradcheck_constant(new):
    torch.autograd.gradcheck(lambda t: t, (torch.ones(2),))


@case("functional.jacobian strict, output independent of input")
def jacobian_strict(new):
    torch.autograd.functional.jacobian(lambda x: torch.ones(2), torch.ones(2), strict=True)


@case("functional.vjp without v, output not scalar")
def vjp_needs_v(new):
    torch.autograd.functional.vjp(lambda x: x * 2, torch.ones(2))


@case("functional.hessian, output not scalar")
def hessian_scalar(new):
    torch.autograd.functional.hessian(lambda x: x * 2, torch.ones(2))


test_misuse = misuse.check()


# ----- mistakes that only a context can see -----
def train_step(optimize=False):
    """A small correct step; its gradient is known."""
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize):
        ((x * x).exp().log() * 3).sum().backward()
    return x.grad


def assert_unharmed():
    assert torch.is_grad_enabled()
    assert torch.allclose(train_step(), torch.tensor([6.0, 12.0]))
    assert torch.allclose(train_step(True), torch.tensor([6.0, 12.0]))
    y = torch.ones(2, requires_grad=True)
    (y * y).sum().backward()
    assert y.grad.tolist() == [2.0, 2.0]


@pytest.fixture(autouse=True)
def _unharmed():
    yield
    assert_unharmed()


@pytest.mark.parametrize(("error", "arguments"), [
    (TypeError, ("abc",)), (TypeError, ([1.0], "float")), (ValueError, ([[1.0], [1.0, 2.0]],)),
    (RuntimeError, ([1.0], None, "nowhere")), (RuntimeError, (torch.ones(2), None, "nowhere")),
    (RuntimeError, ([1, 2],)),
])
def test_leaves_of_nothing_that_is_a_tensor(error, arguments):
    with pytest.raises(error, match=r"test_errors\.py:\d+") as caught:
        ao.tensor(*arguments)
    assert isinstance(caught.value, ao.AutogradOptError)


def test_a_graph_that_could_keep_no_history_says_why():
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(keep=True) as graph:
        loss = (x * x).sum()
    assert graph.report().merged == 0
    with pytest.raises(ao.OutsideGraphError, match=r"no leaf was made by ao\.tensor"):
        loss.backward()


def test_a_root_of_several_elements_says_what_to_do():
    with ao.AutogradGraph(), pytest.raises(ao.GraphError, match=r"not for one of shape \[2\]: .*sum"):
        (ao.tensor([1.0, 2.0]) * 2).backward()


def test_tensors_of_two_graphs():
    x = ao.tensor([1.0])
    with ao.AutogradGraph(name="outer"):
        a = x * 2
        with ao.AutogradGraph(name="inner"):
            with pytest.raises(ao.GraphMismatchError, match=r"(?s)outer.*inner|inner.*outer"):
                (a * x).backward()
            assert (a.detach() * x).requires_grad
        a.backward()
    assert x.grad.tolist() == [2.0]


def test_a_tensor_of_a_left_graph():
    x = ao.tensor([1.0])
    with ao.AutogradGraph():
        a = x * 2
    with ao.AutogradGraph(), pytest.raises(ao.GraphMismatchError):
        (a * x).backward()


def test_backward_outside_any_context():
    x = ao.tensor([1.0])
    with ao.AutogradGraph():
        a = (x * 2).sum()
    with pytest.raises(ao.OutsideGraphError, match="outside any AutogradGraph"):
        a.backward()
    with pytest.raises(RuntimeError, match="outside"):
        (x * 2).sum().backward()
    assert x.grad is None


def test_an_unknown_pass():
    with pytest.raises(ValueError, match="cse"):
        ao.AutogradGraph(passes=["cze"])


def test_a_graph_is_entered_once():
    graph = ao.AutogradGraph()
    with graph, pytest.raises(ao.GraphError, match="already open"):
        graph.__enter__()


def test_a_graph_is_left_once():
    graph = ao.AutogradGraph()
    with pytest.raises(ao.GraphError, match="is not open"):
        graph.__exit__(None, None, None)
    with graph:
        pass
    with pytest.raises(ao.GraphError, match="is not open"):
        graph.__exit__(None, None, None)


def test_a_graph_left_before_the_one_inside_it():
    x = torch.ones(2, requires_grad=True)
    outer, inner = ao.AutogradGraph(), ao.AutogradGraph()
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    y = (x * 3).sum()
    y.backward()
    inner.__exit__(None, None, None)
    assert x.grad.tolist() == [3.0, 3.0]
    assert (x * 2).grad_fn.name() == "MulBackward0"          # torch's own autograd is back


def test_a_graph_used_from_another_thread():
    errors = []
    x = ao.tensor([1.0])
    with ao.AutogradGraph() as graph:
        loss = (x * x).sum()

        def other():
            try:
                graph.backward(loss)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(errors) == 1
        assert isinstance(errors[0], ao.GraphError)
        assert "thread" in str(errors[0])
        loss.backward()
    assert x.grad.tolist() == [2.0]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_history_of_torchs_and_a_graph_joined_by_hand(optimize):
    """What docs/faq.md says of a tensor that was computed before the context."""
    x = torch.tensor([0.5, 0.7], requires_grad=True)
    h = (x * 3).exp()
    with ao.AutogradGraph(optimize=optimize):
        d = h.detach().requires_grad_()
        (d * d * x).sum().backward()
    h.backward(d.grad)
    wanted, = torch.autograd.grad(((x * 3).exp() ** 2 * x).sum(), x)
    torch.testing.assert_close(x.grad, wanted)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_second_backward_names_the_operation(optimize):
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize):
        loss = x.exp().sum()
        loss.backward()
        kept = x.grad.clone()
        with pytest.raises(ao.FreedGraphError, match="second time"):
            loss.backward()
    assert torch.equal(x.grad, kept)


def test_messages_say_where():
    with ao.AutogradGraph(), pytest.raises(ao.GraphError, match=r"test_errors\.py:\d+"):
        (ao.tensor([1.0, 2.0]) * 2).backward()


def test_errors_have_one_base():
    with ao.AutogradGraph(), pytest.raises(ao.AutogradOptError):
        torch.ones(1).backward()


# ----- fault injection -----
class Boom(BaseException):
    """Neither an Exception nor expected by anyone, like KeyboardInterrupt."""


def program(x, w, inject):
    """A step with an operation of every kind; `inject(k)` is called at each place."""
    class Square(Function):
        @staticmethod
        def forward(ctx, a):
            inject("forward")
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            inject("backward")
            a, = ctx.saved_tensors
            return 2 * a * g

    h = torch.tanh(x @ w)
    h.register_hook(lambda g: inject("hook"))
    inject("between")
    h = Square.apply(h) + h
    h.mul_(2)
    h[0] = h[1]
    h = torch.utils.checkpoint.checkpoint(lambda t: (inject("checkpoint"), t.exp().sin())[1], h, use_reentrant=False)
    h.retain_grad()
    x.register_post_accumulate_grad_hook(lambda t: inject("post"))
    h.grad_fn.register_prehook(lambda gs: inject("prehook"))
    h.grad_fn.register_hook(lambda gi, go: inject("posthook"))
    out = torch.linalg.inv(h.T @ h + torch.eye(3).double() * 9).sum() + h.sum()
    inject("end")
    return out


def leaves():
    torch.manual_seed(0)
    return torch.randn(3, 4).double().requires_grad_(), torch.randn(4, 3).double().requires_grad_()


def places():
    seen = []
    x, w = leaves()
    program(x, w, seen.append).backward()
    return seen


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Boom])
def test_a_fault_anywhere_leaves_a_graph_that_works(optimize, error):
    x, w = leaves()
    program(x, w, lambda name: None).backward()
    expected = x.grad, w.grad
    count = len(places())
    for k in range(count):
        calls = iter(range(10_000))

        def inject(name, k=k, calls=calls):
            if next(calls) == k:
                raise error(name)

        x, w = leaves()
        with ao.AutogradGraph(optimize=optimize):
            with pytest.raises(error):
                program(x, w, inject).backward()
            assert torch.is_grad_enabled()
            x, w = leaves()
            program(x, w, lambda name: None).backward()
        assert torch.allclose(x.grad, expected[0]), f"after a fault at place {k}"
        assert torch.allclose(w.grad, expected[1]), f"after a fault at place {k}"


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("what", ["clear", "leave"])
def test_a_hook_cannot_take_the_graph_away(optimize, what):
    """Of a leaf, between the visits of many other nodes."""
    xs = [ao.tensor([float(k)]) for k in range(50)]
    seen = []

    def hook(t):
        try:
            graph.clear() if what == "clear" else graph.__exit__(None, None, None)
        except ao.GraphError as error:
            seen.append(str(error))

    xs[-1].register_post_accumulate_grad_hook(hook)
    with ao.AutogradGraph(optimize=optimize) as graph:
        total = xs[0] * 2
        for x in xs[1:]:
            total = total + x * 2
        total.backward()
    assert len(seen) == 1
    assert "under way" in seen[0]
    assert all(x.grad.item() == 2.0 for x in xs)


def test_an_exception_leaves_the_context_closed():
    def fails():
        with ao.AutogradGraph():
            x = ao.tensor([1.0]) * 2
            return x / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        fails()
    assert_unharmed()


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("ask", [
    lambda graph, t, x: torch.autograd.backward(t),
    lambda graph, t, x: graph.backward(t),
    lambda graph, t, x: graph.grad(t, x),
    lambda graph, t, x: graph.verify(t),
    lambda graph, t, x: graph.report(t),
    lambda graph, t, x: graph.optimized(t),
    lambda graph, t, x: graph.gradient_expression(x, outputs=t),
], ids="backward graph.backward grad verify report optimized gradient_expression".split())
@pytest.mark.parametrize("make", [
    lambda x: torch.ones(2),
    lambda x: torch.ones(()),
    lambda x: torch.ones(2, dtype=torch.int64),
    lambda x: x.detach(),
    lambda x: x.detach().view(2, 1),
    lambda x: [x.exp(), torch.ones(2)],
    lambda x: [ao.tensor([1.0]), torch.ones(2)],
    lambda x: [torch.ones(2), 3],
], ids="plain scalar whole detached view behind_a_result behind_a_leaf before_a_number".split())
def test_what_cannot_be_differentiated_is_not_put_on_the_graph(optimize, ask, make):
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        loss = (x.sin() * x).sum()
        t = make(x)
        before = str(graph)
        with pytest.raises(ao.GraphError, match="does not require grad and does not have a grad_fn"):
            ask(graph, t, x)
        assert str(graph) == before
        loss.backward()
    assert x.grad is not None


def test_a_graph_in_which_nothing_is_recorded_is_true() -> None:
    """`with graph or nullcontext():` would record nothing otherwise."""
    graph = ao.AutogradGraph()
    assert graph
    assert len(graph) == 0
