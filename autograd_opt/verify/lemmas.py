# ruff: noqa: E501 (a case is one line)
"""The lemmas that the checker composes, each proved by sympy.

For every operator with a meaning: its rule is the derivative of <g, f(x)>, elementwise on
small shapes of pairwise distinct sizes (broadcasting included), in every case of its kinks,
and linear in g.  For every line of `checker.LINEAR`: the operator is linear there.  A proof
is remembered under the hash of what the rule was traced to, the files that say what
operators mean, and sympy's version; `prove_all(cache=False)` proves everything anew.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch

from autograd_opt.ops.table import OPS
from autograd_opt.verify import domain, evaluate, meaning, symbols
from autograd_opt.verify.checker import JOINTLY, LINEAR, joint_slots, slots
from autograd_opt.verify.domain import Outside, TooLarge
from autograd_opt.verify.evaluate import apply, known
from autograd_opt.verify.ir import Head, Vocabulary, encode
from autograd_opt.verify.symbols import NeedCase, Symbols, fresh, is_zero
from autograd_opt.verify.trace import Untraceable, trace_rule

MAX_CASES = 243


@dataclass(frozen=True)
class Case:
    """One instance of an operator: operand shapes, attributes, which operands are positive or integers."""

    shapes: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    positive: tuple[int, ...] = ()
    values: dict[int, Any] = field(default_factory=dict)
    needs: tuple[int, ...] | None = None

    def __hash__(self) -> int:
        return hash(repr(self))


def on(*shapes: Any, positive: Any = (), values: Any = None, needs: Any = None, **attributes: Any) -> Case:
    """A case in one call; `positive=True` means all operands."""
    wanted = tuple(range(len(shapes))) if positive is True else tuple(positive)
    return Case(shapes, attributes, wanted, values or {}, needs)


def each(names: str, *cases: Case) -> dict[str, tuple[Case, ...]]:
    return dict.fromkeys(names.split(), cases)


I0 = {1: np.array([2, 0, 2])}
CASES: dict[str, tuple[Case, ...]] = {
    # ----- elementwise -----
    **each("neg positive square sin cos tan sinh cosh asinh atan tanh exp exp2 expm1 erf erfc sigmoid silu log_sigmoid "
           "ndtr digamma lgamma deg2rad rad2deg", on((2,))),
    **each("reciprocal log log2 log10 log1p sqrt rsqrt entr sinc", on((2,), positive=True)),
    **each("asin acos atanh acosh erfinv", on((2,))),
    "polygamma": (on((2,), n=1),),
    "gelu": (on((1,)), on((1,), approximate="tanh")),
    **each("add sub rsub", on((2, 3), (3,)), on((2, 1), (3,)), on((2,), (2,), alpha=3)),
    **each("mul div", on((2, 3), (3,)), on((2, 1), (3,))),
    **each("addcmul addcdiv", on((2,), (2,), (2,), value=3)),
    "lerp": (on((2,), (2,), (2,)),),
    **each("hypot xlogy xlog1py logaddexp", on((2,), (2,), positive=True)),
    "atan2": (on((2,), (2,), positive=(1,)),),
    "pow": (on((2,), (2,), positive=True),),
    # ----- kinks -----
    **each("abs relu leaky_relu hardtanh relu6 hardsigmoid softshrink", on((2,))),
    "elu": (on((1,)), on((1,), alpha=2.0, scale=3.0)), "celu": (on((1,), alpha=2.0),),
    "softplus": (on((1,), beta=2),), "threshold": (on((1,), threshold=0, value=0),),
    "prelu_kernel": (on((2,), (2,)),),
    **each("maximum minimum clamp_min clamp_max", on((2, 1), (1,))),
    "clamp": (on((2,), None, None, min=-1.0, max=2.0), on((2,), None, None, min=0)),
    **each("amax amin", on((2,)), on((2, 2), dim=1), on((2, 1), dim=0, keepdim=True)),
    **each("max_all min_all", on((2,))),
    **each("where", on((2,), (2,), (2,), values={0: np.array([True, False])}, needs=(1, 2)),
           on((2, 3), (3,), (2, 1), values={0: np.arange(6).reshape(2, 3) % 2 == 0}, needs=(1, 2))),
    "where_method": (on((2,), (2,), (2,), values={1: np.array([True, False])}, needs=(0, 2)),),
    "masked_fill": (on((2,), (2,), None, values={1: np.array([True, False])}, needs=(0,), value=0),),
    # ----- reductions -----
    **each("sum mean", on((2, 3)), on((2, 3), dim=1), on((2, 3, 1), dim=(0, 2), keepdim=True)),
    "sum_to_size": (on((2, 3), size=(1, 3)), on((2, 3), size=(3,))),
    "logsumexp": (on((2, 3), dim=1), on((2, 3), dim=(0, 1), keepdim=True)),
    **each("var std", on((3,)), on((2, 3), dim=1, correction=0, keepdim=True)),
    "cumsum": (on((2, 3), dim=1),),
    "vector_norm": (on((3,), positive=True),),
    "prod": (on((3,), positive=True),),
    # ----- softmax and losses -----
    **each("softmax log_softmax", on((2, 3), dim=1), on((3, 2), dim=0)),
    "glu": (on((2, 4), dim=1),),
    "mse_loss": (on((2, 3), (2, 3)), on((2,), (2,), reduction=2), on((2,), (2,), reduction=0)),
    "smooth_l1_loss": (on((1,), (1,), beta=2.0),), "huber_loss": (on((1,), (1,), delta=2.0),),
    "soft_margin_loss": (on((2,), (2,), needs=(0,)),),
    "binary_cross_entropy_with_logits": (on((2,), (2,), None, None),),
    "layer_norm": (on((2, 3), (3,), (3,), normalized_shape=[3]),),
    "nll_loss": (on((2, 3), (2,), values={1: np.array([2, 0])}, needs=(0,)),),
    # ----- products -----
    "matmul": (on((2, 3), (3, 4)), on((3,), (3,)), on((2, 3), (3,)), on((3,), (3, 2)), on((2, 2, 3), (3, 2)),
               on((2, 1, 3), (2, 3, 2))),
    "mm": (on((2, 3), (3, 4)),), "bmm": (on((2, 2, 3), (2, 3, 1)),), "mv": (on((2, 3), (3,)),),
    **each("dot vdot", on((3,), (3,))), "outer": (on((2,), (3,)),),
    "linear": (on((2, 3), (4, 3), (4,)), on((2, 3), (4, 3), None)),
    "einsum": (on((2, 3), (3, 4), equation="ij,jk->ik"), on((2, 3), (3,), equation="ij,j->j"), on((2, 3), equation="ij->j")),
    "addmm": (on((2, 4), (2, 3), (3, 4), alpha=2, beta=3),), "baddbmm": (on((2, 2, 1), (2, 2, 3), (2, 3, 1), alpha=2),),
    "addbmm": (on((2, 1), (2, 2, 3), (2, 3, 1), beta=2),), "addmv": (on((2,), (2, 3), (3,), alpha=2),),
    "addr": (on((2, 3), (2,), (3,), beta=2),), "trace": (on((2, 2)),),
    # ----- data movement -----
    **each("reshape view", on((2, 3), shape=(3, 2))), **each("unsafe_view reshape_alias", on((2, 3), size=(3, 2))),
    **each("ravel", on((2, 3))), "flatten": (on((2, 3, 2), start_dim=1),),
    "unflatten": (on((2, 6), dim=1, sizes=(2, 3)),),
    **each("squeeze", on((2, 1, 3), dim=(1,))), "unsqueeze": (on((2, 3), dim=1),), "permute": (on((2, 3, 4), dims=(2, 0, 1)),),
    "transpose": (on((2, 3, 1), dim0=0, dim1=1),), **each("t T mT H mH", on((2, 3))),
    "movedim": (on((2, 3, 4), source=0, destination=2),),
    **each("expand broadcast_to", on((2, 1), size=(2, 3)), on((3,), size=(2, 3))),
    "expand_as": (on((2, 1), (2, 3), needs=(0,)),), **each("view_as reshape_as", on((2, 3), (3, 2), needs=(0,))),
    "narrow": (on((2, 4), dim=1, start=1, length=2),), "select": (on((2, 3), dim=1, index=1),),
    "slice": (on((3, 4), index=(slice(None), slice(1, 3))), on((3, 4), index=(1,))),
    **each("tril triu", on((3, 3)), on((2, 3), diagonal=1)), **each("flip", on((2, 3), dims=(1,))),
    **each("fliplr flipud", on((2, 3))), "rot90": (on((2, 3), k=1, dims=(0, 1)),), "roll": (on((2, 3), shifts=1, dims=(1,)),),
    **each("repeat", on((2, 3), repeats=(2, 1))), "tile": (on((2, 3), dims=(2, 1)),),
    "pad": (on((2, 3), pad=(1, 2), mode="constant"),), "constant_pad_nd": (on((2, 3), pad=(1, 2)),),
    "diag_embed": (on((2, 3)),), "cat": (on((2, 3), (1, 3), dim=0), on((2, 1), (2, 2), dim=1)),
    "stack": (on((2, 3), (2, 3), dim=1),),
    "index_select": (on((3, 2), (3,), values=I0, dim=0, needs=(0,)),),
    "gather": (on((3, 2), (2, 2), values={1: np.array([[2, 0], [2, 1]])}, dim=0, needs=(0,)),),
    "take": (on((3, 2), (3,), values={1: np.array([2, 5, 2])}, needs=(0,)),),
    "index_add": (on((3, 2), (2,), (2, 2), values={1: np.array([1, 1])}, dim=0, needs=(0, 2)),),
    "scatter_add": (on((3, 2), (2, 2), (2, 2), values={1: np.array([[2, 0], [2, 1]])}, dim=0, needs=(0, 2)),),
    "index": (on((3, 2), (3,), values=I0, index=("#",), needs=(0,)),),
    **each("split", on((5, 2), split_size=2, dim=0)), "chunk": (on((4, 2), chunks=2, dim=0),),
    "split_with_sizes": (on((3, 2), split_sizes=(1, 2), dim=0),), "unbind": (on((2, 3), dim=1),),
    "conv1d": (on((1, 2, 4), (1, 2, 2), (1,), stride=[1], padding=[1], dilation=[1], groups=1),),
    "conv2d": (on((1, 2, 3, 3), (2, 2, 2, 2), (2,), stride=[1, 2], padding=[1, 0], dilation=[1, 1], groups=1),
               on((1, 2, 2, 3), (2, 2, 1, 2), None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1)),
    "conv3d": (on((1, 1, 2, 2, 2), (1, 1, 2, 1, 2), (1,), stride=[1, 1, 1], padding=[0, 0, 0], dilation=[1, 1, 1], groups=1),),
    "diagonal": (on((2, 3), offset=0), on((3, 3), offset=1)),
    "diagonal_backward": (on((2,), shape=(2, 3)),), "place": (on((2,), shape=(2, 3), index=(slice(None), 1)),),
    "place_add": (on((3, 2), (3,), values=I0, shape=(3, 2), index=("#",), needs=(0,)),),
    **each("conj conj_physical resolve_conj resolve_neg real", on((2,))),
    # ----- fused kernels, by the formulas of the operator table; their rules serve second derivatives -----
    **each("tanh_backward sigmoid_backward silu_backward", on((2,), (2,))),
    "threshold_backward": (on((2,), (2,)),), "leaky_relu_backward": (on((2,), (2,)),), "elu_backward": (on((1,), (1,)),),
    "softplus_backward": (on((1,), (1,), beta=2),), "gelu_backward": (on((1,), (1,)),),
    **each("softmax_backward log_softmax_backward", on((2, 3), (2, 3), dim=1, dtype=torch.float64)),
    "mse_loss_backward": (on((), (2,), (2,)),),
}


@dataclass(frozen=True)
class Proof:
    """One line of the table of lemmas."""

    op: str
    claim: str
    status: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def proved(self) -> bool:
        return self.status == "proved"


def prove(op: str) -> list[Proof]:
    """All lemmas about one operator, one after the other."""
    out = []
    for claim, run in (("gradient", gradient), ("linear", linearity), ("jointly", joint_linearity)):
        if (claim == "linear" and op not in LINEAR) or (claim == "jointly" and op not in JOINTLY):
            continue
        if claim == "gradient" and not any(OPS[op].vjps) and OPS[op].joint is None:
            continue
        start = time.perf_counter()
        try:
            notes: set[str] = set()
            for case in CASES[op]:
                wrong = run(op, case, notes)
                if wrong:
                    out.append(Proof(op, claim, "refuted", wrong, time.perf_counter() - start))
                    break
            else:
                detail = f"where {', '.join(sorted(notes))} is not 0" if notes else ""
                out.append(Proof(op, claim, "proved", detail, time.perf_counter() - start))
        except (Outside, Untraceable, TooLarge) as error:
            out.append(Proof(op, claim, "undecided", str(error), time.perf_counter() - start))
        except Exception as error:
            out.append(Proof(op, claim, "undecided", f"{type(error).__name__}: {error}", time.perf_counter() - start))
    return out


# ----- one instance -----
def instance(op: str, case: Case) -> tuple[Vocabulary, list[int | None], list[Any]]:
    """Vocabulary, operand types and symbols of a case."""
    vocabulary = Vocabulary()
    types: list[int | None] = []
    args: list[Any] = []
    for k, shape in enumerate(case.shapes):
        if shape is None:
            types.append(None)
            args.append(None)
        elif k in case.values:
            value = case.values[k]
            types.append(vocabulary.type(shape, torch.bool if value.dtype == bool else torch.int64, "cpu"))
            args.append(value)
        else:
            types.append(vocabulary.type(shape, torch.float64, "cpu"))
            args.append(fresh("xyzuvw"[k], shape, k in case.positive))
    return vocabulary, types, args


def coded(op: str, attributes: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    defaults = OPS[op].attributes
    return tuple(sorted((k, encode(v)) for k, v in attributes.items() if k not in defaults or encode(defaults[k]) != encode(v)))


def typed(vocabulary: Vocabulary, value: Any) -> int:
    """The type of a computed value (a tuple for several outputs)."""
    if isinstance(value, tuple):
        return vocabulary.type(tuple((v.shape, torch.float64, "cpu") for v in value), None, None)
    return vocabulary.type(value.shape, torch.float64, "cpu")


def forward(D: Symbols, op: str, case: Case, vocabulary: Vocabulary, types: Sequence[int | None], args: Sequence[Any]) -> tuple[Head, Any]:
    """The operator's value, and its head."""
    attributes = coded(op, case.attributes)
    guess = next(t for t, s in zip(types, case.shapes, strict=True) if t is not None)
    present = [a for a in args if a is not None]
    kinds = [t for t in types if t is not None]
    value = apply(D, vocabulary, Head(op, attributes, guess, True, 0), present, kinds)
    number = vocabulary.head(op, attributes, typed(vocabulary, value), True, 0)
    return vocabulary.heads[number], value


def by_cases(run: Any, notes: set[str]) -> str:
    """Run in every case of the signs that matter; the first failure, or an empty string.

    Where an expression is not linear in any symbol, the case that it is 0 is left out and noted.
    """
    pending: list[tuple[tuple[Any, int], ...]] = [()]
    done = 0
    while pending:
        cases = pending.pop()
        if cases and cases[-1][1] == 0 and not solvable(cases):
            notes.add(str(cases[-1][0]))
            continue
        try:
            domain = Symbols(cases)
            wrong = run(domain)
            notes.update(map(str, domain.generic))
        except NeedCase as need:
            if not consistent(cases, need.difference):
                raise Outside(f"the sign of {need.difference}") from need
            pending += [(*cases, (need.difference, s)) for s in (1, 0, -1)]
            continue
        if wrong:
            return f"{wrong} in the case {[(str(d), s) for d, s in cases]}" if cases else str(wrong)
        done += 1
        if done + len(pending) > MAX_CASES:
            raise Outside("too many cases")
    return ""


def solvable(cases: Any) -> bool:
    try:
        Symbols(cases)
    except Outside:
        return False
    return True


def consistent(cases: Any, difference: Any) -> bool:
    return all(difference != d for d, _ in cases)


def gradient(op: str, case: Case, notes: set[str]) -> str:
    """Is the rule the derivative of <g, f(x)>, and linear in g?  The first difference, or an empty string."""
    def run(D: Symbols) -> str:
        vocabulary, types, args = instance(op, case)
        head, ans = forward(D, op, case, vocabulary, types, args)
        many = isinstance(ans, tuple)
        if many:
            g = [fresh(f"g{k}_", a.shape) for k, a in enumerate(ans)]
            pairing = sum(((gk * ak).sum() for gk, ak in zip(g, ans, strict=True)), sympy.Integer(0))
        else:
            g = [fresh("g", np.shape(ans))]
            pairing = np.asarray(g[0] * ans).sum()
        needs = [types[k] is not None and k not in case.values and (case.needs is None or k in case.needs)
                 for k in range(len(types))]
        template = trace_rule(vocabulary, OPS[op], head, types, needs, [True] * len(g) if many else None)
        env: list[Any] = [*g, None if many else ans, *args]
        kinds: list[Any] = [vocabulary.type(v.shape, torch.float64, "cpu") for v in g] + [head.type, *types]
        for number, refs in template.steps:
            inner = vocabulary.heads[number]
            env.append(apply(D, vocabulary, inner, [env[r] for r in refs], [kinds[r] for r in refs]))
            kinds.append(inner.type)
        results = dict(template.results)
        gs = [s for part in g for s in part.reshape(-1)]
        for k, need in enumerate(needs):
            if not need:
                continue
            found = np.broadcast_to(np.asarray(env[results[k]], dtype=object), args[k].shape) if k in results else \
                D.array(0, args[k].shape)
            for x, e in zip(args[k].reshape(-1), found.reshape(-1), strict=True):
                e = sympy.sympify(e)
                expected = sympy.diff(pairing, x)
                if not is_zero(D.settled(e - expected)):
                    return f"d/d{x}: the rule gives {D.settled(e)}, the derivative is {D.settled(expected)}"
                wrong = not_linear(D.settled(e), gs)
                if wrong:
                    return wrong
        return ""
    return by_cases(run, notes)


def not_linear(e: Any, gs: list[Any]) -> str:
    """Linear and homogeneous in the cotangent?"""
    if not is_zero(e.subs(dict.fromkeys(gs, 0), simultaneous=True)):
        return f"{e} is not 0 for a cotangent of 0"
    for s in gs:
        if s in e.free_symbols and not is_zero(sympy.diff(e, s, 2)):
            return f"{e} is not linear in {s}"
    for s in gs:
        d = sympy.diff(e, s)
        if any(t in sympy.expand(d).free_symbols for t in gs) and not all(is_zero(sympy.diff(d, t)) for t in gs):
            return f"{e} is not linear in the cotangent"
    return ""


def linearity(op: str, case: Case, notes: set[str]) -> str:
    """Is the operator linear where `checker.LINEAR` says so?"""
    def run(D: Symbols) -> str:
        vocabulary, types, args = instance(op, case)
        kinds = [t for t in types if t is not None]
        present = [a for a in args if a is not None]
        head, _ = forward(D, op, case, vocabulary, types, args)
        floating = [vocabulary.types[t].dtype == "float64" for t in kinds]
        a, b = sympy.symbols("a b", real=True)
        for slot in slots(head, floating):
            u, v = fresh("s", present[slot].shape), fresh("t", present[slot].shape)

            def at(value: Any, slot: int = slot) -> Any:
                out = apply(D, vocabulary, head, [*present[:slot], value, *present[slot + 1:]], kinds)
                return out if isinstance(out, tuple) else (out,)

            for whole, left, right in zip(at(a * u + b * v), at(u), at(v), strict=True):
                for e in np.asarray(whole - a * left - b * right).reshape(-1):
                    if not is_zero(D.settled(sympy.sympify(e))):
                        return f"operand {slot}: {e} is not 0"
        return ""
    return by_cases(run, notes)


def joint_linearity(op: str, case: Case, notes: set[str]) -> str:
    """Is the operator linear in the operands of `checker.JOINTLY` taken together?"""
    def run(D: Symbols) -> str:
        vocabulary, types, args = instance(op, case)
        kinds = [t for t in types if t is not None]
        present = [a for a in args if a is not None]
        head, _ = forward(D, op, case, vocabulary, types, args)
        together = joint_slots(head, [vocabulary.types[t].dtype == "float64" for t in kinds])
        a, b = sympy.symbols("a b", real=True)
        u = {k: fresh(f"s{k}_", present[k].shape) for k in together}
        v = {k: fresh(f"t{k}_", present[k].shape) for k in together}

        def at(values: dict[int, Any]) -> Any:
            return apply(D, vocabulary, head, [values.get(k, x) for k, x in enumerate(present)], kinds)

        whole = at({k: a * u[k] + b * v[k] for k in together})
        for e in np.asarray(whole - a * at(u) - b * at(v)).reshape(-1):
            if not is_zero(D.settled(sympy.sympify(e))):
                return f"together: {e} is not 0"
        return ""
    return by_cases(run, notes)


# ----- all of them -----
def cache_path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "autograd_opt" / "lemmas.json"


def fingerprint(op: str) -> str:
    """A hash of everything a proof about this operator depends on."""
    h = hashlib.sha256()
    for module in (domain, evaluate, meaning, symbols):
        h.update(inspect.getsource(module).encode())
    h.update(inspect.getsource(inspect.getmodule(fingerprint)).encode())  # type: ignore[arg-type]
    h.update(f"{sympy.__version__}|{op}|{CASES[op]!r}|{LINEAR.get(op)}|{JOINTLY.get(op)}".encode())
    for case in CASES[op]:
        try:
            vocabulary, types, args = instance(op, case)
            head, _ = forward(Symbols(), op, case, vocabulary, types, args)
            needs = [t is not None and k not in case.values for k, t in enumerate(types)]
            template = trace_rule(vocabulary, OPS[op], head, types, needs)
            h.update(repr(([vocabulary.heads[n][:2] for n, _ in template.steps], template)).encode())
        except Exception:  # what cannot be traced without cases is hashed by its source
            for vjp in [*OPS[op].vjps, OPS[op].joint]:
                if vjp is not None:
                    h.update(source_of(vjp.fn).encode())
    return h.hexdigest()


def source_of(fn: Any) -> str:
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return repr(fn.__code__.co_code) if hasattr(fn, "__code__") else repr(fn)


def prove_all(cache: bool = True, seconds: float = 10.0, ops: Sequence[str] | None = None) -> list[Proof]:
    """Prove every lemma, each operator within `seconds`, in a subprocess that is ended when it takes longer.

    Parameters
    ----------
    cache : use and update the file of earlier proofs; False proves everything anew.
    seconds : limit for one operator.
    ops : only these.

    Returns
    -------
    list of Proof : one per operator and claim; `undecided` where sympy or time did not suffice.
    """
    names = [n for n in (ops or CASES) if n in OPS and known(n)]
    remembered: dict[str, Any] = {}
    path = cache_path()
    if cache and path.exists():
        try:
            remembered = json.loads(path.read_text())
        except ValueError:
            remembered = {}
    out: list[Proof] = []
    missing = []
    keys = {n: fingerprint(n) for n in names} if cache else {}
    for n in names:
        if cache and keys[n] in remembered:
            out += [Proof(*row) for row in remembered[keys[n]]]
        else:
            missing.append(n)
    for n, proofs in in_subprocess(missing, seconds):
        out += proofs
        if cache and all(p.proved for p in proofs):
            remembered[keys[n]] = [(p.op, p.claim, p.status, p.detail, p.seconds) for p in proofs]
    if cache and missing:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(remembered))
        except OSError:
            pass
    return out


def in_subprocess(names: Sequence[str], seconds: float) -> Iterator[tuple[str, list[Proof]]]:
    """Prove in a child process; end it and start another when one operator takes too long."""
    queue = list(names)
    context = multiprocessing.get_context("fork")
    while queue:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(sender, list(queue)), daemon=True)
        child.start()
        sender.close()
        while queue:
            try:
                if not receiver.poll(seconds):
                    yield queue[0], [Proof(queue[0], "gradient", "undecided", f"no answer in {seconds} s", seconds)]
                    queue.pop(0)
                    break
                name, proofs = receiver.recv()
            except EOFError:
                yield queue[0], [Proof(queue[0], "gradient", "undecided", "the process ended")]
                queue.pop(0)
                break
            queue.pop(0)
            yield name, proofs
        child.kill()
        child.join()
        receiver.close()


def _work(sender: Any, names: list[str]) -> None:
    for name in names:
        sender.send((name, prove(name)))
    sender.close()


def table(proofs: Sequence[Proof]) -> str:
    """The table of operators as markdown: proved, or why not, and operators that are only tested."""
    by_op: dict[str, dict[str, Proof]] = {}
    for p in proofs:
        by_op.setdefault(p.op, {})[p.claim] = p
    rows = ["| operator | own rule | gradient | linear | |", "|---|---|---|---|---|"]
    for name, op in OPS.items():
        if name in ("leaf", "output"):
            continue
        rule = "yes" if op.joint is not None or any(op.vjps) else "no"
        found = by_op.get(name, {})
        g, li = found.get("gradient"), found.get("linear")
        note = "; ".join(p.detail for p in found.values() if p.detail)[:80].replace("|", "\\|")
        rows.append(f"| {name} | {rule} | {g.status + ', small shapes' if g else 'tested only'} | "
                    f"{li.status if li else ''} | {note} |")
    return "\n".join(rows)


__all__ = ["CASES", "Case", "Proof", "prove", "prove_all", "table"]

if __name__ == "__main__":
    found = prove_all(cache=False)
    print(table(found))
    print(f"\n{len({p.op for p in found if p.proved and p.claim == 'gradient'})} operators with a proved rule, "
          f"{sum(p.seconds for p in found):.1f} s")
