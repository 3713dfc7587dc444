"""A vision transformer of the package vit-pytorch, 20 training steps on one batch."""

import importlib.util
import time
from pathlib import Path

import torch
import torch.nn.functional as F

# the file alone: its package imports torchvision
package = importlib.util.find_spec("vit_pytorch")
if package is None or package.origin is None:
    raise SystemExit("vit-pytorch is not installed")
spec = importlib.util.spec_from_file_location("vit", Path(package.origin).with_name("vit.py"))
vit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(vit)

torch.manual_seed(0)
model = vit.ViT(image_size=32, patch_size=4, num_classes=10, dim=64, depth=4, heads=4, mlp_dim=128)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
begin = time.process_time()
for _ in range(20):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item().hex(), time.process_time() - begin)
