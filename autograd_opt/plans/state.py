"""What a function can see besides its arguments: closures, globals that it names, modules, attributes of objects.

`Reached` lists it as entries, to be compared before each call: a plan is for one state.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from autograd_opt.abi import torch_private as private
from autograd_opt.plans import replay
from autograd_opt.plans.capture import Unrepeatable
from autograd_opt.plans.objects import (
    MANAGER,
    incomparable,
    name_of_referent,
    of_library,
    reading,
    referent,
    state_of_generator,
)

MOST_OBJECTS = 4000
"""Objects that are looked into, at most; a function that reaches more is recorded at each call."""
PLAIN = (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, torch.memory_format)
CONTAINERS = (list, tuple, set, frozenset, dict, deque)
BARE = frozenset({*CONTAINERS, OrderedDict, defaultdict})
"""Classes of objects that hold elements and nothing else."""
SEEN = (*PLAIN, *CONTAINERS, torch.Tensor, nn.Module, torch.optim.Optimizer, functools.partial, types.MethodType,
        types.FunctionType)
"""Kinds of attributes that are looked into also where no code names them, whatever package their class is from."""
UNSEEN = ("typing", "logging", "autograd_opt", "inspect", "re", "torch._ops", "torch._C")
"""Modules of classes whose objects hold nothing that a result depends on, or only what kernels show."""
QUIET = frozenset({object, nn.Module, torch.optim.Optimizer, torch.autograd.Function})
HOLDERS = ("abc", "typing", "types", "argparse")
"""Classes of libraries, and modules of such classes, that call only special methods and `IMPLICIT` ones themselves."""
IMPLICIT = frozenset({"forward", "backward", "setup_context", "jvp", "vmap", "__getattr__", "__match_args__"})
MAKING = frozenset({"__init__", "__new__", "__post_init__"})
"""Methods that are called where a class is."""
ASIDE = MAKING | {"__repr__", "__str__", "__format__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__",
                  "__copy__", "__deepcopy__", "__del__", "__init_subclass__", "__class_getitem__", "__sizeof__"}
"""Special methods that no operator calls."""
METHODS = (types.FunctionType, staticmethod, classmethod, property)

Entry = tuple[Any, Any, Any]
"""A dictionary, a key, and the value that was there; or with None for the key a dictionary, list, set, cell or function
and what it held as a whole, or another function and what it told."""


def names_of(code: types.CodeType) -> Iterator[str]:
    """The global names and attributes that code mentions, also as strings, those of inner functions included."""
    yield from code.co_names
    yield from words(code.co_consts)


def words(constant: Any) -> Iterator[str]:
    """The names in a constant: of inner functions, in tuples, and the parts of `"module.name"`."""
    if isinstance(constant, types.CodeType):
        yield from names_of(constant)
    elif isinstance(constant, (tuple, frozenset)):
        for part in constant:
            yield from words(part)
    elif isinstance(constant, str) and all(part.isidentifier() for part in constant.split(".")):
        yield constant
        yield from constant.split(".")


def imports_of(code: types.CodeType) -> Iterator[str]:
    """The modules that code may import, or take from `sys.modules`, as it names them."""
    if dis.opmap["IMPORT_NAME"] in code.co_code[::2]:          # to take all code apart takes long
        for one in dis.get_instructions(code):
            if one.opname in ("IMPORT_NAME", "IMPORT_FROM"):
                yield one.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from imports_of(constant)
        else:
            yield from words(constant)


def modules_of(one: types.FunctionType) -> Iterator[str]:
    """The program's modules that a function may import, by the names that `sys.modules` has for them."""
    package = one.__globals__.get("__package__") or ""
    places = ["", *(package.rsplit(".", k)[0] + "." for k in range(package.count(".") + 1) if package)]
    for name in dict.fromkeys(imports_of(one.__code__)):
        for place in places:
            if isinstance(sys.modules.get(place + name), types.ModuleType) and not of_library(place + name):
                yield place + name


def dictionary_of(kind: type) -> Any:
    """The dictionary of a class, of which its `__dict__` is a proxy."""
    (found,) = gc.get_referents(kind.__dict__)
    return found


def elements_of(one: Any) -> list[Any]:
    """The elements of a container, whatever its class says of its length or order."""
    (kind,) = [kind for kind in CONTAINERS if isinstance(one, kind)]
    return list(kind.__iter__(one))


def slots_of(one: Any, names: tuple[str, ...]) -> list[Any]:
    """What stands in the slots of an object."""
    return [getattr(one, name, replay.MISSING) for name in names]


def is_own(kind: type) -> bool:
    """True if the code of a class is the program's, or calls nothing of the program's that code does not name."""
    return not any(
        of_library(base.__module__) and base not in QUIET and base.__module__ not in HOLDERS
        for base in kind.__mro__
    )


class Space:
    """Keys of a dictionary that a function sees only where it names them."""

    def __init__(self, where: Any, keys: Iterable[str], noted: bool = False) -> None:
        self.where, self.keys = where, set(keys)
        self.noted = noted
        """Is the dictionary compared as a whole, so that only what its values lead to is missing?"""

    def named(self, names: set[str]) -> list[str]:
        """The keys that are named now and were not before."""
        found = self.keys & names
        self.keys -= found
        return sorted(found)


class Reached:
    """Everything that a function reaches, object by object."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.tensors: list[torch.Tensor] = []
        self.draws: list[tuple[Callable[[], Any], Any]] = []
        """Generators of random numbers outside torch: what tells the state, and the state."""
        self.kept: list[Any] = []
        self.seen: set[int] = set()
        self.roots: set[int] = set()
        self.classes: set[type] = set()
        self.names: set[str] = set(IMPLICIT)
        self.spaces: list[Space] = []
        self.globals: set[tuple[int, str]] = set()

    def collect(self, *roots: Any) -> Reached:
        """Look into `roots` and all that they lead to."""
        waiting = list(roots)
        self.roots = {id(getattr(root, "__func__", root)) for root in roots}     # looked into, wherever they are from
        while waiting:
            one = waiting.pop()
            if isinstance(one, str):
                self.names.update(words(one))
            if not (id(one) in self.seen or isinstance(one, PLAIN)):
                self.seen.add(id(one))
                self.kept.append(one)  # so that no address is another object's
                if len(self.kept) > MOST_OBJECTS:
                    raise Unrepeatable("it reaches too many objects")
                waiting += self.parts(one)
            if not waiting:
                waiting = self.named()
        return self

    def named(self) -> list[Any]:
        """Note what code names of classes, modules and objects since it was asked, and return it."""
        found = []
        for space in self.spaces:
            for key in space.named(self.names):
                value = space.where[key]
                found.append(value if space.noted else self.note(space.where, key, value))
        return found

    def note(self, where: Any, key: Any, value: Any) -> Any:
        self.entries.append((where, key, value))
        return value

    def told(self, tells: Callable[[], Any]) -> Any:
        """Note what a function tells, and return it."""
        return self.note(tells, None, tells())

    def refuse_attributes(self, arguments: Iterable[torch.Tensor]) -> None:
        """Refuse tensors that are others at each call, and have attributes which code names."""
        for t in arguments:
            if t.__dict__ and not self.names.isdisjoint(t.__dict__):
                raise Unrepeatable("it reads attributes of a tensor that it is given")

    def parts(self, one: Any) -> list[Any]:
        """Note what belongs to an object, and return it."""
        if isinstance(one, torch.Tensor):
            self.tensors.append(one)
            if one.__dict__:
                self.spaces.append(Space(one.__dict__, one.__dict__))
            return []
        if isinstance(one, weakref.ref):
            self.told(functools.partial(name_of_referent, one))
            return [referent(one), *self.of_slots(one)]
        if isinstance(one, functools.partial):
            return [one.func, one.args, one.keywords]
        if isinstance(one, types.MethodType):
            return [one.__self__, one.__func__]
        if isinstance(one, (staticmethod, classmethod)):
            return [one.__func__]
        if isinstance(one, property):
            return [one.fget, one.fset]
        if isinstance(one, types.FunctionType):
            return [] if of_library(one.__module__) and id(one) not in self.roots else self.of_function(one)
        if isinstance(one, types.BuiltinFunctionType):
            return [] if isinstance(one.__self__, (type, types.ModuleType)) else [one.__self__]
        if isinstance(one, types.ModuleType):
            if of_library(one.__name__):
                return []
            self.spaces.append(Space(one.__dict__, one.__dict__))
            return self.of_class(type(one))
        if isinstance(one, type):
            self.names |= MAKING
            return self.of_class(one)
        return self.of_object(one)

    def of_function(self, one: types.FunctionType) -> list[Any]:
        """Note code, default values, cells and attributes of a function, and the globals that it names."""
        self.note(one, None, (one.__code__, one.__defaults__, one.__kwdefaults__))
        found: list[Any] = [*(one.__defaults__ or ()), one.__kwdefaults__, *self.of_attributes(one.__dict__, True)]
        for cell in one.__closure__ or ():
            try:
                found.append(self.note(cell, None, cell.cell_contents))
            except ValueError:
                self.note(cell, None, replay.MISSING)
        names = dict.fromkeys(names_of(one.__code__))
        self.names.update(names)
        for name in names:
            if name in one.__globals__ and (id(one.__globals__), name) not in self.globals:
                self.globals.add((id(one.__globals__), name))
                found.append(self.note(one.__globals__, name, one.__globals__[name]))
        return found + [self.note(sys.modules, name, sys.modules[name]) for name in modules_of(one)]

    def of_class(self, kind: type) -> list[Any]:
        """Note what the program itself has defined in a class, one that it inherits from, or their class."""
        found = []
        metaclass: type = type(kind)
        for one in (*kind.__mro__, *metaclass.__mro__):
            if one in self.classes or not isinstance(one.__module__, str):      # that of a class of Cython's
                continue
            self.classes.add(one)
            where = dictionary_of(one)
            if of_library(one.__module__):
                if "forward" in where:
                    found.append(self.note(where, "forward", where["forward"]))
                continue
            self.told(where.__len__)
            special = [key for key, value in where.items()
                       if isinstance(value, METHODS) and (key[:2] == "__" or not is_own(one)) and key not in ASIDE]
            found += [self.note(where, key, where[key]) for key in special]
            self.spaces.append(Space(where, where.keys() - {*special}))
        return found

    def of_object(self, one: Any) -> list[Any]:
        """Note what an object holds: elements, attributes, slots; and its class."""
        kind = type(one)
        if kind in BARE:
            return self.of_elements(one)
        if kind is MANAGER:
            return [one.func, one.args, one.kwds]
        reason = incomparable(one)
        if reason:
            raise Unrepeatable(f"it reaches {reason}")
        state = state_of_generator(one)
        if state is not None:
            self.draws.append((state, state()))
            return []
        tells = reading(one)
        found = self.of_elements(one) if tells is None else [self.told(tells)]
        if isinstance(one, nn.Module):
            if any(one.__dict__.get(name) for name in private.MODULE_HOOKS):
                raise Unrepeatable(f"{kind.__name__} has hooks")
            if private.has_global_module_hooks():
                raise Unrepeatable("all modules have hooks")
        if f"{kind.__module__}.".startswith(tuple(f"{name}." for name in UNSEEN)):
            return [getattr(one, "__wrapped__", None)]
        try:
            attributes = object.__getattribute__(one, "__dict__")
        except AttributeError:                  # where `__getattr__` of a class may raise anything
            attributes = None
        if isinstance(attributes, dict):
            found += self.of_attributes(attributes, is_own(kind))
        elif of_library(kind.__module__):       # written in C: a proxy of a dictionary, say
            found += [x for x in gc.get_referents(one) if x is not kind]
        return [*found, *self.of_class(kind), *self.of_slots(one)]

    def of_elements(self, one: Any) -> list[Any]:
        """Note what a container holds, and return it; nothing of anything else."""
        if isinstance(one, dict):
            if isinstance(one, OrderedDict) and len(one) > 1:
                self.told(functools.partial(list, one))     # its own order, which `dict` does not show
            self.names.update(word for key in dict.keys(one) for word in words(key))        # whatever a subclass says
            return [*self.note(one, None, dict(dict.items(one))).values()]
        if isinstance(one, (list, set)):
            return [*self.note(one, None, elements_of(one))]
        if isinstance(one, deque):
            return [*self.told(functools.partial(elements_of, one))]
        return elements_of(one) if isinstance(one, (tuple, frozenset)) else []

    def of_attributes(self, attributes: dict[str, Any], own: bool) -> list[Any]:
        """Note all attributes of an object; objects of libraries among them are looked into where code names them."""
        self.note(attributes, None, dict(attributes))
        if not own:
            return [*attributes.values()]
        later = [k for k, x in attributes.items() if not isinstance(x, SEEN) and of_library(type(x).__module__)]
        if later:
            self.spaces.append(Space(attributes, later, noted=True))
        return [x for k, x in attributes.items() if k not in later]

    def of_slots(self, one: Any) -> list[Any]:
        """Note what stands in the slots that the classes of an object name."""
        names = tuple([
            name
            for kind in type(one).__mro__
            if "__slots__" in kind.__dict__
            for name, member in kind.__dict__.items()
            if isinstance(member, types.MemberDescriptorType)
        ])
        return self.told(functools.partial(slots_of, one, names)) if names else []
