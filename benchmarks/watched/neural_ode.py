"""A neural ODE of the package torchdiffeq: dopri5, 15 training steps."""

import time

import torch
from torchdiffeq import odeint

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 50), torch.nn.Tanh(), torch.nn.Linear(50, 2))
true = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
start, times = torch.tensor([[2.0, 0.0]]), torch.linspace(0, 5, 50)
optimizer = torch.optim.RMSprop(net.parameters(), 1e-3)
begin = time.process_time()
for _ in range(15):
    with torch.no_grad():
        target = odeint(lambda t, y: (y ** 3) @ true, start, times, method="dopri5")
    loss = (odeint(lambda t, y: net(y ** 3), start, times, method="dopri5") - target).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item().hex(), time.process_time() - begin)
