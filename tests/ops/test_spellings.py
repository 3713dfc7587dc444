"""One call in several spellings: by position, by the names of torch's schema, and as an operator of `torch.ops.aten`.

What is recorded by a rule in one of them is recorded by a rule in all, and has torch's values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten

import autograd_opt as ao
from autograd_opt.record.keyword_calls import by_position, signatures, twin_of

SAMPLES = 3
ENTRIES = {f"{op.name}.{op.variant_test_name}".strip("."): op for op in op_db
           if op.supports_autograd and torch.float64 in op.supported_dtypes("cpu")}
RANDOM = ("dropout", "rrelu", "normal", "bernoulli", "multinomial", "fractional")

Call = Callable[[], Any]


def spellings(op: OpInfo, x: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Call]]:
    """The sample's call by position, and in each other spelling that torch takes."""
    name = op.name.replace(".", "_").removeprefix("nn_functional_")
    yield "position", lambda: op.op(x, *args, **kwargs)
    for parameters, _ in signatures(name):
        if not args or len(args) >= len(parameters):
            continue
        named = {**dict(zip([word for word, _ in parameters[1:]], args, strict=False)), **kwargs}
        for kind, function in (("names", op.op), ("method by names", op.method_variant)):
            if function is not None and taken(lambda f=function, n=named: f(x, **n)):
                yield kind, lambda f=function, n=named: f(x, **n)
        break
    packet = getattr(torch.ops.aten, name, None)
    if packet is not None and twin_of(packet) is op.op and taken(lambda: packet(x, *args, **kwargs)):
        yield "aten", lambda: packet(x, *args, **kwargs)


def taken(call: Call) -> bool:
    try:
        call()
    except Exception:
        return False
    return True


def finished(function: Callable[[Any], Any], call: Call) -> Call:
    """What of the result can be differentiated."""
    return lambda: function(call())


def run(call: Call, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
    """Results and the gradients of the leaves."""
    outputs = [t for t in tree_flatten(call())[0] if isinstance(t, torch.Tensor)]
    followed = [t for t in outputs if t.requires_grad]
    gs = [torch.linspace(1, 2, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype) for t in followed]
    gradients = torch.autograd.grad(followed, leaves, gs, allow_unused=True) if followed else ()
    return [t.detach().clone() for t in outputs], list(gradients)


def recorded(call: Call, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any], bool]:
    """The same inside a graph, and whether a node is torch's to differentiate."""
    whole = []

    def watched() -> Any:
        made = call()
        whole.append(opaque(graph))
        return made

    with ao.AutogradGraph() as graph:
        return (*run(watched, leaves), whole[0])


def opaque(graph: ao.AutogradGraph) -> bool:
    return any(node.op.name.startswith("opaque") for node in graph.tape.snapshot())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in ENTRIES if not any(word in n for word in RANDOM)])
def test_every_spelling_is_recorded_alike(name: str) -> None:
    op = ENTRIES[name]
    torch.manual_seed(0)
    for sample in list(op.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]:
        x, args, kwargs = sample.input, tuple(sample.args), sample.kwargs
        if not isinstance(x, torch.Tensor) or not x.is_leaf:
            continue
        leaves = [t for t in tree_flatten((x, args, kwargs))[0] if isinstance(t, torch.Tensor) and t.requires_grad]
        ruled = None
        for kind, spelled in spellings(op, x, args, kwargs):
            call = finished(sample.output_process_fn_grad, spelled)
            wanted = run(call, leaves)
            values, gradients, whole = recorded(call, leaves)
            torch.testing.assert_close(values, wanted[0], rtol=0, atol=0, equal_nan=True, msg=kind)
            torch.testing.assert_close(gradients, wanted[1], rtol=1e-12, atol=1e-12, equal_nan=True, msg=kind)
            if ruled is None:
                ruled = not whole
            assert ruled is not whole or not ruled, f"{name} by {kind} has no rule"


def test_a_name_after_a_gap_stays_a_name() -> None:
    x, y = torch.zeros(4, 4), torch.zeros(2, 4)
    assert by_position(torch.slice_scatter, (x,), {"src": y, "dim": 0, "end": 2}) == ((x, y, 0), {"end": 2})


def test_a_name_that_says_which_overload_is_meant_stays() -> None:
    x = torch.ones(2, 2)
    assert by_position(torch.max, (x,), {"dim": torch.tensor(1)}) is None
    assert by_position(torch.max, (x,), {"dim": 1}) is None
    assert by_position(torch.std, (x,), {"unbiased": False}) is None
    assert by_position(torch.flip, (x,), {"dims": torch.tensor(1)}) is None


def test_names_that_no_schema_has_are_left_to_torch() -> None:
    x = torch.ones(2, requires_grad=True)
    assert by_position(torch.pow, (x,), {"exponents": 2}) is None
    with ao.AutogradGraph(), pytest.raises(TypeError, match="exponents"):
        torch.pow(x, exponents=2)
    assert by_position(torch.flip, (), {"self": x, "dims": [0]}) is None
    with ao.AutogradGraph(), pytest.raises(TypeError):
        torch.flip(self=x, dims=[0])
    assert by_position(torch.ops.aten.flip, (), {"self": x, "dims": [0]}) == ((x, [0]), {})


def test_a_write_by_name() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    with ao.AutogradGraph() as graph:
        z = x * 1
        z.addcmul_(tensor1=z.detach().clone(), tensor2=y, value=3)
        assert not opaque(graph)
        z.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3))
    torch.testing.assert_close(z.detach(), torch.full((3,), 7.0))


@pytest.mark.parametrize("overload", [torch.ops.aten.add_.Tensor, torch.ops.aten.add_])
def test_a_write_by_an_operator(overload: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph() as graph:
        z = x * 2
        assert overload(z, z.detach().clone(), alpha=3) is z
        assert not opaque(graph)
        z.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))
