"""Trainers of other packages, with a model of the user's in them: a few steps each from the same weights."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ..workload import Workload
from . import of, outcome

BATCHES = 8


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def batches() -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(8 * BATCHES, 8), torch.randn(8 * BATCHES, 4)), 8)


def trained(model: nn.Module, train: Callable[[], object]) -> Workload:
    """All of `train()` from the same weights each time; the weights it leaves have to be equal."""
    start = [p.detach().clone() for p in model.parameters()]

    def run() -> list[Tensor]:
        for parameter, value in zip(model.parameters(), start, strict=True):
            parameter.data.copy_(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train()
        return [p.detach() for p in model.parameters()]

    return outcome(run)


@of("lightning")
def trainer() -> Workload:
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model, loader = network(), batches()

    class Trained(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Tensor:
            return nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def train() -> None:
        lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tempfile.gettempdir(),
        ).fit(Trained(), loader)

    return trained(model, train)


@of("accelerate")
def accelerator() -> Workload:
    import accelerate

    model, loader = network(), batches()

    def train() -> None:
        tool = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        ready, optimizer, data = tool.prepare(model, torch.optim.SGD(model.parameters(), 0.1), loader)
        for x, y in data:
            with tool.accumulate(ready):
                optimizer.zero_grad()
                tool.backward(nn.functional.mse_loss(ready(x), y))
                tool.clip_grad_norm_(ready.parameters(), 0.5)
                optimizer.step()

    return trained(model, train)


@of("transformers")
def trainer_of_a_language_model() -> Workload:
    import transformers

    config = transformers.GPT2Config(vocab_size=17, n_positions=12, n_embd=8, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 17, (4 * BATCHES, 12))]

    def train() -> None:
        options = transformers.TrainingArguments(
            output_dir=tempfile.gettempdir(), max_steps=BATCHES, per_device_train_batch_size=4, report_to=[],
            use_cpu=True, disable_tqdm=True, save_strategy="no", logging_strategy="no", seed=0)
        tool = transformers.Trainer(model=model, args=options, train_dataset=rows)
        tool.remove_callback(transformers.PrinterCallback)
        tool.train()

    return trained(model, train)
