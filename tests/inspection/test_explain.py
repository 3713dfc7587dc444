"""What a program computes twice: found, counted, placed; and nothing else claimed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autograd_opt.explaining import Watch, explain
from autograd_opt.explaining.findings import Findings

UNLIMITED = 1e9


def watch(program: Callable[[], Any]) -> Findings:
    with explain(budget=UNLIMITED) as e:
        program()
    assert isinstance(e, Watch)
    found = e.report
    assert isinstance(found, Findings)
    return found


def counts(found: Findings) -> dict[str, int]:
    """Operator to number of repeats."""
    total: dict[str, int] = {}
    for f in found.findings:
        for line in f.lines:
            total[line.op] = total.get(line.op, 0) + line.count
    return total


x = torch.arange(12.0).reshape(3, 4)
w = torch.ones(4, 2, requires_grad=True)


def in_a_loop() -> None:
    for _ in range(4):
        _m = torch.triu(torch.ones(3, 3)) * 2


def twice_by_two_callers() -> None:
    def model() -> torch.Tensor:
        return torch.tanh(x @ w)

    def first() -> torch.Tensor:
        return model().sum()

    def second() -> torch.Tensor:
        return model().mean()

    (first() + second()).backward()
    w.grad = None


def after_a_write() -> None:
    y = x.clone()
    y.sin()
    y.add_(1)
    y.sin()


def random_draws() -> None:
    F.dropout(x, 0.5)
    F.dropout(x, 0.5)
    torch.rand(3)
    torch.rand(3)


def buffers() -> None:
    for k in range(3):
        b = torch.zeros(3)
        b[0] = k


def fresh_data() -> None:
    for _ in range(3):
        (x * torch.tensor([1.0, 2.0, 3.0, 4.0])).exp()


def through_numpy() -> None:
    y = torch.ones(4)
    y.exp()
    y.numpy()[0] = 5
    y.exp()


def views() -> None:
    x[0].exp()
    x.narrow(0, 0, 1).squeeze(0).exp()
    x[1].exp()


def inplace_chain() -> None:
    for _ in range(2):
        y = x.clone()
        y.relu_()
        y.exp()


def dtype_attribute() -> None:
    x.sum(dtype=torch.float64)
    x.sum(dtype=torch.float32)
    x.sum(dim=0)
    x.sum(dim=0, keepdim=True)


FOUND: list[tuple[Callable[[], None], dict[str, int]]] = [
    (in_a_loop, {"ones": 3, "triu": 3, "mul": 3}),
    (after_a_write, {}),
    (random_draws, {}),
    (buffers, {}),
    (through_numpy, {}),
    (dtype_attribute, {}),
]


@pytest.mark.parametrize(("program", "expected"), FOUND, ids=lambda v: getattr(v, "__name__", ""))
def test_what_repeats(program: Callable[[], None], expected: dict[str, int]) -> None:
    assert counts(watch(program)) == expected


def test_a_view_of_another_part_is_another_value() -> None:
    assert counts(watch(views)).get("exp", 0) <= 1


def test_values_are_followed_through_in_place_forms() -> None:
    assert counts(watch(inplace_chain))["exp"] == 1


def test_two_callers_are_named_with_the_expression_they_share() -> None:
    found = watch(twice_by_two_callers)
    first = next(f for f in found.findings if "mm" in [line.op for line in f.lines] and "derivative" not in f.places[0])
    line = twice_by_two_callers.__code__.co_firstlineno + 5
    assert f"compute `model()` once, at {first.places[0]}" in first.advice
    assert first.places[0].endswith(f"test_explain.py:{line}")
    assert first.places[1].endswith(f"test_explain.py:{line + 3}")


def test_a_loop_gets_its_line_and_the_assigned_name() -> None:
    (finding,) = watch(in_a_loop).findings
    assert finding.loop
    assert finding.count == 9
    line = in_a_loop.__code__.co_firstlineno + 1
    here = finding.places[0].rpartition(":")[0]
    assert finding.advice == f"compute `_m = torch.triu(torch.ones(3, 3)) * 2` once, before the loop at {here}:{line}"
    assert finding.bytes == 3 * 3 * 9 * 4


def test_near_misses_have_reasons() -> None:
    (miss,) = [m for m in watch(after_a_write).near_misses if m.op == "sin"]
    assert "operand 0 was written between them by add_ at" in miss.reason
    assert any("another tensor with the same values" in m.reason for m in watch(fresh_data).near_misses)


def test_the_backward_of_a_repeated_step_is_placed_at_its_forward_line() -> None:
    def twice() -> None:
        y = (x @ w).sin().sum()
        torch.autograd.grad(y, w, retain_graph=True)
        torch.autograd.grad(y, w, retain_graph=True)

    found = watch(twice)
    assert counts(found)["mm"] == 1
    finding = max(found.findings, key=lambda f: f.count)
    assert "compute `torch.autograd.grad(y, w, retain_graph=True)` once, at" in finding.advice
    assert "several backward runs" not in finding.advice
    assert any(line.source.startswith("derivative of") for line in finding.lines)


def test_modules_are_named_by_their_path() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))

    def twice() -> None:
        model(x)
        model(x)

    modules = {line.module for f in watch(twice).findings for line in f.lines}
    assert modules == {"Sequential.0", "Sequential.1.0", "Sequential.1.1"}


def test_batch_norm_in_training_is_an_effect() -> None:
    norm = nn.BatchNorm1d(4)

    def twice() -> None:
        norm(x).exp()
        norm(x).exp()

    assert counts(watch(twice)) == {"exp": 1}


def test_optimizer_steps_do_not_make_near_misses() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    found = watch(train)
    assert "addmm" not in counts(found)
    assert not [m for m in found.near_misses if m.op == "addmm"]


def padded_encoder() -> torch.Tensor:
    """The kernel for whole layers makes a nested tensor of what is not padded."""
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    with torch.no_grad():
        return encoder(torch.ones(2, 3, 8), src_key_padding_mask=torch.tensor([[False, True, True], [False] * 3]))


LIST = [torch.ones(2), torch.ones(3)]
MASKED = torch.ones(2, 3, 8), torch.tensor([[True, False, False], [True] * 3])
UNUSUAL = {
    "nested again": lambda: torch._nested_tensor_from_mask(*MASKED).to_padded_tensor(0.0),
    "nested list": lambda: torch._nested_tensor_from_tensor_list(LIST).to_padded_tensor(0.0),
    "nested": lambda: (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2).to_padded_tensor(0.0),
    "jagged": lambda: (torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged) * 2).values(),
    "an encoder": padded_encoder,
    "sparse": lambda: torch.sparse_coo_tensor([[0]], [1.0], (2,)).to_dense() * 2,
    "compressed": lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3, 3),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).dequantize(),
    "meta": lambda: torch.ones(3, device="meta") * 2,
    "conjugate": lambda: torch.view_as_complex(torch.ones(2, 2)).conj().imag * 2,
    "empty": lambda: torch.empty(0) * 2,
    "of oneDNN": lambda: torch.ones(2, 2).to_mkldnn().to_dense(),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.filterwarnings("ignore")            # torch's own, that such tensors are not finished
def test_unusual_tensors_are_watched(name: str) -> None:
    torch.manual_seed(0)
    expected = UNUSUAL[name]()
    torch.manual_seed(0)
    with explain(UNLIMITED) as e:
        found = UNUSUAL[name]()
        UNUSUAL[name]()
    assert "operations watched" in str(e)
    assert (found.shape, found.device) == (expected.shape, expected.device)
    assert name == "meta" or torch.equal(found, expected)


LARGE = torch.ones(70_000)
KEPT = {
    "quantized": lambda: torch.quantize_per_tensor(LARGE, 0.1, 0, torch.qint8),
    "float8": lambda: LARGE.to(torch.float8_e4m3fn),
    "uint16": lambda: LARGE.to(torch.uint16),
    "bool": lambda: LARGE > 0,
    "complex": lambda: LARGE * 1j,
    "half": lambda: LARGE.half(),
    "meta": lambda: LARGE.to("meta") * 2,
    "of oneDNN": lambda: torch.relu(LARGE.to_mkldnn()),
    "sparse": lambda: torch.eye(300).to_sparse() * 2,
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.filterwarnings("ignore")
def test_unusual_tensors_that_are_there_still_are_compared_where_they_can_be(name: str) -> None:
    with explain(UNLIMITED) as e:
        kept = [KEPT[name]() for _ in range(3)]
    assert "operations watched" in str(e)
    assert len(kept) == 3


def test_nothing_is_changed() -> None:
    def losses() -> list[str]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        out = []
        for _ in range(10):
            loss = model(torch.randn(6, 4).double()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item().hex())
        return out

    bare = losses()
    seen: list[str] = []
    watch(lambda: seen.extend(losses()))
    assert seen == bare


def test_watching_keeps_nothing_alive() -> None:
    import weakref
    with explain(budget=UNLIMITED):
        t = torch.ones(3).exp()
        ref = weakref.ref(t)
        del t
        assert ref() is None


def test_errors_pass_through_and_the_mode_is_gone() -> None:
    def fail() -> None:
        with explain():
            x @ x

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        fail()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_beyond_the_budget_it_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from autograd_opt.explaining import watch as module
    monkeypatch.setattr(module, "FREE", 0.0)
    with explain(budget=0.0) as e:
        for _ in range(2000):
            x.sin()
    found = e.report
    assert found.operations < 2000
    assert "; the rest ran at full speed" in " ".join(str(found).split())


def test_the_report_prints_and_serializes() -> None:
    found = watch(twice_by_two_callers)
    text = str(found)
    assert "operations watched" in text
    assert "model()" in text
    assert json.loads(json.dumps(found.to_dict()))["operations"] == found.operations
    assert "<details" in found._repr_html_()
    assert found.cost >= 1


def test_nothing_seen() -> None:
    assert "no torch operation was seen" in str(watch(lambda: None))


class LooksInBackward(torch.autograd.Function):
    """Asks the watch to take its mode off while torch's engine, which saves and restores modes, runs."""

    watch: Any = None

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        LooksInBackward.watch.tired = True
        LooksInBackward.watch.look(sys._getframe())
        return g * 2


def test_the_mode_is_not_switched_during_a_backward_run() -> None:
    x = torch.ones(3, requires_grad=True)
    with explain() as e:
        LooksInBackward.watch = e
        LooksInBackward.apply(x).sum().backward()  # type: ignore[no-untyped-call]
        assert e.watching()
        e.look(sys._getframe())
        y = x * 2
    assert torch._C._len_torch_dispatch_stack() == 0
    assert y.requires_grad
    assert e.report.operations


def test_a_mode_that_torch_has_put_back_is_left_all_the_same() -> None:
    """A guard of torch's own thread state restores the modes of its beginning."""
    with explain() as e:
        torch.ones(3)
        e.take_off()
        torch.utils._python_dispatch._push_mode(e)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def test_chains_begin_at_the_watched_block() -> None:
    def program() -> None:
        for _ in range(2):
            torch.ones(300).exp()

    def block() -> Findings:
        with explain(budget=UNLIMITED) as e:
            program()
        return e.report

    chains = [f.chain for f in block().findings]
    assert chains
    assert all(chain[0].endswith("in block") and chain[1].endswith("in program") for chain in chains)


def test_filling_memory_of_ones_own_is_no_repeat() -> None:
    layers: list[nn.Module] = []
    found = watch(lambda: layers.extend(nn.LayerNorm(5) for _ in range(3)))
    assert found.operations
    assert not found.findings


def test_what_an_optimizer_repeats_is_not_listed() -> None:
    parameters, gradient = [torch.ones(3, requires_grad=True) for _ in range(2)], torch.ones(3)
    for p in parameters:
        p.grad = gradient
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=False)
    assert not watch(optimizer.step).findings       # each parameter's momentum begins as a clone of its gradient


def test_what_the_engine_repeats_is_not_to_be_moved() -> None:
    x = torch.ones(3, requires_grad=True)

    def program() -> None:
        loss = x.exp().sin().sum()
        for _ in range(3):
            loss.backward(retain_graph=True)

    advice = [f.advice for f in watch(program).findings]
    assert any(text.startswith("the backward run at") and "on values of an earlier run" in text for text in advice)
    assert not any(".backward()` once" in text for text in advice)


def test_a_loop_that_the_expression_depends_on_is_not_the_one_to_leave() -> None:
    alphas = [torch.tensor(1.0), torch.tensor(2.0)]

    def program() -> None:
        n = 3
        for _ in range(4):              # outer
            for alpha in alphas:
                alpha.exp()
            torch.ones(n, n)

    line, here = program.__code__.co_firstlineno + 2, "tests/inspection/test_explain.py"
    advice = [f.advice for f in watch(program).findings]
    assert len(advice) == 2
    assert any(a.endswith(f"compute `torch.ones(n, n)` once, before the loop at {here}:{line}") for a in advice), advice
    assert any("`alpha.exp()` at" in a and "in 6 of 8 runs" in a for a in advice), advice


def test_what_repeats_now_and_then_is_no_matter_of_a_loop() -> None:
    x = torch.ones(3)

    def program() -> None:
        for k in range(4):
            y = x
            for _ in range(5):
                y = y * 0.5 + k

    (finding,) = (f for f in watch(program).findings if "`y * 0.5`" in f.advice)
    assert "on values it had before in 3 of 20 runs" in finding.advice


def paused(e: explain, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a window, which the budget does not end by itself nor begin anew."""
    e.pause(e.now())
    monkeypatch.setattr(e, "spare", lambda now: -1.0)


def test_what_is_written_while_nothing_is_watched_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    e = explain()
    monkeypatch.setattr(e, "spare", lambda now: 1.0)
    with e:
        first = torch.zeros(4)
        second = torch.zeros(4)
        x.sin()                          # the expression before has ended
        paused(e, monkeypatch)
        first.add_(1)
        e.forget()
        e.tired = False
        assert second is not first
    assert not e.report.findings
    assert e.report.written_after == 1


def test_what_was_watched_is_said_in_counts_of_what_autograd_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    x, e = torch.ones(3, requires_grad=True), explain()
    monkeypatch.setattr(e, "spare", lambda now: 1.0)
    with e:
        for _ in range(100):
            x * 2
        paused(e, monkeypatch)
        for _ in range(300):
            x * 2
    assert e.report.watched_share == 0.25
    assert "100 of the 400 nodes that autograd recorded were watched; the rest" in " ".join(str(e).split())
