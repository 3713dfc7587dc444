"""Half a second: a small convolutional network, a few steps on random images."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
)
optimizer = torch.optim.Adam(model.parameters())
images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
begin = time.process_time()
for _ in range(45):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
print(loss.item().hex(), time.process_time() - begin)
