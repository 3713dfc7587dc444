"""Whatever is printed prints, in every state, as torch prints it."""

from __future__ import annotations

import contextlib
import inspect
import pprint
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from tests.opinfo_runner import tensors
from tests.ops.rows import ROWS, Row

MODES = [False, True]


def printed(outputs: list[torch.Tensor]) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [(repr(t), str(t), f"{t}", t.grad_fn and (t.grad_fn.name(), type(t.grad_fn).__name__)) for t in outputs]


def in_a_thread(call: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def walked(function: Any, seen: dict[Any, Any]) -> None:
    """Read all there is to a function and to those below it, as programs that draw a graph do."""
    if function is None or function in seen:
        return
    seen[function] = [repr(function), str(function), hash(function), function.name(), function.metadata]
    for name in dir(function):
        with contextlib.suppress(AttributeError, RuntimeError):
            getattr(function, name)
    for below, _ in function.next_functions:
        walked(below, seen)


def computed(row: Row) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    inputs = row.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [t for t in inputs if isinstance(t, torch.Tensor)], tensors(row.function(*inputs))


@pytest.mark.parametrize("optimize", MODES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_results_of_every_operator(row: Row, optimize: bool) -> None:
    graph: Any = ao.AutogradGraph(optimize=optimize)
    with graph:
        _, early = computed(row)                # looked at inside first
        inside = printed(early)
        assert printed(early) == inside
        for t in early:
            walked(t.grad_fn, {})
            assert t.grad_fn is t.grad_fn
        _, late = computed(row)                 # looked at only later
        _, cleared = computed(row)
        with ao.AutogradGraph(optimize=optimize):
            assert printed(early) == inside
        assert in_a_thread(lambda: printed(early)) == inside
        graph.clear()
        assert printed(cleared) == inside
    for found in (early, late, cleared):
        assert printed(found) == inside
        assert in_a_thread(lambda found=found: printed(found)) == inside
        for t in found:
            walked(t.grad_fn, {})
    with ao.AutogradGraph(optimize=optimize):
        assert printed(late) == inside
    with contextlib.suppress(ZeroDivisionError), ao.AutogradGraph(optimize=optimize):
        _, failed = computed(row)
        raise ZeroDivisionError
    assert printed(failed) == inside


def in_place() -> torch.Tensor:
    y = torch.ones(3, requires_grad=True) * 1
    y[0] = 2
    return y.mul_(2)


KINDS: dict[str, Callable[[], Any]] = {
    "leaf": lambda: torch.ones(2, requires_grad=True), "number": lambda: torch.tensor(1.5, requires_grad=True) * 2,
    "complex": lambda: torch.ones(2, dtype=torch.cfloat, requires_grad=True) * 1j,
    "integers": lambda: torch.ones(2).long() * 3,
    "sparse": lambda: torch.eye(3).to_sparse(), "csr": lambda: torch.eye(3).to_sparse_csr(),
    "sparse recorded": lambda: (torch.eye(3, requires_grad=True) * 2).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    "empty": lambda: torch.ones(0, 3) * 2,
    "meta": lambda: torch.ones(2, device="meta", requires_grad=True) * 2, "truth": lambda: torch.ones(2) * 1 > 0,
    "view": lambda: (torch.ones(3, requires_grad=True) * 2)[1:],
    "view of a leaf": lambda: torch.ones(3, requires_grad=True)[1:],
    "in place": in_place, "wide": lambda: torch.arange(9.0).requires_grad_() * 1.5,
    "wider": lambda: torch.arange(11.0).requires_grad_() * 1.5,
    "large": lambda: torch.ones(2000).requires_grad_() * 1.5,
    "matrix": lambda: torch.ones(20, 20).requires_grad_() * 1.5,
    "bfloat16": lambda: torch.ones(2).requires_grad_().bfloat16(),
    "double": lambda: torch.ones(17, dtype=torch.float64).requires_grad_() * 1.5,
    "detached": lambda: torch.ones(2).requires_grad_().exp().detach(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "scientific": lambda: torch.tensor([1e-9, 1e9]).requires_grad_() * 1,
    "conjugate": lambda: (torch.ones(2, dtype=torch.cfloat, requires_grad=True) * 1j).conj(),
    "split": lambda: torch.ones(4).requires_grad_().split(2)[1],
    "lengths": lambda: [torch.arange(float(n)).requires_grad_() * 1.5 for n in range(1, 40)],
    "rows": lambda: [torch.ones(2, n, dtype=torch.float64).requires_grad_() + 1 for n in range(1, 20)],
    "half rows": lambda: [(torch.ones(2, n).requires_grad_() + 1).half() for n in range(1, 20)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimize", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_tensors(kind: str, optimize: bool) -> None:
    def told(t: Any) -> list[Any]:
        found = [repr(t), str(t), f"{t}", pprint.pformat([t]), f"{[t]}", f"{t!r}"]
        for spec in (".2f", "10.3e", "", ">9", "d"):
            try:
                found.append(format(t, spec))
            except Exception as error:
                found.append(type(error))
        return found

    theirs = told(KINDS[kind]())
    with ao.AutogradGraph(optimize=optimize) as graph:
        t = KINDS[kind]()
        assert told(t) == theirs
        graph.clear()
        assert told(t) == theirs
        late = KINDS[kind]()
    assert told(t) == told(late) == theirs
    with ao.AutogradGraph(optimize=optimize):
        assert told(late) == theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimize", MODES)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"lengths", "rows", "half rows"}))
def test_a_debugger_reads_every_attribute(kind: str, optimize: bool) -> None:
    def raised(t: Any) -> dict[str, Any]:
        found = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in sorted(set(dir(torch.Tensor))):
                try:
                    getattr(t, name)
                except Exception as error:
                    found[name] = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
        return found

    theirs = raised(KINDS[kind]())
    with ao.AutogradGraph(optimize=optimize):
        t, late = KINDS[kind](), KINDS[kind]()
        assert set(raised(t).items()) <= set(theirs.items())
    for x in (t, late):
        assert set(raised(x).items()) <= set(theirs.items())


@pytest.mark.parametrize("optimize", MODES)
def test_what_this_library_hands_out(optimize: bool) -> None:
    def told(things: list[Any]) -> None:
        for x in things:
            assert repr(x)
            assert str(x) == f"{x}"
            for name in ("_repr_html_", "_repr_svg_", "_repr_latex_", "_repr_mimebundle_"):
                method = getattr(type(x), name, None)
                if method is not None:
                    method(x)

    w = torch.nn.Linear(3, 2)
    graph = ao.AutogradGraph(optimize=optimize)
    told([graph])
    with graph:
        told([graph, graph.report()])
        y = w(torch.ones(4, 3)).tanh()
        loss = y.sum()
        nodes = [loss.grad_fn, *graph.tape.snapshot()]
        things = [graph, graph.report(), graph.verify(), graph.tape, *nodes, nodes[0].op,
                  graph.references]
        told(things)
        loss.backward()
        told(things)
        graph.clear()
        told(things)
    told(things)
    told([graph, graph.report()])
    with contextlib.suppress(ZeroDivisionError), graph:
        y = w(torch.ones(4, 3)) / 2
        raise ZeroDivisionError
    told([*things, y, graph])
    told([getattr(ao, name) for name in ao.__all__ if inspect.isclass(getattr(ao, name))])
