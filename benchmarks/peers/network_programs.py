"""Networks said once for every library of arrays; `lib` as in `programs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Data = dict[str, Any]
HEADS = 4
LAYERS = 12
"""Parameters of a layer of the encoder."""


def row(lib: Any, vector: Any, like: Any) -> Any:
    """A vector as it is added to each row of a matrix: by itself, but where a library does not broadcast."""
    return lib.row(vector, like.shape[0]) if hasattr(lib, "row") else vector


def affine(lib: Any, h: Any, w: Any, b: Any) -> Any:
    """One layer without its nonlinearity."""
    return h @ w + row(lib, b, h)


def cross_entropy(lib: Any, scores: Any, one_hot: Any) -> Any:
    """Mean over the rows, as torch's, from scores that need no shift to stay finite."""
    return lib.mean(lib.log(lib.sum(lib.exp(scores), axis=1))) - lib.sum(scores * one_hot) / one_hot.shape[0]


def relu(lib: Any, x: Any) -> Any:
    return lib.maximum(x, 0.0)


def mlp(lib: Any, data: Data, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
    h = relu(lib, affine(lib, data["images"], w1.T, b1))
    h = relu(lib, affine(lib, h, w2.T, b2))
    return cross_entropy(lib, affine(lib, h, w3.T, b3), data["one_hot"])


def by_columns(lib: Any, x: Any, kernel: Any) -> Any:
    """A 3×3 convolution with padding as one product of matrices, where a library has none of its own."""
    n, channels, rows, columns = x.shape
    padded = lib.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifted = [padded[:, :, None, i:i + rows, j:j + columns] for i in range(3) for j in range(3)]
    matrix = lib.concatenate(shifted, 2).reshape((n, 9 * channels, rows * columns))
    return (kernel.reshape((kernel.shape[0], 9 * channels)) @ matrix).reshape((n, kernel.shape[0], rows, columns))


def cnn(lib: Any, data: Data, *leaves: Any) -> Any:
    k1, c1, s1, m1, k2, c2, s2, m2, w, b = leaves
    h = data["images"]
    for kernel, bias, scale, shift in ((k1, c1, s1, m1), (k2, c2, s2, m2)):
        product = lib.conv2d(h, kernel) if hasattr(lib, "conv2d") else by_columns(lib, h, kernel)
        h = product + bias[None, :, None, None]
        centred = h - lib.mean(h, axis=(0, 2, 3), keepdims=True)
        spread = lib.mean(centred * centred, axis=(0, 2, 3), keepdims=True)
        h = centred / lib.sqrt(spread + 1e-5) * scale[None, :, None, None] + shift[None, :, None, None]
        h = relu(lib, h)
        n, channels, rows, columns = h.shape
        h = lib.max(h.reshape((n, channels, rows // 2, 2, columns // 2, 2)), axis=(3, 5))
    return cross_entropy(lib, h.reshape((h.shape[0], w.shape[1])) @ w.T + b, data["one_hot"])


def data_shape(x: Any) -> tuple[int, ...]:
    """Lengths as numbers, also where a library keeps them apart from symbolic ones."""
    return tuple(getattr(getattr(x, "type", None), "shape", None) or x.shape)


def unrolled(step: Callable[[Any, Any], Any], state: Any, inputs: Any) -> Any:
    """The state after a step for each column, where a library has no better loop."""
    for t in range(data_shape(inputs)[1]):
        state = step(state, inputs[:, t])
    return state


def lstm(lib: Any, data: Data, w_x: Any, w_h: Any, b_x: Any, b_h: Any, w: Any, b: Any) -> Any:
    series = data["series"]
    rows, width = data_shape(series)[0], data_shape(w_h)[1]
    inputs = series @ w_x.T + (b_x + b_h)

    def cell(state: tuple[Any, Any], x: Any) -> tuple[Any, Any]:
        h, c = state
        gates = x + h @ w_h.T
        i, f, g, o = (gates[:, k * width:(k + 1) * width] for k in range(4))
        c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
        return lib.sigmoid(o) * lib.tanh(c), c

    start = lib.zeros((rows, width))
    h, _ = (lib.loop if hasattr(lib, "loop") else unrolled)(cell, (start, start), inputs)
    return cross_entropy(lib, h @ w.T + b, data["one_hot"])


def normalized(lib: Any, x: Any, scale: Any, shift: Any) -> Any:
    """Over the last axis."""
    centred = x - lib.mean(x, axis=-1, keepdims=True)
    return centred / lib.sqrt(lib.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * scale + shift


def attention(lib: Any, x: Any, w: Any, b: Any, w_out: Any, b_out: Any) -> Any:
    n, length, width = data_shape(x)
    size = width // HEADS
    qkv = x @ w.T + b
    q, k, v = (qkv[:, :, i * width:(i + 1) * width].reshape((n, length, HEADS, size)) for i in range(3))
    weights = lib.exp(lib.transpose(q, (0, 2, 1, 3)) @ lib.transpose(k, (0, 2, 3, 1)) / size ** 0.5)
    weights = weights / lib.sum(weights, axis=-1, keepdims=True)
    mixed = lib.transpose(weights @ lib.transpose(v, (0, 2, 1, 3)), (0, 2, 1, 3))
    return mixed.reshape((n, length, width)) @ w_out.T + b_out


def transformer(lib: Any, data: Data, embedding: Any, *leaves: Any) -> Any:
    *layers, w, b = leaves
    h = embedding[data["tokens"]]
    for i in range(0, len(layers), LAYERS):
        w_in, b_in, w_out, b_out, w1, b1, w2, b2, scale1, shift1, scale2, shift2 = layers[i:i + LAYERS]
        h = normalized(lib, h + attention(lib, h, w_in, b_in, w_out, b_out), scale1, shift1)
        h = normalized(lib, h + relu(lib, h @ w1.T + b1) @ w2.T + b2, scale2, shift2)
    return cross_entropy(lib, lib.mean(h, axis=1) @ w.T + b, data["one_hot"])
