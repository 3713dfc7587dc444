"""Regions under torch.distributed: the weights of several gloo processes are those of eager training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.regions.processes import CASES

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")


def launched(world: int, cases: list[str], folder: Path, patience: str = "null") -> list[dict[str, float]]:
    """What the processes print, all of them alike."""
    command = [sys.executable, "-m", "tests.regions.processes", patience]
    running = [subprocess.Popen([*command, str(rank), str(world), str(folder / "store"), *cases], cwd=ROOT, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(world)]
    outputs = [process.communicate(timeout=300) for process in running]
    for process, (_, errors) in zip(running, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(line) for out, _ in outputs for line in out.splitlines() if line.startswith("{")]


def test_a_sharded_module_in_a_context_is_refused(tmp_path: Path) -> None:
    program = """
import torch, torch.distributed as dist, autograd_opt as ao
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo", "file://STORE", rank=0, world_size=1)
net = fully_shard(torch.nn.Linear(3, 2), mesh=init_device_mesh("cpu", (1,)))
try:
    with ao.AutogradGraph():
        net(torch.ones(2, 3)).sum().backward()
except ao.UnsupportedError as error:
    print(error)
dist.destroy_process_group()
""".replace("STORE", str(tmp_path / "store"))
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, check=True)
    assert "fully_shard was called in an AutogradGraph" in run.stdout


@pytest.mark.parametrize(("world", "cases"), [(2, list(CASES)), (4, ["mlp", "cnn", "transformer"])],
                         ids=["two", "four"])
def test_weights_are_those_of_eager_training(world: int, cases: list[str], tmp_path: Path) -> None:
    found = launched(world, cases, tmp_path)
    assert len(found) == world * len(cases)
    for line in found:
        assert line["difference"] <= (2e-2 if line["case"] == "sharded_mixed" else 2e-6), line
        assert line["moved"] > 1e-3, line
        assert line["runs"] >= 20, line


def test_weights_are_the_same_where_regions_come_to_run_as_written(tmp_path: Path) -> None:
    for line in launched(2, ["mlp", "cnn", "transformer"], tmp_path, patience="6"):
        assert line["difference"] <= 2e-6, line
        assert line["runs"] == 6, line
