"""Training loops of other packages, with a model that is optimized and without: equal weights."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import autograd_opt as ao
from autograd_opt.api.region_calls import OptimizedRegion

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def usable_torchvision() -> Iterator[None]:
    """Hide a torchvision that was built for another torch, which the packages import where it is installed."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            import torchvision  # noqa: F401
        except ImportError:
            pass
        except RuntimeError:
            patch.setitem(sys.modules, "torchvision", None)  # type: ignore[arg-type]
        yield


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each backward run of a region."""
    seen: list[int] = []
    original = OptimizedRegion.backward
    monkeypatch.setattr(OptimizedRegion, "backward", staticmethod(lambda *args: seen.append(1) or original(*args)))
    return seen


def data() -> TensorDataset:
    made = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(32, 4, generator=made), torch.randn(32, 2, generator=made))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


def compare(trained: Any, runs: list[int]) -> None:
    """Train twice, and compare."""
    warnings.simplefilter("ignore")
    plain = trained(lambda model: model)
    assert not runs
    regions = trained(ao.optimize)
    assert len(runs) >= 8
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(regions.state_dict()[name], value, rtol=1e-6, atol=1e-7)


def test_lightning(runs: list[int], tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Trained(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.mse_loss(self.model(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 0.01)

    def trained(wrap: Any) -> nn.Module:
        model = Trained(wrap(net()))
        torch.manual_seed(1)
        lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                          gradient_clip_val=0.5, enable_progress_bar=False, enable_model_summary=False,
                          default_root_dir=tmp_path, accumulate_grad_batches=2).fit(model, DataLoader(data(), 8))
        return model

    compare(trained, runs)


def test_accelerate(runs: list[int]) -> None:
    accelerate = pytest.importorskip("accelerate")

    def trained(wrap: Any) -> nn.Module:
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = wrap(net())
        torch.manual_seed(1)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 0.01),
                                                       DataLoader(data(), 8))
        for _ in range(2):
            for x, y in loader:
                with accelerator.accumulate(model):
                    optimizer.zero_grad()
                    accelerator.backward(nn.functional.mse_loss(model(x), y))
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
        return accelerator.unwrap_model(model)

    compare(trained, runs)


def test_a_trainer_of_transformers(runs: list[int], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(vocab_size=17, n_positions=12, n_embd=8, n_layer=2, n_head=2)
    made = torch.Generator().manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 17, (32, 12), generator=made)]
    torch.manual_seed(0)
    start = transformers.GPT2LMHeadModel(config)

    def trained(wrap: Any) -> nn.Module:
        model = wrap(copy.deepcopy(start))
        options = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=8, per_device_train_batch_size=4, report_to=[], use_cpu=True,
            disable_tqdm=True, save_strategy="no", seed=0)
        transformers.Trainer(model=model, args=options, train_dataset=rows).train()
        model.save_pretrained(tmp_path / "saved")
        saved = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "saved")
        torch.testing.assert_close(saved.transformer.wte.weight, model.transformer.wte.weight)
        return model

    compare(trained, runs)
