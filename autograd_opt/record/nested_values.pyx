"""Find and replace the tensors inside arguments and results."""

import torch

from autograd_opt.abi.torch_private import pytree_nodes, tree_map
from autograd_opt.graph.plain_values cimport deeper, shallower

cdef object Tensor = torch.Tensor


cpdef list collect(x, list out=None):
    """Append every tensor inside nested tuples, lists and dicts to `out`, or to a new list, in order; returns it."""
    if out is None:
        out = []
    if isinstance(x, Tensor):
        out.append(x)
    elif isinstance(x, (tuple, list, dict)):
        deeper()
        try:
            for y in x.values() if isinstance(x, dict) else x:
                collect(y, out)
        finally:
            shallower()
    return out


cdef list tensors_of(tuple args, dict kwargs):
    """Return the tensors of a call, those in lists included."""
    cdef list found = collect(args)
    return collect(kwargs, found) if kwargs else found


def substitute(x, dict by_id):
    """Return the same structure with every tensor replaced by `by_id[id(tensor)]`, where there is one."""
    cdef object t = type(x) if not isinstance(x, Tensor) else None
    if t is None:
        return by_id.get(id(x), x)
    if t is tuple:
        return tuple([substitute(y, by_id) for y in x])
    if t is list:
        return [substitute(y, by_id) for y in x]
    if isinstance(x, dict):
        return t([(k, substitute(y, by_id)) for k, y in x.items()])
    if isinstance(x, tuple):
        items = [substitute(y, by_id) for y in x]
        return t(*items) if hasattr(x, "_make") else t(items)
    return x


def mapped(function, x):
    """`tree_map` of `function` on tensors alone; `x` itself where each is mapped to itself."""
    cdef object kind = type(x), y, z
    cdef bint changed = False
    cdef list items
    if isinstance(x, Tensor):
        return function(x)
    if kind is tuple or kind is list:
        items = []
        for y in x:
            z = mapped(function, y)
            changed = changed or z is not y
            items.append(z)
        return x if not changed else items if kind is list else tuple(items)
    if kind is dict:
        items = []
        for key, y in (<dict>x).items():
            z = mapped(function, y)
            changed = changed or z is not y
            items.append((key, z))
        return dict(items) if changed else x
    if kind in pytree_nodes or isinstance(x, tuple):
        return tree_map(lambda y: function(y) if isinstance(y, Tensor) else y, x)
    return x
