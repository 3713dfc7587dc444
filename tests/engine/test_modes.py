"""Grad modes, inference mode, autocast, default dtype, detaching."""

from __future__ import annotations

import asyncio

import torch
from torch.autograd import grad

from tests.engine.behaviour import caught, group

modes = group("no_grad / enable_grad / set_grad_enabled")
inference = group("inference_mode")
detach = group("detach")
casts = group("autocast and dtypes")


@modes("test_no_grad")
def no_grad_block(new):
    """Nothing is recorded under no_grad."""
    x, y = new(torch.ones(5, 5)), new(torch.ones(5, 5) * 4)
    with torch.no_grad():
        w = x + y
    v = x + w
    v.sum().backward()
    return w.requires_grad, w.grad_fn, x.grad, y.grad, caught(lambda: w.backward(torch.ones(5, 5).double()), 10)


@modes("test_no_grad")
def adding_one_in_no_grad(new):
    """no_grad as a function wrapper."""
    x = new(1.0)

    @torch.no_grad()
    def adder(a):
        return a + 1

    return adder(x).requires_grad, (x + 1).requires_grad


@modes("test_enable_grad_decorator_no_paren")
def decorator_without_parentheses(new):
    """Decorators with and without parentheses."""
    x = new(1.0)

    @torch.enable_grad
    def doubler(a):
        return a * 2

    @torch.no_grad
    def halver(a):
        return a / 2

    with torch.no_grad():
        z = doubler(x)
    return z.requires_grad, halver(x).requires_grad


@modes("test_set_grad_generator_functions")
def generators(new):
    """Generators keep their mode between yields."""
    seen = []

    @torch.no_grad()
    def gen():
        for i in range(3):
            seen.append(torch.is_grad_enabled())
            yield i

    with torch.enable_grad():
        for _ in gen():
            seen.append(torch.is_grad_enabled())
    with torch.no_grad():
        for _ in torch.enable_grad()(gen)():
            seen.append(torch.is_grad_enabled())
    return seen


@modes("test_set_grad_generator_functions_recursive")
def recursive_generators(new):
    """Generators that call generators of the other mode."""
    seen = []

    @torch.enable_grad()
    def on(depth):
        if depth:
            yield from off(depth - 1)
            seen.append(torch.is_grad_enabled())
        yield depth

    @torch.no_grad()
    def off(depth):
        if depth:
            yield from on(depth - 1)
            seen.append(torch.is_grad_enabled())
        yield depth

    list(on(5))
    list(off(6))
    return seen, torch.is_grad_enabled()


@modes("test_set_grad_coroutines")
def sending_into_generators(new):
    """send() keeps the mode, and results of the caller are recorded."""
    x = new(1.0)

    @torch.no_grad()
    def co():
        got = yield 0
        while True:
            got = yield (torch.is_grad_enabled(), (got * 2).requires_grad)

    c = co()
    next(c)
    return [c.send(x), torch.is_grad_enabled(), c.send(x), (x * 2).requires_grad]


@modes("test_set_grad_coroutines_benign_exceptions")
def exceptions_inside_generators(new):
    """throw() into a generator that catches it."""
    seen = []

    @torch.no_grad()
    def co():
        while True:
            try:
                yield torch.is_grad_enabled()
            except KeyError:
                seen.append(torch.is_grad_enabled())

    c = co()
    next(c)
    c.throw(KeyError)
    return seen, torch.is_grad_enabled()


@modes("test_set_grad_coroutines_critical_exceptions")
def exceptions_leaving_generators(new):
    """throw() into a generator that does not catch it restores the mode."""
    @torch.no_grad()
    def co():
        yield 1

    c = co()
    next(c)
    return caught(lambda: c.throw(KeyError("k"))), torch.is_grad_enabled()


@modes("test_set_grad_coroutines_exit")
def closing_generators(new):
    """close() runs the clean-up in the generator's mode."""
    seen = []

    @torch.no_grad()
    def co():
        try:
            yield 1
        finally:
            seen.append(torch.is_grad_enabled())

    c = co()
    next(c)
    c.close()
    return seen, torch.is_grad_enabled()


@modes("test_set_grad_enabled")
def switching_by_value(new):
    """set_grad_enabled acts at once, and as a context."""
    x = new(1.0)
    with torch.set_grad_enabled(False):
        a = (x * 2).requires_grad
    torch.set_grad_enabled(False)
    b = (x * 2).requires_grad
    torch.set_grad_enabled(True)
    with torch.set_grad_enabled(False), torch.set_grad_enabled(True):
        c = (x * 2).requires_grad
    return a, b, c, (x * 2).requires_grad


@modes("test_set_grad_enabled_wraps")
def switching_by_decorator(new):
    """set_grad_enabled(False) as a decorator leaves the surrounding mode alone."""
    x = new(1.0)

    @torch.set_grad_enabled(False)
    def inner(a):
        return (a * 2).requires_grad

    return torch.is_grad_enabled(), inner(x), torch.is_grad_enabled()


@modes("test_grad_mode_class_decoration")
def class_methods(new):
    """Methods decorated in a class."""
    class Box:
        @torch.no_grad()
        def __init__(self, x):
            self.a = (x * 2).requires_grad

        @torch.enable_grad()
        def on(self, x):
            return (x * 2).requires_grad

    x = new(1.0)
    box = Box(x)
    with torch.no_grad():
        return box.a, box.on(x)


@modes("test_no_grad")
def exception_inside_no_grad(new):
    """The mode is restored when an exception leaves the block."""
    def fails():
        with torch.no_grad():
            raise ValueError("x")

    return caught(fails), torch.is_grad_enabled()


@modes("test_no_grad")
def leaves_updated_in_no_grad(new):
    """Parameters may be written under no_grad and used afterwards."""
    w = new(1.0, 2.0)
    for _ in range(3):
        loss = (w ** 2).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return w, w.is_leaf, w.requires_grad


@modes("test_no_grad_modifies_version")
def writes_in_no_grad_count(new):
    """A write under no_grad to a saved value is an error in backward."""
    x = new(1.0, 2.0)
    y = x * 1
    z = y * y
    with torch.no_grad():
        y.add_(1)
    return caught(lambda: z.sum().backward(), 30), y._version


@modes("test_no_grad_assignment")
def slices_assigned_in_no_grad(new):
    """Slice assignment to a leaf under no_grad."""
    x, y = new(torch.randn(5, 5)), torch.randn(5).double()
    with torch.no_grad():
        x[0] = y
    return x.requires_grad, x.grad_fn, bool((x[0] == y).all())


@modes("test_grad_mode_restored_reentrant")
def mode_inside_backward(new):
    """backward runs without grad mode; a Function may switch it on for itself."""
    seen = []

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            seen.append(torch.is_grad_enabled())
            with torch.enable_grad():
                y = torch.ones(2).double().requires_grad_()
                (y * 2).sum().backward()
                seen.append(torch.is_grad_enabled())
            seen.append(torch.is_grad_enabled())
            return g

    x = new(1.0, 2.0)
    Inner.apply(x).sum().backward()
    grad(Inner.apply(x).sum(), x, create_graph=True)
    return seen, torch.is_grad_enabled()


@modes("test_set_grad_coroutines")
def async_functions(new):
    """Coroutines under a mode."""
    x = new(1.0)

    async def work():
        with torch.no_grad():
            await asyncio.sleep(0)
            return (x * 2).requires_grad

    return asyncio.run(work()), (x * 2).requires_grad


# ----- inference mode -----
@inference("test_inference_mode_context_manager")
def entering_and_leaving(new):
    """inference_mode nests and is left again."""
    seen = [torch.is_inference_mode_enabled()]
    with torch.inference_mode():
        seen.append(torch.is_inference_mode_enabled())
        with torch.inference_mode(False):
            seen.append(torch.is_inference_mode_enabled())
        seen.append(torch.is_inference_mode_enabled())
    return [*seen, torch.is_inference_mode_enabled(), torch.is_grad_enabled()]


@inference("test_inference_mode_decorator")
def decorated(new):
    """inference_mode as a decorator."""
    x = new(1.0, 2.0)

    @torch.inference_mode()
    def f(a):
        return a * 2

    y = f(x)
    return y.is_inference(), y.requires_grad, y.clone().is_inference()


@inference("test_inference_mode_existing_autograd_session")
def around_an_existing_graph(new):
    """A graph recorded before an inference block is differentiated after it."""
    s = new(torch.ones(1, 2, 3))
    a = s.clone()
    out = a * a
    with torch.inference_mode():
        a.add_(2)
    return caught(lambda: out.backward(torch.ones_like(out)), 30)


@inference("test_inference_mode_inf_tensor_in_inf_mode_functional_op")
def operations_inside(new):
    """Results inside are inference tensors without history."""
    x = new(1.0, 2.0)
    with torch.inference_mode():
        c = torch.ones(2).double()
        outs = [c + c, x * c, x.exp(), c.add_(1)]
        return [(t.is_inference(), t.requires_grad) for t in outs], [t.clone() for t in outs]


@inference("test_mix_inference_and_normal_tensor_functional_op")
def saving_an_inference_tensor(new):
    """An inference tensor cannot be saved for backward, but may be added."""
    x = new(1.0, 2.0)
    with torch.inference_mode():
        c = torch.ones(2).double()
    out = x + c
    out.sum().backward()
    return caught(lambda: x * c), x.grad, (x * c.clone()).requires_grad


@inference("test_inference_mode_inf_tensor_in_normal_mode_inplace_op")
def writing_an_inference_tensor_outside(new):
    """An inference tensor cannot be written outside its mode."""
    with torch.inference_mode():
        c = torch.ones(2)
    return caught(lambda: c.add_(1)), caught(lambda: c._version)


@inference("test_normal_tensor_inplace_output_in_normal_mode")
def normal_tensors_written_inside(new):
    """Normal tensors written inside stay normal and count the version."""
    s = new(torch.ones(2, 2))
    a = s.clone()
    with torch.inference_mode():
        a.add_(2)
    a.add_(2)
    out = (a * 1).sum()
    out.backward()
    return a.is_inference(), a, s.grad


@inference("test_inference_mode_tensor_creation")
def tensors_made_inside(new):
    """Tensors made inside are inference tensors."""
    with torch.inference_mode():
        c = torch.ones(1, 2, 3)
        d = torch.ones(1, requires_grad=True)
    return c.is_inference(), c.requires_grad, d.is_inference(), d.requires_grad


# ----- detach -----
@detach("test_detach")
def detached_alias(new):
    """detach shares memory and stops the gradient."""
    x, y = new(torch.randn(4, 4)), new(torch.randn(4, 4))
    y_ = y.detach()
    out = x * y_ + y
    out.sum().backward()
    return y_.is_leaf, y_.requires_grad, x.grad, y.grad, y_.data_ptr() == y.data_ptr()


@detach("test_detach")
def detached_in_place(new):
    """detach_ cuts the tensor, not its earlier uses."""
    x = new(torch.randn(4, 4))
    y = x * 2
    z = y + 1
    y.detach_()
    a = y.requires_grad, y.grad_fn, y.is_leaf
    y.requires_grad_()
    (y + z).sum().backward()
    view = (x * 1).narrow(0, 1, 2)
    return a, x.grad, y.grad, caught(lambda: view.detach_(), 20)


@detach("test_detach")
def detached_with_hooks(new):
    """detach_ leaves the hooks where they are: the tensor's, and those of the node that others still reach."""
    x = new(torch.randn(4, 4))
    seen = []
    y = x * 2
    y.register_hook(lambda g: (seen.append(1), g * 2)[1])
    y.retain_grad()
    z = y * 3
    y.detach_()
    y.requires_grad_()
    seen.append(y.retains_grad)
    handle = y.register_hook(lambda g: (seen.append(2), g * 5)[1])
    (y + z).sum().backward()
    first = x.grad.clone(), y.grad.clone(), tuple(seen)
    handle.remove()
    y.grad = None
    (y * y).sum().backward()
    y.detach_()
    w = y.requires_grad_() * 1
    w.detach_()
    w.requires_grad_()
    (w + y).sum().backward()
    return *first, y.grad, w.grad, tuple(seen)


@detach("test_detach_base")
def detaching_a_base(new):
    """Detaching a base does not detach its view."""
    x = new(torch.randn(4, 4))
    view = x.narrow(0, 1, 2)
    x.detach_()
    return x.requires_grad, view.requires_grad, view.grad_fn is not None


@detach("test_detach_then_inplace_raises_in_autograd")
def writing_the_detached_alias(new):
    """A write through the detached alias invalidates saved values."""
    x = new(torch.randn(3))
    y = x * 1
    z = y * y
    y.detach().zero_()
    return caught(lambda: z.sum().backward(), 30)


@detach("test_saved_variable_saved_original_inplace_detach")
def saved_output_detached(new):
    """A saved output that was detached in place can still be differentiated."""
    a = new.scalar(1.0) * 1
    b = a.exp()
    c = b * 2
    b.detach_()
    c.backward()
    return b.requires_grad


# ----- autocast and dtypes -----
@casts("test_checkpointing_non_reentrant_autocast_cpu")
def autocast_bfloat16(new):
    """Matrix products in bfloat16, gradients in the leaf's dtype."""
    torch.manual_seed(3)
    w, x = new(torch.randn(4, 3), dtype=torch.float32), torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
        z = torch.nn.functional.linear(x, w.t())
        out = (y.float() + z.float()).sum()
    out.backward()
    return y.dtype, z.dtype, w.grad


@casts("test_checkpointing_non_reentrant_autocast_cpu")
def same_product_inside_and_outside_autocast(new):
    """The same product under two dtypes stays two."""
    torch.manual_seed(3)
    w, x = new(torch.randn(4, 3), dtype=torch.float32), torch.randn(5, 4)
    a = x @ w
    with torch.autocast("cpu", torch.bfloat16):
        b = x @ w
        with torch.autocast("cpu", enabled=False):
            c = x @ w
    (a.sum() + b.float().sum() + c.sum()).backward()
    return a.dtype, b.dtype, c.dtype, a, b, c, w.grad


@casts("test_checkpointing_non_reentrant_autocast_cpu")
def autocast_of_a_network(new):
    """A linear network under autocast, trained two steps."""
    torch.manual_seed(4)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    for _ in range(2):
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    return [p.detach() for p in net.parameters()]


@casts("test_type_conversions")
def conversions(new):
    """Casts carry gradients back to the leaf's dtype."""
    x = new(1.0, 2.0)
    y = x.float().half().double() + x.to(torch.float32).double() + x.type(torch.float32)
    y.sum().backward()
    return y, x.grad, x.int().requires_grad


@casts("test_type_conversions")
def default_dtype(new):
    """The default dtype decides about numbers and factories."""
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        x = torch.ones(2, requires_grad=True)
        i = torch.tensor([1, 2])
        (x * i / 3 + i / 2).sum().backward()
        return x.grad, (i / 2).dtype
    finally:
        torch.set_default_dtype(old)


@casts("test_type_conversions")
def promotion(new):
    """Mixed dtypes promote; each gradient has its leaf's dtype."""
    x, y = new([1.0, 2.0], dtype=torch.float32), new(3.0, 4.0)
    i = torch.tensor([1, 2])
    (x * y + x * i + y * 2 + i).sum().backward()
    return x.grad, y.grad


test_grad_modes = modes.check()
test_inference_mode = inference.check()
test_detach = detach.check()
test_casts = casts.check()
