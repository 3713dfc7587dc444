"""Where an operation was asked for: the user's frames, and the path through modules.

Frames of torch, of this library and of the standard library's launcher are left out.  An
operation of a backward run also knows the line whose forward operation it differentiates.
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import os
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from autograd_opt.inspection import program_text

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
CALL = nn.Module._call_impl.__code__
OPTIMIZERS = os.path.join(TORCH, "optim") + os.sep
DEEPEST = 16
"""Frames kept, from the innermost outwards."""
MOST_SEQUENCES = 200_000


@dataclass(eq=False, slots=True)
class Spot:
    """One position in the user's code; two calls on one line are two spots.

    `Places` makes one object for each, so that chains of them are compared by identity.
    """

    file: str
    line: int
    function: str
    instruction: int
    text: str = ""
    """The expression that runs, as written."""
    backward: bool = False
    """The derivative of what stands there."""

    def __str__(self) -> str:
        text = f"{short(self.file)}:{self.line}"
        return f"derivative of {text}" if self.backward else text

    @property
    def installed(self) -> bool:
        """Is this an installed package's file, not the user's own?"""
        return "site-packages" in self.file or self.file.startswith(LIBRARY)


@dataclass(eq=False, slots=True)
class Place:
    """A chain of spots, outermost first, with what was seen there."""

    spots: tuple[Spot, ...]
    module: str
    in_optimizer: bool
    count: int = 0
    covered: int = 0
    """Operations here that repeat one of this same place, or that such a one repeats."""
    forward: Place | None = field(default=None, repr=False)
    derivative: Spot | None = field(default=None, repr=False)
    """The innermost spot, differentiated; made when it is first needed."""

    @property
    def innermost(self) -> Spot | None:
        """The innermost spot."""
        return self.spots[-1] if self.spots else None


def short(file: str) -> str:
    """A file name as people write it: relative where it is below the working folder, else its last two parts."""
    if file.startswith("<"):
        return file
    if (cell := program_text.cell_of(file)) is not None:
        return cell
    relative = os.path.relpath(file)
    if not relative.startswith(".."):
        return relative
    return os.sep.join(file.split(os.sep)[-2:])


NEW = Spot("", 0, "", 0)
"""Of an instruction that has not been met."""


class Places:
    """Finds and interns places."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []
        """Keeps alive whose addresses are keys of `seen`: a code object's own hash reads all of it."""
        self.seen: dict[tuple[int, int], Spot | None] = {}
        self.spots: dict[Any, Spot] = {}
        self.interned: dict[Any, Place] = {}
        self.sequences: dict[int, Place] = {}
        self.names: dict[int, tuple[nn.Module, str]] = {}
        self.outside: FrameType | None = None
        """The frame that called the watched block's function: it and its callers are of no interest."""

    def here(self, frame: FrameType | None, sequences: dict[int, Place] | None = None) -> Place:
        """The place of the operation that is running, `frame` being any frame of this library's above it.

        `sequences` are those of its thread, where that is not the one that entered the watch.
        """
        if sequences is None:
            sequences = self.sequences
        spots: list[Spot] = []
        modules: list[nn.Module] = []
        optimizer = False
        while frame is not None and frame is not self.outside and len(spots) < DEEPEST:
            code = frame.f_code
            key = (id(code), frame.f_lasti)
            spot = self.seen.get(key, NEW)
            if spot is NEW:
                spot = self.see(frame, key)
            if spot is not None:
                spots.append(spot)
            elif code is CALL:
                modules.append(frame.f_locals["self"])
            elif not optimizer and code.co_filename.startswith(OPTIMIZERS):
                optimizer = True
            frame = frame.f_back
        spots.reverse()
        module = self.path(modules) if modules else ""
        node = torch._C._current_autograd_node()
        forward = None
        if node is not None:
            forward = sequences.get(node._sequence_nr())
            if forward is not None and forward.spots:
                spots.append(forward.derivative or self.derivative_of(forward))
                module = module or forward.module
        interned = (*spots, module, optimizer)
        place = self.interned.get(interned)
        if place is None:
            place = self.interned[interned] = Place(tuple(spots), module, optimizer, forward=forward)
        if torch.is_grad_enabled():
            sequences.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
            if len(sequences) > MOST_SEQUENCES:
                for sequence in list(sequences)[:MOST_SEQUENCES // 4]:
                    del sequences[sequence]
        return place

    def see(self, frame: FrameType, key: tuple[int, int]) -> Spot | None:
        """The spot of an instruction that is met for the first time."""
        self.codes.append(frame.f_code)
        spot = spot_of(frame)
        self.seen[key] = spot = None if spot is None else self.one(spot)
        return spot

    def one(self, spot: Spot) -> Spot:
        """The one object for a spot."""
        return self.spots.setdefault((spot.file, spot.function, spot.instruction, spot.line, spot.backward), spot)

    def derivative_of(self, place: Place) -> Spot:
        """What stands innermost, differentiated."""
        inner = place.spots[-1]
        place.derivative = self.one(dataclasses.replace(inner, backward=True))
        return place.derivative

    def path(self, modules: list[nn.Module]) -> str:
        """The innermost of the modules by its name in the outermost: `ViT.blocks.3.attention`."""
        inner, root = modules[0], modules[-1]
        known = self.names.get(id(inner))
        if known is not None and known[0] is inner:
            return known[1]
        base = type(root).__name__
        for name, module in root.named_modules():
            self.names[id(module)] = (module, f"{base}.{name}" if name else base)
        if id(inner) not in self.names:
            # made during the call: no module of the model
            self.names[id(inner)] = (inner, f"{base}.({type(inner).__name__})")
        return self.names[id(inner)][1]


def spot_of(frame: FrameType) -> Spot | None:
    """The spot of a frame, None where it is not the user's."""
    file = frame.f_code.co_filename
    if file.startswith((TORCH, HERE, "<frozen")) or file == "<string>":
        return None
    if file.startswith(LIBRARY) and "site-packages" not in file:
        return None
    return Spot(file, frame.f_lineno, frame.f_code.co_name, frame.f_lasti, segment(frame.f_code, frame.f_lasti))


def segment(code: CodeType, instruction: int) -> str:
    """The source text of one instruction, where it stands on one line."""
    position = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    first, last, begin, end = position
    if first is None or first != last or begin is None or end is None:
        return ""
    line = linecache.getline(code.co_filename, first)
    return line.encode()[begin:end].decode(errors="replace")
