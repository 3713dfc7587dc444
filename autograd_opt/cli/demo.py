"""`autograd-opt demo`: real images, an unmodified torch network, and a step that repeats itself.

First a small network learns to read 1,797 handwritten digits, every gradient from this
library.  Then one training step whose loss is written the plain way, each term a function
that calls the model itself, is run as written and optimized, beside torch eager.
"""

from __future__ import annotations

import json
import linecache
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn

from autograd_opt.api.graph import AutogradGraph
from autograd_opt.cli.main import FAILED, MISSING, console, fail
from autograd_opt.inspection.drawing import dot

ACCURACY_BAR = 0.95
BATCH = 64


class Digits(NamedTuple):
    """scikit-learn's handwritten digits: 8×8 images as rows of 64, a fifth of them held out."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits(seed: int = 0) -> Digits:
    """Read the images, scaled to [0, 1], and hold out a fifth of each class."""
    try:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split
    except ImportError:
        fail("the demo reads scikit-learn's digits: pip install 'autograd_opt[demo]'", MISSING)
    images, labels = datasets.load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.2, random_state=seed, stratify=labels)
    train_images, test_images, train_labels, test_labels = parts
    return Digits(
        torch.tensor(train_images, dtype=torch.float32), torch.tensor(train_labels),
        torch.tensor(test_images, dtype=torch.float32), torch.tensor(test_labels),
    )


def make_network(seed: int = 0) -> nn.Sequential:
    """64-256-256-10, plain torch.nn."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(),
        nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 10),
    )


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images read correctly."""
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def train(model: nn.Module, digits: Digits, epochs: int, on_step: Callable[[float], None], seed: int = 0) -> None:
    """An ordinary torch loop; the `with` line is the only one that names this library."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(digits.train_images), generator=generator).split(BATCH):
            optimizer.zero_grad()
            with AutogradGraph(optimize=True):
                loss = F.cross_entropy(model(digits.train_images[batch]), digits.train_labels[batch])
                loss.backward()
                value = loss.item()
            optimizer.step()
            on_step(value)


# The step with repeated work: every term computes what it needs, nobody passes anything on.
def likelihood(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood of the labels."""
    return -F.log_softmax(model(images), 1).gather(1, labels[:, None]).mean()


def smoothing(model: nn.Module, images: Tensor) -> Tensor:
    """Cross entropy against the uniform distribution (label smoothing)."""
    return -F.log_softmax(model(images), 1).mean()


def confidence(model: nn.Module, images: Tensor) -> Tensor:
    """Negative entropy of the predictions (the confidence penalty of Pereyra et al., 2017)."""
    return (F.log_softmax(model(images), 1).exp() * F.log_softmax(model(images), 1)).sum(1).mean()


def weight_decay(model: nn.Module) -> Tensor:
    """Sum of squared norms of the weights."""
    return torch.stack([p.norm() * p.norm() for p in model.parameters()]).sum()


def plain_loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The sum of the four terms."""
    return (
        0.9 * likelihood(model, images, labels)
        + 0.1 * smoothing(model, images)
        + 0.1 * confidence(model, images)
        + 1e-4 * weight_decay(model)
    )


class StepResult(NamedTuple):
    """What the second half of the demo found."""

    nodes_before: int
    nodes_after: int
    seconds: dict[str, float]
    largest_difference: dict[str, float]
    verdict: str
    repeated: dict[str, int]
    """Source line -> how many of its operations another line, or itself, had computed before."""
    pictures: dict[str, str]


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def median_seconds(
    runs: dict[str, Callable[[], object]], repeats: int, on_round: Callable[[], None]
) -> dict[str, float]:
    """Median time of each, run in turns so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
        on_round()
    return {name: statistics.median(values) for name, values in times.items()}


def repeated_step(
    model: nn.Module, images: Tensor, labels: Tensor, folder: Path | None, repeats: int, on_round: Callable[[], None]
) -> StepResult:
    """Run the plain loss in torch eager, as written, and optimized; compare, prove, draw into `folder`."""

    def eager() -> None:
        model.zero_grad()
        plain_loss(model, images, labels).backward()

    def recorded(optimize: bool) -> None:
        model.zero_grad()
        with AutogradGraph(optimize=optimize):
            plain_loss(model, images, labels).backward()

    runs: dict[str, Callable[[], object]] = {
        "torch eager": eager,
        "optimize=False": lambda: recorded(False),
        "optimize=True": lambda: recorded(True),
    }
    found = {}
    for name, run in runs.items():
        run()
        found[name] = gradients(model)
    difference = {
        name: max(float((a - b).abs().max()) for a, b in zip(found["torch eager"], grads, strict=True))
        for name, grads in found.items() if name != "torch eager"
    }
    ending = "svg" if dot.installed() else "mmd"
    pictures = {} if folder is None else {name: folder / f"{name}.{ending}" for name in ("before", "after")}
    with AutogradGraph(optimize=True, name="demo") as graph:
        graph.follow(model)
        loss = plain_loss(model, images, labels)
        before, after = graph.dag.num_nodes(), graph.optimized(loss).num_nodes()
        for which, path in pictures.items():
            graph.draw(path, optimized=which == "after")
        repeated = Counter(line for group in graph.report(loss).groups for line in group.sources[1:])
        verdict = str(graph.verify(loss).status)
    seconds = median_seconds(runs, repeats, on_round)
    return StepResult(before, after, seconds, difference, verdict, dict(repeated),
                      {k: str(v) for k, v in pictures.items()})


def progress_bar(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=out, disable=not out.is_terminal,
    )


def show(out: Console, result: StepResult) -> None:
    """The second half as a table."""
    eager = result.seconds["torch eager"]
    table = Table(title="one step whose loss repeats itself")
    table.add_column("")
    for heading in ("nodes", "milliseconds", "of torch eager", "largest gradient difference"):
        table.add_column(heading, justify="right")
    counts = {"optimize=False": result.nodes_before, "optimize=True": result.nodes_after}
    for name, seconds in result.seconds.items():
        table.add_row(
            name,
            str(counts.get(name, "")),
            f"{seconds * 1e3:.2f}",
            f"{seconds / eager:.2f}",
            f"{result.largest_difference[name]:.1e}" if name in result.largest_difference else "",
        )
    out.print(table)
    lines = Table(title="lines whose operations had been computed before")
    for heading in ("line", "operations", "text"):
        lines.add_column(heading, justify="right" if heading == "operations" else "left")
    for line, count in result.repeated.items():
        file, _, number = line.rpartition(":")
        lines.add_row(f"{Path(file).name}:{number}", str(count), escape(linecache.getline(file, int(number)).strip()))
    out.print(lines)
    out.print(f"gradients of the optimized graph equal those as written, over the reals: {result.verdict}")


@click.command()
@click.option("--out", "folder", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="Folder for pictures of the graph; without it, nothing is written.")
@click.option("--epochs", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=50, show_default=True,
              help="Runs of each kind behind a median.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, the rest on stderr.")
def demo(folder: Path | None, epochs: int, repeats: int, as_json: bool) -> None:
    """Train on real digits, then optimize a step with repeated work.

    Exit code 1 when the accuracy is 95 % or less, when a gradient differs from torch's,
    or when the proof is refuted.
    """
    torch.set_num_threads(1)
    out = console(as_json)
    digits = load_digits()
    model = make_network()
    steps = epochs * -(-len(digits.train_images) // BATCH)
    out.print(f"training a network on handwritten digits in {steps} steps, then comparing one step in {repeats} "
              "rounds: some 10 seconds")
    begin = time.perf_counter()
    with progress_bar(out) as progress:
        bar = progress.add_task("training", total=steps)

        def on_step(loss: float) -> None:
            progress.update(bar, advance=1, description=f"training, loss {loss:.3f}")

        train(model, digits, epochs, on_step)
    seconds = time.perf_counter() - begin
    share = accuracy(model, digits.test_images, digits.test_labels)
    out.print(
        f"trained on {len(digits.train_images):,} images in {seconds:.1f} s ({steps} steps); "
        f"{share:.1%} of {len(digits.test_images)} held-out images read correctly"
    )
    with progress_bar(out) as progress:
        bar = progress.add_task("comparing", total=repeats)
        result = repeated_step(model, digits.train_images[:128], digits.train_labels[:128], folder, repeats,
                               lambda: progress.advance(bar))
    show(out, result)
    if folder is None:
        out.print("autograd-opt demo --out FOLDER draws the graph before and after; "
                  "autograd-opt explain script.py finds such lines in a script of yours")
    else:
        out.print(f"pictures of the graph: {folder.resolve()}")
    if as_json:
        facts: dict[str, Any] = {"accuracy": share, "steps": steps, "training_seconds": seconds, **result._asdict()}
        click.echo(json.dumps(facts, indent=2))
    check(share, result)


def check(share: float, result: StepResult) -> None:
    """Leave with an exit code when the demo did not show what it claims."""
    if share <= ACCURACY_BAR:
        fail(f"only {share:.1%} of the held-out images were read correctly; the bar is {ACCURACY_BAR:.0%}", FAILED)
    if max(result.largest_difference.values()) > 1e-5:
        fail(f"a gradient differs from torch's by more than 1e-5: {result.largest_difference}", FAILED)
    if result.verdict == "refuted":
        fail("the optimized gradients were refuted", FAILED)
