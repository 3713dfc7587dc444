"""Rules: the long short-term memory, where torch runs it by oneDNN's fused layers.

On the CPU torch's `lstm` is a loop over layers and directions of one fused kernel, with the
transposition, concatenations, dropout and stacks around it.  The same loop runs here as one
operator; its rule walks back through it with the backward kernel of each layer.  Everything
that torch composes of plain cells (other types, projections, packed sequences, `gru`, `rnn`)
has no rule and is differentiated by torch itself.

S. Hochreiter and J. Schmidhuber, Long Short-Term Memory, 1997.
"""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph import refusals
from autograd_opt.ops.binding import OneLayer, bind_lstm, pick_lstm
from autograd_opt.ops.table import MULTI, VARIADIC, choose, define

BACKWARD: Any = private.direct(torch.ops.aten.mkldnn_rnn_layer_backward.default)
FUSED: Any = torch.mkldnn_rnn_layer
LSTM = 2
"""What torch calls this kind of cell."""


def forward(input: Any, h: Any, c: Any, *params: Any, **attributes: Any) -> Any:
    """The canonical call."""
    return torch._VF.lstm(input, (h, c), params, *attributes.values())


def layers_of(params: Any, has_biases: bool, count: int) -> list[Any]:
    """Four weights for each layer and direction; zeros for biases that are not there."""
    if has_biases:
        return [params[4 * k:4 * k + 4] for k in range(count)]
    return [(w, u, torch.zeros(w.shape[0], dtype=w.dtype), torch.zeros(u.shape[0], dtype=u.dtype))
            for w, u in zip(params[::2], params[1::2], strict=True)]


def kernel(input: Any, h: Any, c: Any, *params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
           bidirectional: bool, batch_first: bool) -> Any:
    """torch's loop, with what the backward of each layer reads."""
    ways = 2 if bidirectional else 1
    weights = layers_of(params, has_biases, num_layers * ways)
    x = (input.transpose(0, 1) if batch_first else input).contiguous()
    h, c = h.contiguous(), c.contiguous()
    size, hs, cs = h.shape[2], [], []
    steps: list[Any] = []
    for layer in range(num_layers):
        done = []
        for way in range(ways):
            k = layer * ways + way
            y, h_out, c_out, workspace = FUSED(
                x, *weights[k], h[k], c[k], way > 0, [], LSTM, size, num_layers, has_biases, bidirectional,
                batch_first, train)
            done.append(y)
            hs.append(h_out)
            cs.append(c_out)
            steps.append((x, *weights[k], h[k], c[k], y, h_out, c_out, workspace))
        x = done[0] if ways == 1 else torch.cat(done, -1)
        noise = None
        if dropout and train and layer < num_layers - 1:
            noise = torch.empty_like(x).bernoulli_(1 - dropout).div_(1 - dropout) if dropout < 1 else \
                torch.zeros_like(x)
            x = torch.mul(x, noise)
        steps.append(noise)
    out = x.transpose(0, 1) if batch_first else x
    return (out, stacked(hs), stacked(cs)), (steps, x, private.version_of(x))


def stacked(states: list[Any]) -> Any:
    """The states of all layers and directions; of a single one a clone that is copied when it is written."""
    return torch.stack(states, 0) if len(states) > 1 else private.lazy_clone(states[0].unsqueeze(0))


def back(g: Any, needs: Any, values: Any, extra: Any, node: Any, *, has_biases: bool, num_layers: int, train: bool,
         bidirectional: bool, batch_first: bool) -> list[Any]:
    """The layers in reverse, each by the fused backward kernel; recorded runs by the formula of the cells."""
    steps, last, version = extra
    if private.version_of(last) != version:             # the output shares its memory
        raise refusals.modified(node, -1)
    input, h, c, *params = values
    ways, each = 2 if bidirectional else 1, 4 if has_biases else 2
    size = node.operands[1].shape[2]
    if torch.is_grad_enabled():
        steps = replay(input, h, c, params, steps, has_biases, num_layers, ways, batch_first)
    gy, gh, gc = g.parts
    if gy is not None and batch_first:
        gy = gy.transpose(0, 1)
    g_params: list[Any] = [None] * (each * num_layers * ways)
    g_h: list[Any] = [None] * (num_layers * ways)
    g_c: list[Any] = [None] * (num_layers * ways)
    for layer in range(num_layers - 1, -1, -1):
        noise = steps[(layer + 1) * (ways + 1) - 1]
        if noise is not None and gy is not None:
            gy = gy * noise
        gx = None
        for way in range(ways):
            k = layer * ways + way
            step = steps[layer * (ways + 1) + way]
            part = gy if ways == 1 or gy is None else gy.narrow(-1, way * size, size)
            ends = part, None if gh is None else gh[k], None if gc is None else gc[k]
            found = step_back(step, ends) if torch.is_grad_enabled() else BACKWARD(
                *step[:-1], *ends, way > 0, LSTM, size, num_layers, has_biases, train, bidirectional, [], batch_first,
                step[-1])
            g_params[each * k:each * k + each] = found[1:1 + each]
            g_h[k], g_c[k] = found[5], found[6]
            gx = found[0] if gx is None else gx + found[0]
        gy = gx
    if gy is not None and batch_first:
        gy = gy.transpose(0, 1)
    return [gy, torch.stack(g_h, 0) if needs[1] else None, torch.stack(g_c, 0) if needs[2] else None, *g_params]


# ----- the cells, in recordable operations -----
def replay(input: Any, h: Any, c: Any, params: Any, steps: Any, has_biases: bool, num_layers: int, ways: int,
           batch_first: bool) -> list[Any]:
    """The loop again, cell by cell, with the noise that was drawn."""
    x, again = input.transpose(0, 1) if batch_first else input, []
    weights = layers_of(params, has_biases, num_layers * ways)
    for layer in range(num_layers):
        done = []
        for way in range(ways):
            k = layer * ways + way
            cells = run_cells(x, weights[k], h[k], c[k], way > 0)
            again.append(cells)
            done.append(torch.stack([cell[0] for cell in (cells[1][::-1] if way else cells[1])], 0))
        x = done[0] if ways == 1 else torch.cat(done, -1)
        noise = steps[(layer + 1) * (ways + 1) - 1]
        if noise is not None:
            x = x * noise
        again.append(noise)
    return again


def run_cells(x: Any, weights: Any, h: Any, c: Any, reverse: bool) -> Any:
    """One layer in one direction: for each step, in the order of running, what its rule reads."""
    w, u, b, d = weights
    cells = []
    for t in range(x.shape[0] - 1, -1, -1) if reverse else range(x.shape[0]):
        before = h, c
        i, f, n, o = torch.nn.functional.linear(x[t], w, b).add(torch.nn.functional.linear(h, u, d)).chunk(4, 1)
        i, f, n, o = i.sigmoid(), f.sigmoid(), n.tanh(), o.sigmoid()
        c = f * c + i * n
        bent = c.tanh()
        h = o * bent
        cells.append((h, t, x[t], before, (i, f, n, o), bent))
    return weights, cells, x


def step_back(step: Any, ends: Any) -> list[Any]:
    """What the fused backward kernel computes: cotangents of input, weights, biases, first state."""
    (w, u, _, _), cells, x = step
    gy, gh, gc = ends
    gw: Any = torch.zeros_like(w)
    gu: Any = torch.zeros_like(u)
    gb: Any = torch.zeros_like(w[:, 0])
    gx: list[Any] = [None] * x.shape[0]
    for _, t, x_t, (h, c), (i, f, n, o), bent in reversed(cells):
        parts = [p for p in (gh, None if gy is None else gy[t]) if p is not None]
        gh = torch.zeros_like(h) if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]
        through = gh * o * (1 - bent * bent)
        gc = through if gc is None else gc + through
        gates = torch.cat([gc * n * i * (1 - i), gc * c * f * (1 - f), gc * i * (1 - n * n),
                           gh * bent * o * (1 - o)], 1)
        gx[t] = gates @ w
        gw, gu, gb = gw + gates.mT @ x_t, gu + gates.mT @ h, gb + gates.sum(0)
        gh, gc = gates @ u, gc * f
    return [torch.stack(gx, 0), gw, gu, gb, gb, gh, gc]


define("lstm", "*tensors, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, "
       "batch_first=False", MULTI | VARIADIC, bind=bind_lstm, forward=forward, kernel=OneLayer(kernel), joint=back)
choose("torch._VF.lstm torch.lstm", pick_lstm)
