"""An MLP on scikit-learn's handwritten digits: 40 epochs, batches of 64, dropout."""

import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
model = nn.Sequential(
    nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10),
)
optimizer = torch.optim.Adam(model.parameters())
begin = time.process_time()
for _ in range(40):
    for batch in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
print(loss.item().hex(), time.process_time() - begin)
