"""Nothing but small operations, the worst case for watching: products of 8×8 matrices and their gradients."""

import time

import torch

torch.manual_seed(0)
w = torch.randn(8, 8, requires_grad=True)
x = torch.randn(8, 8)
begin = time.process_time()
for _ in range(4000):
    y = x
    for _ in range(20):
        y = torch.tanh(y @ w) + 0.5 * y
    y.square().mean().backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad = None
print(w.sum().item().hex(), time.process_time() - begin)
