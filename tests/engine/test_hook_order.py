"""Hooks: their order, what they write, when they are removed."""

from __future__ import annotations

import warnings

import torch
from torch.autograd import grad

from tests.engine.behaviour import group

Tensor = torch.Tensor
hooks = group("hooks: order, writes, removal")


@hooks("")
def a_hook_that_writes(new):
    """A hook that writes its gradient in place changes what flows on."""
    x = new(1.0, 2.0)
    a = x * 2

    def write(g: Tensor) -> None:
        g.mul_(3)

    a.register_hook(write)
    (a * torch.tensor([1.0, 5.0]).double()).sum().backward()
    return x.grad


@hooks("")
def a_hook_that_writes_what_is_shared(new):
    """Two operands of a sum receive one cotangent; a write to it is seen by the one that comes later."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a, b = x * 2, y * 2
    b.register_hook(lambda g: g * 3)
    (a + b).sum().backward()
    return x.grad, y.grad


@hooks("")
def hooks_of_all_kinds_at_a_leaf(new):
    """Hooks of the tensor, pre-hooks of its node, `.grad`, post-accumulate hooks, post-hooks of its node."""
    x, seen = new(1.0, 2.0), []
    y = (x * 2).sin()
    node = torch.autograd.graph.get_gradient_edge(x).node
    node.register_hook(lambda inputs, outputs: seen.append(("post-hook", x.grad is None)))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("post-accumulate", x.grad is None)))
    node.register_prehook(lambda outputs: seen.append(("pre-hook", x.grad is None)))
    x.register_hook(lambda g: seen.append(("tensor", x.grad is None)))
    y.sum().backward()
    return seen


@hooks("")
def the_nodes_that_a_run_will_visit(new):
    """A hook at the root asks which nodes follow, and in which order."""
    seen = []
    with torch.autograd.set_multithreading_enabled(False):
        loss = ((new(1.0, 2.0) * 2).sin() * 3).sum()
        loss.register_hook(lambda g: seen.extend(
            node.name() for node in torch._C._current_graph_task_execution_order()))
        loss.backward()
    return seen


@hooks("")
def the_nodes_that_a_run_to_inputs_will_visit(new):
    """The inputs are among them."""
    seen = []
    with torch.autograd.set_multithreading_enabled(False):
        a, b = new(1.0, 2.0), new(3.0, 4.0)
        c = a * b
        loss = (c.sin() * 3).sum()
        loss.register_hook(lambda g: seen.append([
            node.name() for node in torch._C._current_graph_task_execution_order()]))
        torch.autograd.grad(loss, [a], retain_graph=True)
        torch.autograd.grad(loss, [c, b], retain_graph=True)
        torch.autograd.grad(loss, [c], retain_graph=True)
        loss.backward(inputs=[a])
    return seen


@hooks("")
def hooks_in_order_and_removed(new):
    """Hooks replace one after the other; one removes another while it runs."""
    x, seen = new(1.0, 2.0), []
    a = x * 2
    handles = []

    def first(g: Tensor) -> Tensor:
        seen.append("first")
        handles[1].remove()
        return g + 1

    handles.append(a.register_hook(first))
    handles.append(a.register_hook(lambda g: seen.append("second")))
    handles.append(a.register_hook(lambda g: g * 10))
    a.sum().backward(retain_graph=True)
    a.sum().backward()
    return seen, x.grad


@hooks("")
def a_hook_added_during_the_run(new):
    """A hook that adds a hook to an earlier tensor of the same run."""
    x, seen = new(1.0, 2.0), []
    a = x * 2
    b = a.exp()
    b.register_hook(lambda g: a.register_hook(lambda h: seen.append(h.clone())) and None)
    b.sum().backward()
    return seen, x.grad


@hooks("")
def retained_with_a_graph(new):
    """retain_grad with create_graph gives a gradient that has a graph; repeated runs add."""
    x = new(1.0, 2.0)
    a = x * x
    a.retain_grad()
    a.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (a ** 2).sum().backward(create_graph=True)
    first = a.grad
    grads = grad(a.grad.sum(), x, retain_graph=True)
    (a ** 2).sum().backward()
    return first.requires_grad, grads, a.grad, a.grad.requires_grad, a.retains_grad, a.is_leaf


@hooks("")
def retained_under_hooks(new):
    """retain_grad sees what the hooks made, whatever the order of registration."""
    x = new(1.0, 2.0)
    a = x * 2
    a.register_hook(lambda g: g * 2)
    a.retain_grad()
    a.register_hook(lambda g: g + 1)
    a.sum().backward()
    return a.grad, x.grad


@hooks("")
def hook_of_the_root(new):
    """Hooks of the root itself, of a leaf root too."""
    x, seen = new.scalar(2.0), []
    y = x * 3
    y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    x.register_hook(lambda g: seen.append(g.clone()) or g * 5)
    y.backward()
    x.backward()
    return seen, x.grad


@hooks("")
def node_hooks(new):
    """Node hooks: a pre-hook that replaces, a post-hook that sees both sides."""
    x, seen = new(1.0, 2.0), []
    a = x.exp()
    a.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    a.grad_fn.register_hook(lambda ins, outs: seen.append((ins[0].clone(), outs[0].clone())))
    a.sum().backward()
    return seen, x.grad


@hooks("")
def a_node_hook_that_replaces(new):
    """A post-hook replaces what goes to the operands; None leaves it."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a = x * y
    a.grad_fn.register_hook(lambda ins, outs: (ins[0] * 10, ins[1]))
    a.sum().backward()
    return x.grad, y.grad


@hooks("")
def multi_grad_hooks(new):
    """Multi-grad hooks in the modes all and any, with one tensor unused, in two runs."""
    x, y, z, seen = new(1.0, 2.0), new(3.0, 4.0), new(5.0, 6.0), []
    torch.autograd.graph.register_multi_grad_hook(
        (x, y, z), lambda gs: seen.append([None if g is None else g.clone() for g in gs]))
    torch.autograd.graph.register_multi_grad_hook(
        (x, y), lambda g: seen.append("any"), mode="any")
    (x * y).sum().backward()
    (x * z).sum().backward()
    return seen.count("any"), [s for s in seen if s != "any"]


@hooks("")
def module_hooks_on_equal_modules(new):
    """Full backward hooks of a module called twice on one input."""
    torch.manual_seed(0)
    net, seen = torch.nn.Linear(2, 2).double(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].clone(), go[0].clone())))
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    x = new([[1.0, 2.0]])
    (net(x) + net(x) * 3).sum().backward()
    return seen, x.grad, net.weight.grad


@hooks("")
def hook_on_a_view_before_a_write(new):
    """A hook stays with the version of the tensor that it was registered on."""
    x, seen = new(1.0, 2.0), []
    a = x * 2
    a.register_hook(lambda g: seen.append(("old", g.clone())))
    a.mul_(3)
    a.register_hook(lambda g: seen.append(("new", g.clone())))
    a.sum().backward()
    return seen, x.grad


@hooks("")
def post_accumulate_hooks(new):
    """Post-accumulate hooks run in order, see the written .grad, and may be removed."""
    x, seen = new(1.0, 2.0), []
    h = x.register_post_accumulate_grad_hook(lambda t: seen.append(("first", t.grad.clone())))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("second", t is x)))
    (x * x).sum().backward()
    h.remove()
    (x * 2).sum().backward()
    grad((x * 2).sum(), x)
    return seen


@hooks("test_tensor_hooks_inplace_over_view")
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


test_hook_order = hooks.check()
