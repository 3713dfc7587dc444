"""Guards, each with what happens without it: a mutant, and the test that notices.

A mutant takes one guard away in Python: a function that does nothing any more, an operator
that claims to be pure, a part of the key that is forgotten.  `killer` is what fails then.
The guards inside compiled modules are in `compiled_mutants.py`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import autograd_opt as ao
from autograd_opt.api import tensor_methods
from autograd_opt.engine import accumulate, backward, cotangents, hooks
from autograd_opt.graph import handles, plain_values, references, view_history
from autograd_opt.ops.table import OPS, PURE, define
from autograd_opt.optimizer import merging
from autograd_opt.passes import COMMUTATIVE, EFFECT, LEAF, NOMERGE, PINNED, NodeTable
from autograd_opt.record import dispatch, inplace, recorder, routes, saved_tensors, torch_function, views
from tests.fuzz.oracle import compare
from tests.hazards.cases import program
from tests.programs import CONSTANTS, LEAVES

F = torch.nn.functional
Tensor = torch.Tensor
MODES = (
    {"kind": "custom", "optimize": False},
    {"kind": "plain", "optimize": True},
    {"kind": "custom", "optimize": True},
)


@dataclass
class Mutant:
    """One guard taken away."""

    name: str
    broken: Callable[[], Any]
    killer: Callable[[], None]


MUTANTS: list[Mutant] = []


def mutant(name: str, broken: Callable[[], Any], killer: str | Callable[[], None]) -> None:
    """Add a mutant; a killer given by name is a case."""
    run = killer if callable(killer) else lambda: compare(program(killer), MODES)
    MUTANTS.append(Mutant(name, broken, run))


def replaced(owner: Any, name: str, value: Any) -> Callable[[], Any]:
    """`owner.name` is `value` while the mutant lives."""
    return lambda: patch.object(owner, name, value)


def nothing(*args: Any, **kwargs: Any) -> None:
    """A guard that does nothing any more."""


def in_general(broken: Callable[[], Any]) -> Callable[[], Any]:
    """The mutant where `grad` has no compiled way for what is ordinary."""
    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(backward, "grad_usual", nothing), broken():
            yield
    return both


# ----- writes and views ----------------------------------------------------------------------
mutant("memory seen from outside is not marked", replaced(tensor_methods, "escaped", nothing), "10 numpy of a base")
mutant(
    "a write to a view stays in the view", replaced(views, "before_write", lambda t: None), "10 write through a view"
)
mutant(
    "a view ignores writes to its base",
    replaced(view_history, "refresh", lambda tape, node, view: (handles.set_version(node, view), node)[1]),
    "10 write to the base",
)
mutant(
    "an unseen write leaves the old value's number",
    replaced(view_history, "rewritten", lambda node, t: (handles.set_version(node, t), node)[1]),
    "10 write to an intermediate under no_grad",
)
mutant(
    "views lie at the start of their base",
    replaced(
        view_history, "geometry", lambda view, base, right=view_history.geometry: {**right(view, base), "offset": 0}
    ),
    "12 view refreshed with an offset",
)
mutant("leaves may be written", replaced(inplace, "protect", nothing), "10 leaf written")
mutant(
    "outputs of unbind may be written",
    lambda: _both(replaced(views, "protect", nothing), replaced(view_history, "refuse_making", nothing)),
    "22 write to one output of unbind",
)
mutant(
    "requires_grad_ keeps the history", replaced(tensor_methods, "give_to_torch", nothing), "10 result becomes a leaf"
)
mutant(
    "a write is recorded on its old operands",
    replaced(views, "rewrite", lambda op, found, operands, attributes, target, extra=None: found[0]),
    "10 write with a saved operand of the target's memory",
)
mutant("random writes keep the old gradient", replaced(inplace, "OVERWRITE", OPS["written"]), "08 filled with noise")


@contextmanager
def routed(function: Any, route: Any) -> Iterator[None]:
    """Give a callable another route."""
    torch_function.forget_routes()
    try:
        with patch.dict(dispatch.HANDLERS, {function: route}):
            yield
    finally:
        torch_function.forget_routes()


# ----- what may merge ----------------------------------------------------------------------------
def claims_purity(function: Any, signature: str) -> Callable[[], Any]:
    """Record `function` as an operator that claims to be pure."""
    name = f"pure_{getattr(function, '__name__', 'call')}"

    @contextmanager
    def broken() -> Iterator[None]:
        if name not in OPS:
            define(name, signature, PURE, x=lambda g: g)
        dispatch.classify(function)
        route = routes.Recorded(OPS[name], _binder(name), dispatch.rename, dispatch.unbindable)
        with routed(function, route):
            yield

    return broken


def _binder(name: str) -> Any:
    from autograd_opt.ops.table import BINDERS

    return BINDERS[name]


mutant(
    "dropout claims to be pure", claims_purity(F.dropout, "x, p=0.5, training=True, inplace=False"), "08 dropout twice"
)
mutant("noise claims to be pure", claims_purity(torch.randn_like, "x"), "08 noise twice")
mutant("bernoulli claims to be pure", claims_purity(torch.bernoulli, "x"), "08 bernoulli twice")
mutant(
    "rrelu claims to be pure",
    claims_purity(F.rrelu, "x, lower=0.125, upper=0.333, training=False, inplace=False"),
    "08 rrelu and alpha dropout",
)
mutant(
    "batch norm's buffers are not written",
    claims_purity(F.batch_norm, "x, r, q, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5"),
    "10 buffers of batch norm",
)
mutant("zeros are one buffer", lambda: _shared_buffers(), "02 zeros_like are two buffers")
mutant("a view claims to be a value", claims_purity(Tensor.view, "x, *shape"), "12 two views of one base")
mutant("unbind claims to be one view", claims_purity(Tensor.detach, "x"), "10 through detach")


@contextmanager
def _shared_buffers() -> Iterator[None]:
    made: dict[Any, Tensor] = {}

    def route(func: Any, args: Any, kwargs: Any) -> Tensor:
        with torch._C.DisableTorchFunction():
            return made.setdefault(args[0].shape, torch.zeros(args[0].shape, dtype=args[0].dtype))

    with routed(torch.zeros_like, route):
        yield


def without_attributes(function: Any, name: str) -> Callable[[], Any]:
    """Record `function` with a key that knows none of its attributes."""

    def route(func: Any, args: Any, kwargs: Any) -> Any:
        return recorder.apply(OPS[name], func, args, kwargs, args[:1], {})

    def broken() -> Any:
        return routed(function, route)

    return broken


mutant("the key lacks roll's attributes", without_attributes(Tensor.roll, "roll"), "06 roll")
mutant("the key lacks sum's axes", without_attributes(Tensor.sum, "sum"), "06 dims")
mutant("the key lacks softmax's axis", without_attributes(Tensor.softmax, "softmax"), "06 softmax")


# ----- the table that the passes see -----------------------------------------------------------------
def table_with(change: Callable[[Any, dict[str, Any]], None]) -> Callable[[], Any]:
    """Passes that see a changed table: `change(nodes, columns)` edits the arrays."""

    @contextmanager
    def broken() -> Iterator[None]:
        right = merging.table_of

        def table_of(tape: Any) -> NodeTable:
            table = right(tape)
            columns = {name: np.array(getattr(table, name)) for name in ("key", "offsets", "operands", "flags", "meta")}
            change(tape.snapshot(), columns)
            return NodeTable(**columns)

        with patch.object(merging, "table_of", table_of):
            yield

    return broken


def drops(flag: int) -> Callable[[], Any]:
    def change(recorded: Any, columns: dict[str, Any]) -> None:
        columns["flags"] &= ~np.uint8(flag)

    return table_with(change)


def keys_of(part: Callable[[Any], Any], impure: bool = False) -> Callable[[], Any]:
    """Keys that consist of `part(node)` alone, for impure operators too where that is asked for."""

    def change(recorded: Any, columns: dict[str, Any]) -> None:
        numbers: dict[Any, int] = {}
        for node in recorded:
            own = node.is_leaf or (not node.op.flags & PURE and not impure)
            columns["key"][node.index] = numbers.setdefault(
                node.index if own else (str(node.op), part(node)), len(numbers)
            )

    return table_with(change)


def merged(text: str) -> list[set[str]]:
    """Groups of variables of a small program whose nodes one pass run calls one value."""
    made = {**{k: ao.tensor(v) for k, v in LEAVES.items()}, **{k: v.clone() for k, v in CONSTANTS.items()}}
    env: dict[str, Any] = {"torch": torch, "F": F, **made}
    with ao.AutogradGraph(optimize=True) as graph:
        exec(text, env)
        found = {
            n: t._node.index for n, t in env.items() if isinstance(t, Tensor) and getattr(t, "_node", None) is not None
        }
        leader = merging.run_passes(graph.tape, sorted(found.values()), graph.pipeline)[1].leader
        groups: dict[int, set[str]] = {}
        for name, index in found.items():
            groups.setdefault(int(leader[index]), set()).add(name)
    return [g for g in groups.values() if len(g) > 1]


def merges(text: str, expected: list[set[str]]) -> Callable[[], None]:
    """The killer of a pass mutant: exactly these variables are one value."""

    def killer() -> None:
        assert merged(text) == expected

    return killer


def escape(t: str) -> str:
    return f"{t}.detach().numpy()"


mutant(
    "passes merge leaves",
    table_with(
        lambda recorded, c: (
            c["flags"].__iand__(~np.uint8(LEAF)),
            c["key"].__setitem__([n.index for n in recorded if n.is_leaf], -1),
        )
    ),
    merges(
        "p = torch.zeros(3, dtype=torch.float64, requires_grad=True); a = y + 1; b = p + 1; u = y + 1", [{"a", "u"}]
    ),
)
mutant(
    "passes merge effects",
    lambda: _both(drops(EFFECT), keys_of(lambda n: n.requires_grad, impure=True)),
    merges("a = torch.normal(x, 1.0); b = torch.normal(x, 1.0); u = x + 1; v = x + 1", [{"u", "v"}]),
)
mutant(
    "passes merge pinned nodes",
    drops(PINNED),
    merges("a = x * 2; a.retain_grad(); b = x * 2; u = x + 1; v = x + 1", [{"u", "v"}]),
)
mutant(
    "passes merge what stands on escaped memory",
    drops(NOMERGE),
    merges(f"t = x * 1; {escape('t')}; a = t.sin(); b = t.sin(); u = x + 1; v = x + 1", [{"u", "v"}]),
)
mutant(
    "every operator commutes",
    table_with(
        lambda recorded, c: c["flags"].__ior__(np.where(np.diff(c["offsets"]) == 2, np.uint8(COMMUTATIVE), np.uint8(0)))
    ),
    merges("a = x - c; b = c - x; u = torch.add(x, c); v = torch.add(c, x)", [{"u", "v"}]),
)
mutant(
    "maximum commutes",
    table_with(
        lambda recorded, c: c["flags"].__ior__(
            np.array([COMMUTATIVE if str(n.op) == "maximum" else 0 for n in recorded], np.uint8)
        )
    ),
    merges("a = torch.maximum(x, c); b = torch.maximum(c, x); u = torch.add(x, c); v = torch.add(c, x)", [{"u", "v"}]),
)
mutant(
    "no operator commutes",
    drops(COMMUTATIVE),
    merges("a = x - c; b = c - x; u = torch.add(x, c); v = torch.add(c, x)", [{"u", "v"}]),
)
mutant(
    "pass keys lack attributes",
    keys_of(lambda n: (n.requires_grad, n.dtype)),
    merges("a = x.roll(1, 1); b = x.roll(2, 1); u = x.roll(1, 1)", [{"a", "u"}]),
)
mutant(
    "pass keys compare attributes as Python does",
    keys_of(lambda n: (n.requires_grad, n.dtype, tuple(sorted(n.attributes.items())))),
    merges("a = x * 0.0; b = x * -0.0; u = x * 0; v = x * 0.0", [{"a", "v"}]),
)
mutant(
    "pass keys lack differentiability",
    keys_of(lambda n: (plain_values.attribute_key(n.attributes), n.dtype)),
    merges("with torch.no_grad(): a = x.sin()\nb = x.sin(); u = x.sin()", [{"b", "u"}]),
)
mutant(
    "pass keys lack the dtype",
    lambda: _both(table_with(lambda recorded, c: c["meta"].fill(0)), keys_of(lambda n: n.requires_grad)),
    merges(
        "a = x.sum(0, dtype=torch.float32); b = x.sum(0, dtype=torch.float64); u = x.sum(0, dtype=torch.float32)",
        [{"a", "u"}],
    ),
)
mutant(
    "operands are forgotten",
    table_with(lambda recorded, c: (c["offsets"].fill(0), c.__setitem__("operands", c["operands"][:0]))),
    merges("a = x.sin(); b = y.sin(); u = x.sin()", [{"a", "u"}]),
)


@contextmanager
def _both(*broken: Callable[[], Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for b in broken:
            stack.enter_context(b())
        yield


# ----- runs, hooks, gradients --------------------------------------------------------------------------
def saved_tensors_are_packed() -> None:
    """Every tensor that a rule saves goes through the user's hooks."""
    packed: list[Tensor] = []
    x = ao.tensor([1.0, 2.0])
    with (
        ao.AutogradGraph(optimize=True),
        torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t), t)[1], lambda t: t),
    ):
        (x * x).exp().sum().backward()
    assert len(packed) >= 3, packed


def a_grad_keeps_its_tensor() -> None:
    leaf = ao.tensor([1.0, 2.0])
    leaf.register_hook(lambda g: None)       # which the executor's own short way does not serve
    with ao.AutogradGraph(optimize=True):
        (leaf * 2.0).sum().backward()
        first = leaf.grad
        (leaf * 3.0).sum().backward()
    assert leaf.grad is first
    assert torch.equal(first, torch.tensor([5.0, 5.0]))


def grads_of_hooked_leaves_are_apart() -> None:
    a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    for leaf in (a, b):
        leaf.register_hook(lambda g: None)   # likewise
    with ao.AutogradGraph(optimize=True):
        (a + b).backward(torch.ones(2))
    a.grad.zero_()
    assert torch.equal(b.grad, torch.ones(2))


mutant(
    "a leaf's .grad is somebody else's tensor",
    replaced(accumulate, "own_copy", lambda g, t, sole=False: g),
    grads_of_hooked_leaves_are_apart,
)
mutant(
    "an existing .grad is replaced",
    replaced(accumulate, "add_to_grad", lambda t, g, *rest: setattr(t, "grad", g.detach().clone())),
    a_grad_keeps_its_tensor,
)
mutant(
    "saved-tensor hooks are not noticed", replaced(saved_tensors, "set_saving_hooks", nothing), saved_tensors_are_packed
)
mutant(
    "a hook may change the cotangent of other runs", lambda: _one_seed(),
    "23 hook writes into what a run to some leaves sees",
)
mutant(
    "a hook's result is ignored",
    replaced(hooks, "checked", lambda fn, result, g, *rest: g),
    "23 hook replaces on one twin",
)
mutant(
    "requires_grad of views is not asked", in_general(replaced(references, "requires_grad", lambda t: False)),
    "25 gradient penalty",
)


@contextmanager
def _one_seed() -> Iterator[None]:
    seeds: dict[Any, Tensor] = {}
    right = cotangents.shared_ones

    def shared_ones(tape: Any, *key: Any) -> Tensor:
        return seeds.setdefault(key, right(tape, *key))

    with patch.object(cotangents, "shared_ones", shared_ones):
        yield


# ----- recorded runs ------------------------------------------------------------------------------------
def written_otherwise(owner: Any, name: str, right: str, wrong: str) -> Callable[[], Any]:
    """`owner.name` with one piece of its text replaced."""
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(right) == 1, f"{name} has {source.count(right)} times {right!r}"
    env: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + source.replace(right, wrong), owner.__dict__, env)
    return replaced(owner, name, env[name])


for case_ in ("23 retained after a recorded run", "23 hooks after a recorded run", "23 hooks between two recorded runs",
              "23 hook on a grad_fn after a recorded run"):
    mutant(
        f"recorded runs merge: {case_[3:]}",
        in_general(written_otherwise(backward, "execute", "and not create_graph and not tape.running",
                                     "and not tape.running")),
        case_,
    )
