"""The operator table: one operator, one line, its rules written in recordable operations.

A rule is a function of the cotangent `g` and of exactly what it reads, by name:

    ans                 the output                ans_shape, ans_dtype   its metadata
    x, y, ...           an operand by its name    x_shape, x_dtype       its metadata
    x_turned            is it a view that exchanges the axes of a matrix? (for strides only: proofs take it for False)
    needs               tuple of bools: which operands require grad (joint rules)
    values, shapes      all operands / all shapes (operators on lists of tensors)
    others              all operands but the first, whose place holds None
    rest                all operands but the first two
    results             the outputs of an operator with several, which its kernel has kept last
    extra, task, node   for the general mechanisms only (opaque calls, custom functions)
    keyword-only names  attributes

What a node saves follows from these names and from nothing else.  A rule may return a
cotangent of the broadcast shape or dtype: the executor sums and casts it on the edge.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch

from autograd_opt.graph.node import Op, Vjp
from autograd_opt.ops.binding import Plan

ELEMENTWISE, COMMUTATIVE, PURE, VIEW, REDUCES, MULTI, JOINT, VARIADIC, MOVES, ONCE, HIDES, OTHERS, FILLS, FOLDS = (
    1 << k for k in range(14))
HOT = {name: code for code, names in enumerate("""
    add|sub|mul|neg|div|pow|exp|log|sin|cos|sqrt|square|reciprocal|abs|tanh|sigmoid|relu|softmax|log_softmax|sum|mean
    |matmul|mm|reshape flatten ravel unsqueeze unflatten unsafe_view reshape_alias view|squeeze|transpose|t|mT
    |expand broadcast_to expand_as contiguous clone cast to_float to_double to_half to_bfloat16 output written
    |slice|select|narrow|tanh_backward|sigmoid_backward|linear|addmm|where|cat|stack|unbind unbind_copy
    |split split_with_sizes chunk tensor_split unsafe_split unsafe_chunk split_with_sizes_copy
    |permute|nll_loss
""".split("|"), 1) for name in names.split()}
"""Operators that the engine tells apart, with their codes in `engine/hot.pxd`; but for `permute`, with a rule in C."""
HIDING = frozenset("stack repeat tile roll select_scatter slice_scatter diagonal_scatter embedding flash_attention "
                   "conv1d conv_transpose1d".split())
"""Operators of torch's whose kernels return views of fresh memory that eager mode does not show."""
ANSWER = 1 << 31

Rule = Callable[..., Any]
Binder = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]

OPS: dict[str, Op] = {}
"""Every operator by name."""
USERS: set[Op] = set()
"""Operators whose rules are the user's: nothing is known of them but what a proof finds out."""
RESERVED = frozenset("constant detach full hook merged pullback rule seed to".split())
"""Words of proofs that are no operators: no operator of the user's is called so."""
NUMBERS = itertools.count(1)
"""Operators are numbered once: what is kept of a structure outlives an operator that was removed."""
MOST_OPERATORS = 1 << 16
"""A key of the value table has this much room for the number of an operator."""
BINDERS: dict[str, Binder] = {}
"""How a call's arguments become operands and attributes, by operator name."""
CALLS: dict[Any, str | Callable[..., str | None]] = {}
"""torch callable -> operator name, or a function of its arguments that picks one."""
INPLACE: dict[Any, str] = {}
"""In-place torch callable -> name of the operator that computes the new value."""
DECOMPOSE: dict[Any, Rule] = {}
"""torch callable without an operator of its own -> Python function that computes it by recordable calls."""
SPELLINGS: dict[Any, tuple[str | Callable[..., str | None], Binder]] = {}
"""torch callable with an order of arguments of its own -> operator name or pick, and binder."""
FIXED = {"ans": 1, "ans_shape": 2, "needs": 3, "shapes": 4, "values": 5, "ans_dtype": 6, "task": 7, "node": 8,
    "extra": 9, "others": 10, "rest": 11, "results": 12}
NAMESPACES = {"torch": torch, "T": torch.Tensor, "F": torch.nn.functional}


def resolve(path: str) -> Any:
    """The torch callable behind `torch.x`, `T.x` (Tensor), `F.x` (functional), `torch.a.b`."""
    head, *rest = path.split(".")
    found: Any = NAMESPACES[head]
    for name in rest:
        found = getattr(found, name, None)
    return found


def signature_of(text: str) -> tuple[tuple[str, ...], dict[str, Any], Binder]:
    """Operands, attribute defaults and binder of a signature such as `x, y, *, alpha=1`.

    Names without a default are operands; `x=?` is an operand that may be absent; `*dims`
    collects positional integers (or one tuple) into an attribute.
    """
    operands: list[str] = []
    attributes: dict[str, Any] = {}
    parameters, body, collected = [], [], False
    namespace: dict[str, Any] = {"_pack": _pack}
    for part in (p.strip() for p in text.split(",") if p.strip()):
        if part == "*":
            parameters.append(part)
        elif part.startswith("*"):
            name = part[1:]
            attributes[name] = ()
            parameters.append(f"*{name}")
            body.append(f"{name} = _pack({name}, _named, {name!r})")
            collected = True
        elif "=" in part:
            name, default = (s.strip() for s in part.split("="))
            if default == "?":
                operands.append(name)
                parameters.append(f"{name}=None")
            else:
                attributes[name] = eval(default, {"torch": torch})
                namespace[f"_{name}"] = attributes[name]
                parameters.append(f"{name}=_{name}")
        else:
            operands.append(part)
            parameters.append(part)
    if collected:
        parameters.append("**_named")
    fields = ", ".join(f"{a!r}: {a}" for a in attributes)
    source = f"def bind({', '.join(parameters)}):\n"
    source += "".join(f"    {line}\n" for line in body)
    source += f"    return ({''.join(o + ', ' for o in operands)}), {{{fields}}}\n"
    exec(source, namespace)
    namespace["bind"].__dict__["plan"] = plan_of(text, operands, attributes)
    return tuple(operands), attributes, namespace["bind"]


def plan_of(text: str, operands: list[str], attributes: dict[str, Any]) -> Plan | None:
    """How compiled code binds a call of this signature; None where operands come after attributes."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    names = [p.split("=")[0].strip().lstrip("*") for p in parts if p != "*"]
    collects = any(p.startswith("*") and p != "*" for p in parts)
    if names != [*operands, *attributes] or (collects and (len(attributes) != 1 or len(parts) != len(names))):
        return None
    required = [p for p in parts if "=" not in p and not p.startswith("*")]
    parameters = [(o, i, inspect.Parameter.empty if o in required else None) for i, o in enumerate(operands)]
    return Plan([*parameters, *((a, a, default) for a, default in attributes.items())],
                parts.index("*") if "*" in parts else len(names), collects)


def _pack(values: tuple[Any, ...], named: dict[str, Any], name: str) -> tuple[Any, ...]:
    """What `*name` collected, however it was spelled: f(1, 2), f((1, 2)), f(name=(1, 2))."""
    if named:
        if values or set(named) != {name}:
            raise TypeError(f"unexpected arguments {sorted(named)}")
        values = (named[name],)
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        return tuple(values[0])
    return values


def make_vjp(rule: Rule | None, operands: tuple[str, ...], attributes: dict[str, Any]) -> Vjp | None:
    """Read off a rule's parameters what it needs."""
    if rule is None:
        return None
    codes: list[int] = []
    wanted: list[str] = []
    mask = 0
    for k, p in enumerate(inspect.signature(rule).parameters.values()):
        if p.kind is p.KEYWORD_ONLY:
            wanted.append(p.name)
        elif k == 0:
            continue
        elif p.name in FIXED:
            codes.append(FIXED[p.name])
            mask |= {"ans": ANSWER, "values": ANSWER - 1, "others": ANSWER - 2, "rest": ANSWER - 4}.get(p.name, 0)
        elif p.name in operands:
            i = operands.index(p.name)
            codes.append(16 + i)
            mask |= 1 << min(i, 30)
        elif p.name.endswith("_shape") and p.name[:-6] in operands:
            codes.append(64 + operands.index(p.name[:-6]))
        elif p.name.endswith("_dtype") and p.name[:-6] in operands:
            codes.append(128 + operands.index(p.name[:-6]))
        elif p.name.endswith("_turned") and p.name[:-7] in operands:
            codes.append(192 + operands.index(p.name[:-7]))
        else:
            raise ValueError(f"a rule names {p.name!r}, which is neither an operand nor a known word")
    unknown = [a for a in wanted if a not in attributes]
    if unknown:
        raise ValueError(f"a rule names the attributes {unknown}, which the signature lacks")
    return Vjp(rule, tuple(codes), tuple(wanted), mask)


def keeping(vjp: Vjp | None, names: list[str], operands: tuple[str, ...]) -> Vjp | None:
    """A rule that also has `names` saved, and found unwritten, without reading them."""
    if vjp is None or not names:
        return vjp
    rule, n = vjp.fn, 1 + len(vjp.codes)
    codes = tuple(FIXED[name] if name == "ans" else 16 + operands.index(name) for name in names)
    mask = vjp.needs
    for name in names:
        mask |= ANSWER if name == "ans" else 1 << operands.index(name)

    @functools.wraps(rule)
    def reduced(*args: Any, **attributes: Any) -> Any:
        return rule(*args[:n], **attributes)

    return Vjp(reduced, vjp.codes + codes, vjp.attributes, mask)


def define(
    name: str,
    signature: str,
    flags: int = 0,
    calls: str = "",
    *,
    joint: Rule | None = None,
    inplace: str = "",
    bind: Binder | None = None,
    forward: Callable[..., Any] | None = None,
    meaning: Callable[..., Any] | None = None,
    kernel: Callable[..., Any] | None = None,
    keeps: str = "",
    lean: str = "",
    **rules: Rule | None,
) -> Op:
    """Add one operator.

    Parameters
    ----------
    name : the operator's name; unique.
    signature : operands and attributes, as `signature_of` reads them.
    flags : ELEMENTWISE, COMMUTATIVE, PURE, VIEW, REDUCES, MULTI, VARIADIC (operands are a list of tensors),
        FILLS (the kernel reads no values), FOLDS (the kernel copies operands whose leading axes cannot be seen as
        one), ONCE (torch saves something besides: a second run after one that frees the graph is refused).
    calls : torch callables that compute it, as `resolve` reads them, separated by blanks.
    joint : one rule that returns the cotangents of all operands.
    inplace : callables that compute it into operand 0; for ELEMENTWISE operators those
        spelled as the calls with an underscore behind are found without being named.
    bind : replaces the generated binder; raises TypeError for a call that the rules do not cover: then it is
        composed as `decompose` says of the same callable, or torch's own as a whole.
    forward : canonical call `forward(*operands, **attributes)`; default: the first of `calls`.
    kernel : `kernel(*operands, **attributes) -> (result, extra)`, run instead of the call where a
        gradient is wanted; `extra` is what the rules read under that name (statistics, indices, masks).  A kernel
        below torch's public function gets operands in the layouts that this one would have given it.
    meaning : the same value by elementary recordable operations, for fused kernels.
    keeps : operands, or `ans`, that torch saves though the rules do not read them: a write to one is refused.
    lean : `ans` where the rules do not need it when the second operand is a number.
    rules : operand name to rule.
    """
    operands, attributes, binder = signature_of(signature)
    if name in OPS:
        raise ValueError(f"operator {name!r} is defined twice")
    vjps = [keeping(make_vjp(rules.pop(o, None), operands, attributes), keeps.split(), operands) for o in operands]
    if rules:
        raise ValueError(f"{name}: rules for {sorted(rules)}, which are not operands")
    functions = [f for f in (resolve(c) for c in calls.split()) if f is not None]
    number = next(NUMBERS)
    if number >= MOST_OPERATORS:
        raise ValueError(f"operator {name!r} is one too many: a process has room for {MOST_OPERATORS - 1} definitions")
    op = Op(name, number, operands, attributes, flags | (HIDES if name in HIDING else 0), vjps,
            make_vjp(joint, operands, attributes), forward or (functions[0] if functions else None),
            HOT.get(name, 0), kernel)
    op.meaning = meaning
    op.lean = ANSWER if lean == "ans" else 0
    if OPS.setdefault(name, op) is not op:       # by another thread, meanwhile
        raise ValueError(f"operator {name!r} is defined twice")
    BINDERS[name] = bind or binder
    if getattr(forward, "primitive", False):
        functions.append(forward)
    for function in functions:
        CALLS.setdefault(function, name)
        default = getattr(function, "default", None)
        if default is not None:                  # of an operator of `torch.ops`, the overload that rules call
            CALLS.setdefault(default, name)
    if flags & ELEMENTWISE:
        inplace += "".join(f" {c}_" for c in calls.split() if not c.endswith("_"))
    for call in inplace.split():
        function = resolve(call)
        if function is not None:
            INPLACE.setdefault(function, name)
    return op


def choose(calls: str, pick: Callable[..., str | None]) -> None:
    """For overloaded callables: `pick(*args, **kwargs)` names the operator, or None for opaque."""
    for call in calls.split():
        function = resolve(call)
        if function is not None:
            CALLS[function] = pick


def spell(calls: str, target: str | Callable[..., str | None], bind: Binder) -> None:
    """Callables that compute an operator from arguments in another order; `target` as in `choose`."""
    for call in calls.split():
        function = resolve(call)
        if function is not None:
            SPELLINGS[function] = (target, bind)


def decompose(calls: str) -> Callable[[Rule], Rule]:
    """Register a Python function that computes `calls` by recordable calls."""
    def register(function: Rule) -> Rule:
        for call in calls.split():
            found = resolve(call)
            if found is not None:
                DECOMPOSE[found] = function if isinstance(found, FunctionType) else spelled(function)
        return function
    return register


def spelled(function: Rule) -> Rule:
    """Give `function` the names that torch's compiled code has for its arguments."""
    names = list(inspect.signature(function).parameters)
    first, second = (*names, "", "")[:2]
    words = {"axis": "dim", "keepdims": "keepdim", **dict.fromkeys(("input", "x", "a", "x1"), first),
             **dict.fromkeys(("other", "x2", "target"), second)}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name if name in names else words.get(name, name): x for name, x in kwargs.items()})
    return call


def rename(kwargs: dict[str, Any], operands: Iterable[str]) -> dict[str, Any]:
    """torch's and NumPy's spelling of keyword arguments, in the table's words."""
    names = tuple(operands)
    out = {}
    for key, value in kwargs.items():
        if key in ("input", "self") and names:
            key = names[0]
        elif key in ("other", "mat2", "vec2", "tensor2") and len(names) > 1 and key not in names:
            key = names[1]
        elif key == "axis":
            key = "dim"
        elif key == "keepdims":
            key = "keepdim"
        out[key] = value
    return out
