"""Modules whose `forward` is a region: the same object, of a subclass of its class that goes by the same name.

So a module keeps its parameters, attributes, hooks and state dict; the hooks of the module itself run outside of the
region, as torch's own. A copy or a pickle of it is optimized as well.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from autograd_opt import errors
from autograd_opt.abi import torch_private
from autograd_opt.api.regions import NOT_COMPILED, Region

NAME = "_autograd_opt_region"


def optimized_module(module: torch.nn.Module, region: Region) -> torch.nn.Module:
    """`module` itself, whose calls go through `region` from now on."""
    if isinstance(module, torch.jit.ScriptModule):
        raise errors.UnsupportedError(errors.at(
            f"ao.optimize was given {type(module).__name__}, whose operations are TorchScript's and are not seen one "
            "by one: optimize the module that it was made of"
        ))
    if isinstance(module, DistributedDataParallel):
        optimized_module(module.module, region)
        return module
    vars(module)[NAME] = region
    kind: Any = type(module)
    if "forward" in vars(module):               # put there by another library, in front of the class's
        vars(module)["forward"] = through(region, vars(module)["forward"])
    elif not hasattr(kind, "_autograd_opt_base"):
        module.__class__ = optimized_class(kind)
    return module


def through(region: Region, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose calls go through `region`."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return region(function, args, kwargs)

    torch_private.not_compiled(call, NOT_COMPILED)
    return call


@functools.cache
def optimized_class(base: Any) -> type[torch.nn.Module]:
    """The subclass of `base` whose `forward` goes through the region of the instance."""
    original: Any = base.forward
    kind: Any = type(base)

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        region = vars(self).get(NAME)
        if region is None or optimizes_parts(self, region):
            return original(self, *args, **kwargs)
        return region(original, (self, *args), kwargs)

    torch_private.not_compiled(forward, NOT_COMPILED)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        reduced: Any = base.__reduce_ex__(self, protocol)
        make, args, *state = reduced
        return restored, (make, tuple(base if a is type(self) else a for a in args)), *state

    return kind(base.__name__, (base,), {
        "__doc__": base.__doc__, "__module__": base.__module__, "__qualname__": base.__qualname__,
        "__reduce_ex__": __reduce_ex__, "_autograd_opt_base": base, "forward": forward,
    })


def optimizes_parts(module: torch.nn.Module, region: Region) -> bool:
    """True if `fully_shard` was given parts of the module: then the region of each is what is optimized.

    Hooks of torch's engine gather and free the parameters of such a part, between the region of one and of the next.
    """
    loaded = sys.modules.get("torch.distributed.fsdp")
    sharded = getattr(loaded, "FSDPModule", None)
    if sharded is None or not sharded.__subclasses__():      # a module given to it is of a class made for it
        return False
    parts = [part for part in module.modules() if part is not module and isinstance(part, sharded)]
    for part in parts:
        if NAME not in vars(part):
            optimized_module(part, Region(region.options))
    return bool(parts)


def restored(make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """An instance of an optimized class, made as one of its base is; its state follows."""
    made = make(*args)
    kind: Any = type(made)
    if not hasattr(kind, "_autograd_opt_base"):
        made.__class__ = optimized_class(kind)
    return made
