"""The operator table, filled: importing this package defines every operator."""

from autograd_opt.ops import (
    activations,
    arithmetic,
    complex,
    composite,
    elementary,
    fourier,
    indexing,
    layout,
    linalg,
    losses,
    neural,
    products,
    reductions,
    shape,
)
from autograd_opt.ops.table import BINDERS, CALLS, DECOMPOSE, INPLACE, OPS, choose, decompose, define

__all__ = [
    "BINDERS",
    "CALLS",
    "DECOMPOSE",
    "INPLACE",
    "OPS",
    "activations",
    "arithmetic",
    "choose",
    "complex",
    "composite",
    "decompose",
    "define",
    "elementary",
    "fourier",
    "indexing",
    "layout",
    "linalg",
    "losses",
    "neural",
    "products",
    "reductions",
    "shape",
]
