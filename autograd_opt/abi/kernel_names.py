"""Elementwise kernels of torch's that are called by their C++ entry, by what they take."""

from __future__ import annotations

SINGLES = ("neg", "exp", "log", "sin", "cos", "tanh", "sigmoid", "sqrt", "abs", "reciprocal", "relu")
"""One tensor."""
PAIRS = ("mul", "div", "tanh_backward", "sigmoid_backward", "add", "sub")
"""Two tensors."""
INTO = ("mul_", "div_", "add_", "sub_")
"""Two tensors, the result in the memory of the first."""
PRODUCTS = ("addcmul_", "addcdiv_")
"""Three tensors: what two of them give is added in the memory of the first."""
