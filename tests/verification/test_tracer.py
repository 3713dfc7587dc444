"""Rules are traced without asking torch for every shape: the traces are those that torch's shapes give."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas.cases import CASES
from autograd_opt.verification.lemmas.claims import forward, instance
from autograd_opt.verification.program import shapes, tracer
from autograd_opt.verification.program.calls import Untraceable
from autograd_opt.verification.program.rule_traces import trace_rule
from autograd_opt.verification.program.shapes import SHAPED, shaped
from autograd_opt.verification.program.tracer import Draws, Tracer
from autograd_opt.verification.semantics.symbols import Symbols


def traced(op, case):
    """Every step of the rules with its type, or why there is none."""
    try:
        vocabulary, types, args = instance(op, case)
        head, ans = forward(Symbols(), op, case, vocabulary, types, args)
        needs = [t is not None and k not in case.values for k, t in enumerate(types)]
        parts = [True] * len(ans) if isinstance(ans, tuple) else None
        template = trace_rule(vocabulary, OPS[op], head, types, needs, parts)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    heads = [(vocabulary.heads[h], vocabulary.spelled(vocabulary.heads[h].type)) for h, _ in template.steps]
    return [h._replace(type=0) for h, _ in heads], [t for _, t in heads], template.results


@pytest.mark.parametrize("op", sorted(op for op in CASES if op in OPS))
def test_the_shapes_are_those_of_torch(monkeypatch, op):
    quick = [traced(op, case) for case in CASES[op]]
    monkeypatch.setattr(tracer, "SHAPED", {})
    assert quick == [traced(op, case) for case in CASES[op]]


T = torch.float32


@pytest.mark.parametrize(("name", "sizes", "rest"), [
    *[(name, shapes, ()) for name in ("add", "sub", "mul", "div", "pow", "tanh_backward")
      for shapes in (((), ()), ((3,), ()), ((2, 1), (1, 3)), ((0, 2), (1, 2)), ((4, 1, 2), (3, 1)))],
    *[(name, ((2, 3),), ()) for name in ("neg", "exp", "log", "sqrt", "rsqrt", "sin", "tanh", "square", "reciprocal")],
    *[("sum_to_size", ((2, 3, 4),), size) for size in
      (((3, 4),), ((1, 1, 4),), ((),), (2, 3, 4), ((4,),), ([3, 1],))],
    *[("stack", shapes, rest) for shapes in (((2, 3), (2, 3)), ((), (), ())) for rest in ((), (0,), (-1,), (-2,))
      if shapes[0] or rest != (-2,)],
    *[("matmul", shapes, ()) for shapes in
      (((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((5, 2, 3), (3, 2)), ((5, 1, 2, 3), (4, 3, 2)),
       ((3,), (4, 3, 2)), ((4, 2, 3), (3,)), ((0, 3), (3, 2)))],
    ("mm", ((2, 3), (3, 1)), ()), ("bmm", ((2, 2, 3), (2, 3, 1)), ()), ("mv", ((2, 3), (3,)), ()),
    ("dot", ((3,), (3,)), ()),
    ("cat", ((2, 3), (4, 3)), ()), ("cat", ((2, 3), (2, 1), (2, 0)), (-1,)), ("cat", ((2,),), (0,)),
    *[(name, ((2, 3, 4),), rest) for name in ("sum", "mean") for rest in
      ((), (1,), (-1,), ((0, 2),), ((),), ([1],), (0, True), ((0, -1), True), (None, True), ((1,), False))],
    ("sum", ((),), ()), ("sum", ((0, 2),), (0,)), ("mean", ((),), ()),
    *[(name, ((2, 1), (1, 3)), ()) for name in ("gt", "ge", "lt", "le", "eq", "ne")], ("gt", ((2,),), (0,)),
    ("mul", ((2,),), (3,)), ("pow", ((2,),), (0.5,)), ("add", ((),), (1,)),
])
def test_one_result_has_the_shape_and_dtype_of_torchs(name, sizes, rest):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        traces = []
        for shape in sizes:
            t = torch.empty(shape, dtype=dtype, device="meta")
            t.__class__ = tracer.Trace
            traces.append(t)
        found = SHAPED[name](traces, *rest) if name in ("stack", "cat") else SHAPED[name](*traces, *rest)
        real = [torch.ones(shape, dtype=dtype) for shape in sizes]
        function = {"tanh_backward": torch.ops.aten.tanh_backward, "sum_to_size": torch.Tensor.sum_to_size}.get(
            name, getattr(torch, name, None))
        expected = function(real, *rest) if name in ("stack", "cat") else function(*real, *rest)
        assert found == (expected.shape, expected.dtype)


@pytest.mark.parametrize(("name", "args"), [
    ("add", (torch.float32, torch.float64)), ("mul", (torch.int64, 2)), ("mul", (torch.float32, True)),
    ("mul", (torch.complex64, 2.0)), ("mul", (torch.float32, 1j)), ("sum_to_size", (torch.int64, (1,))),
    ("sum_to_size", (torch.float32, (2,))), ("sum", (torch.int64,)), ("sum", (torch.bool,)),
    ("matmul", (torch.float32, torch.float64)), ("dot", (torch.int64, torch.int64)),
    ("mean", (torch.float32, 1)),
    ("sum", (torch.float32, (0, 0))), ("sum", (torch.float32, "n")), ("gt", (torch.int64, 0)),
    ("where", (torch.float32, torch.float32, torch.float32)), ("where", (torch.bool, torch.float32, torch.float64)),
    ("log_softmax_backward", (torch.float16, torch.float16, 0, torch.float32)),
    ("sum_to_size", (torch.float32, (1, 3, 3))), ("add", (1, 2)),
])
def test_what_may_change_the_dtype_or_does_not_fit_is_asked_of_torch(name, args):
    made = []
    for a in args:
        if isinstance(a, torch.dtype):
            a = torch.empty(3, dtype=a, device="meta")
            a.__class__ = tracer.Trace
        made.append(a)
    assert SHAPED[name](*made) is None


def test_unusual_arguments_are_asked_of_torch():
    x = torch.empty(3, dtype=torch.float32, device="meta")
    x.__class__ = tracer.Trace
    for name, args, kwargs in (("sum", (x,), {"dtype": torch.float64}), ("add", (x, x), {"alpha": 2}),
                               ("div", (x, x), {"rounding_mode": "floor"})):
        assert shaped(name, args, kwargs) is None
    assert shaped("sum", (x,), {"dim": 0, "keepdim": True}) == ((1,), torch.float32)


def run(fn):
    """The steps of a function on one trace."""
    from autograd_opt.verification.program.instructions import Vocabulary

    vocabulary = Vocabulary()
    made = Tracer(vocabulary, 1, "cpu")
    with made:
        fn(made.value(vocabulary.type((3,), torch.float32, "cpu"), 0))
    return [vocabulary.heads[h].op for h, _ in made.steps]


def test_equal_tensors_of_one_number_are_made_once_and_different_ones_are_not():
    def rule(x):
        zero, one = torch.zeros(3, dtype=T, device="meta"), torch.ones(3, dtype=T, device="meta")
        other = torch.zeros(3, dtype=torch.float64, device="meta")
        return x + zero + one + torch.zeros(3, dtype=T, device="meta") + other

    assert run(rule).count("full") == 3


@pytest.mark.parametrize("rule", [
    lambda x: torch.zeros(3, dtype=T, device="meta").add_(x),
    lambda x: torch.mul(x, x, out=torch.zeros(3, dtype=T, device="meta")),
    lambda x: torch.ones(3, dtype=T, device="meta", out=x),
    lambda x: x.mul_(2),
    lambda x: x.copy_(x),
    lambda x: x.__imul__(x),
])
def test_writes_are_refused(rule):
    with pytest.raises(Untraceable):
        run(rule)


@pytest.mark.parametrize("rule", [
    lambda x: x * torch.rand_like(x),
    lambda x: torch.nn.functional.dropout(x, 0.5, True),
    lambda x: torch.bernoulli(x),
    lambda x: torch.normal(x, x),
])
def test_draws_are_refused(rule):
    with pytest.raises(Draws):
        run(rule)


def test_broadcasting_is_torchs():
    sizes = [(), (1,), (3,), (0,), (2, 1), (2, 3), (1, 3), (4, 1, 1), (4, 2, 3), (0, 3), (1, 0)]
    for a in sizes:
        for b in sizes:
            try:
                expected = torch.broadcast_shapes(a, b)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    shapes.broadcast(a, b)
            else:
                assert shapes.broadcast(a, b) == expected, (a, b)


def test_a_first_proof_loads_neither_sympy_nor_torchs_compiler():
    program = """
import sys, torch, autograd_opt as ao
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
x, y = torch.rand(5, 4), torch.arange(5) % 3
with ao.AutogradGraph(optimize=True, verify=True) as graph:
    loss = torch.nn.functional.cross_entropy(net(x), y) + (net(x) / net(x).square().mean()).sum()
    loss.backward()
    print(graph.verdicts[0].status, [m for m in ("sympy", "torch._dynamo") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "proved []", done.stdout
