"""Ask a program that differs why: rounding alone, gradients equal but for rounding, gradients in one memory."""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import Any

import torch

from tests.fuzz.oracle import Difference, Mode, check, close, digits_of, eager, graphs, scale_of
from tests.fuzz.run import Outcome, execute, make_inputs, plain
from tests.programs import LEAVES, Program
from tests.scene import environment

Tensor = torch.Tensor


def left_by(program: Program) -> dict[str, Any]:
    """The variables of a program in torch eager, as far as it comes."""
    env = environment(make_inputs("plain"))
    torch.manual_seed(0)
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        for code in program.code:
            exec(code, env)
    return env


def shared_gradients(program: Program) -> frozenset[str]:
    """The variables whose `.grad` is, in torch eager, in the memory of another tensor's `.grad` at the end."""
    env = left_by(program)
    owners: dict[int, set[int]] = {}
    found: dict[str, int] = {}
    for name, t in env.items():
        if isinstance(t, Tensor) and (t.is_leaf or t.retains_grad) and t.grad is not None:
            found[name] = t.grad.untyped_storage()._cdata
            owners.setdefault(found[name], set()).add(id(t))
    return frozenset(f"{name}.grad" for name, memory in found.items() if len(owners[memory]) > 1)


def hidden_views(program: Program) -> frozenset[str]:
    """The variables that are, in torch eager, views of memory that is no variable's."""
    env = left_by(program)
    seen = {id(t) for t in env.values() if isinstance(t, Tensor)}
    return frozenset(n for n, t in env.items() if isinstance(t, Tensor) and t._is_view() and id(t._base) not in seen)


def written_through(program: Program) -> frozenset[str]:
    """The variables in whose memory, in torch eager, a leaf's `.grad` lies: what is added there reaches them."""
    env = left_by(program)
    tensors = {n: t for n, t in env.items() if isinstance(t, Tensor) and t.layout is torch.strided}
    gradients = {t.grad.untyped_storage()._cdata for t in tensors.values()
                 if t.is_leaf and t.grad is not None and t.grad.layout is torch.strided}
    return frozenset(n for n, t in tensors.items() if t.untyped_storage()._cdata in gradients)


def told(program: Program, mode: Mode | None) -> list[tuple[int, str]]:
    """What a program tells in a mode; in torch eager without one."""
    if mode is None:
        return eager(program).told
    with graphs(mode) as session:
        return execute(program, make_inputs(mode["kind"]), session=session).told


def held_as_saved(program: Program, modes: tuple[Mode, ...]) -> bool:
    """Do all tell the same once torch eager saves aliases, and so holds no tensor object of the user's?

    Transforms refuse such hooks: their statements are left as they are.
    """
    hooks = "with graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t): "
    apart = re.compile(r"^(with|for|if) |func\.|functional\.|vmap\(")
    theirs = told(Program([line if apart.search(line) else hooks + line for line in program.statements]), None)
    return all(told(program, mode)[-1:] == theirs[-1:] for mode in modes)        # what the last statement tells


def counted_alike(program: Program, place: int, name: str, modes: tuple[Mode, ...]) -> bool:
    """Does the version of a variable grow alike from where it is made up to this statement?"""
    made = [k for k, line in enumerate(program.statements[:place])
            if re.match(rf"(with [^:]*: )?([\w, ]*, )?{name}(,[\w, ]*)? = ", line)]
    if not made:
        return False
    lines = list(program.statements[:place + 1])
    lines.insert(made[-1] + 1, f"tell(({name}._version,))")
    grown = set()
    for mode in (None, *modes):
        try:
            numbers = [eval(text) for k, text in told(Program(lines), mode) if k in (made[-1] + 1, place + 1)]
            grown.add(numbers[1] - numbers[0][0])
        except Exception:
            return False
    return len(grown) == 1


EPSILON = {torch.float32: 2.0**-22, torch.float64: 2.0**-50, torch.complex128: 2.0**-50}
"""A few units in the last place."""


def chaotic(program: Program) -> frozenset[str]:
    """What is nothing but rounding: eager mode's own numbers differ, beyond all tolerance, between inputs that do not.

    All inputs grow, or shrink, by one factor, so that equal ones stay equal.  Changes of one sign are compared with
    each other: a threshold that an input meets exactly is crossed by all of them, and no reason to look away.
    """
    reference = eager(program)
    scale, digits = scale_of(reference), digits_of(reference, program)

    def moved(units: int) -> Outcome:
        inputs = {k: t.detach().requires_grad_(k in LEAVES) for k, t in make_inputs("plain").items()}
        with torch.no_grad():
            for t in inputs.values():
                if t.dtype in EPSILON:
                    t.mul_(1 + units * EPSILON[t.dtype])
        return execute(program, inputs)

    found = set()
    for sign in (1, -1):
        first, *others = [numbers(moved(sign * units)) for units in range(1, 7)]
        for other in others:
            found.update(k for k in first.keys() & other.keys() if not close(first[k], other[k], scale, digits))
    return frozenset(found)


def fed(program: Program, mode: Mode) -> Exception | None:
    """The difference that is left when torch eager goes on with this library's gradients, where they equal its own.

    They do within the tolerance; a quotient by a gradient that is 0, or 1e-16, has none.
    """
    given: list[dict[str, Tensor]] = []

    def gradients(env: dict[str, Any], k: int) -> dict[str, Tensor]:
        words = re.findall(r"\w+", program.statements[k].partition("=")[0])
        found = {n: env[n] for n in words if n in program.loose and isinstance(env.get(n), Tensor)}
        with torch._C.DisableTorchFunction():
            found.update((f"{n}.grad", t.grad) for n, t in env.items() if n in LEAVES and t.grad is not None)
        return found

    def read(k: int, env: dict[str, Any]) -> None:
        given.append({n: plain(t) for n, t in gradients(env, k).items()} if derives(k) else {})

    def write(k: int, env: dict[str, Any]) -> None:
        for name, t in gradients(env, k).items() if k < len(given) and derives(k) else ():
            if name in given[k] and close(given[k][name], plain(t), scale, digits):
                with contextlib.suppress(RuntimeError):      # one number in the memory of many, or none
                    t.data.copy_(given[k][name])

    def derives(k: int) -> bool:
        return ".backward(" in program.statements[k] or "autograd.grad(" in program.statements[k]

    first = eager(program)
    scale, digits = scale_of(first), digits_of(first, program)
    inputs = make_inputs(mode["kind"])
    with graphs(mode) as session:
        mine = execute(program, inputs, read, session)
    try:
        check(execute(program, make_inputs("plain"), write), mine, program, "with the same gradients")
    except Difference as error:
        return error
    return None


def numbers(outcome: Outcome) -> dict[str, Tensor]:
    """Every tensor of an outcome, by what a difference in it is called."""
    found = {name: s.value for name, s in outcome.sights.items()}
    found.update((f"{name}.grad", s.grad) for name, s in outcome.sights.items() if s.grad is not None)
    found.update((f"hook {key}", torch.cat([g.flatten() for g in seen])) for key, seen in outcome.seen.items())
    return found
