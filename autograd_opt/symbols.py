"""Where torch's C functions are that say what a tensor is; where one is missing, Python's properties are asked."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import torch
from torch.overrides import BaseTorchFunctionMode

from autograd_opt import node
from autograd_opt.dispatch import MODE

NAMES = {
    "dtype": "aoti_torch_get_dtype",
    "layout": "aoti_torch_get_layout",
    "device": "aoti_torch_get_device_type",
    "dim": "aoti_torch_get_dim",
    "sizes": "aoti_torch_get_sizes",
    "contiguous": "aoti_torch_is_contiguous",
    "version": "_ZN5torch8autograd4impl15version_counterERKN2at6TensorE",
    "leaf": "_ZNK2at10TensorBase7is_leafEv",
    "view": "_ZNK2at10TensorBase7is_viewEv",
    "grad": "_ZNK3c1010TensorImpl13requires_gradEv",
    "modes": "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv",
    "mode": "_ZN2at4impl22PythonTorchFunctionTLS12get_stack_atEl",
}
"""What is asked -> the function that knows: torch's stable C interface, and methods of its C++ classes by symbol."""
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)
FILES = {"linux": "lib{}.so", "darwin": "lib{}.dylib", "win32": "{}.dll"}


def addresses() -> dict[str, int] | None:
    """The function of each name; None where one is missing."""
    folder = Path(torch.__file__).parent / "lib"
    pattern = FILES.get(sys.platform, "lib{}.so")
    try:
        libraries = [ctypes.CDLL(str(folder / pattern.format(name))) for name in ("torch_cpu", "c10")]
    except OSError:
        return None
    found: dict[str, int] = {}
    for name, symbol in NAMES.items():
        for library in libraries:
            function = getattr(library, symbol, None)
            if function is not None:
                found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
                break
    return found if len(found) == len(NAMES) else None


def samples() -> list[torch.Tensor]:
    """Tensors of many kinds, on which both interfaces must agree."""
    plain = torch.zeros(2, 3)
    with torch.enable_grad(), torch.inference_mode(False):
        leaf = torch.ones(3, 1, 5, 2, requires_grad=True)
        made = leaf * 2
        written = torch.zeros(4, dtype=torch.float64)
        written.add_(1).mul_(2)
        kinds = [
            plain, leaf, made, written, made[0], plain.t(), plain.view(6), torch.zeros(()), torch.zeros(0, 4),
            torch.zeros(1, 2, 1, 2, 1, 2), torch.zeros(3, dtype=torch.int64), torch.nn.Parameter(torch.zeros(2)),
            torch.zeros(4, dtype=torch.complex64).conj(), leaf.detach(), torch.zeros(2, 2).to_sparse(),
            torch.zeros(3, device="meta"), torch.zeros(2, 2).expand(3, 2, 2), torch.zeros(2, 4).bfloat16(),
        ]
    with torch.inference_mode():
        return [*kinds, torch.zeros(3)]


def install() -> bool:
    """Let the compiled modules ask these functions; whether they do."""
    found = addresses() if os.environ.get("AUTOGRAD_OPT_PLAIN_READS") is None else None
    if found is None:
        return False
    node.install_modes(found["modes"], found["mode"], [MODE, BaseTorchFunctionMode(), MODE])
    try:
        return node.install_reads(found, {dtype: torch.empty(0, dtype=dtype) for dtype in DTYPES}, samples())
    except (AttributeError, RuntimeError, TypeError):        # another version of torch, which sets versions another way
        node.use_reads(False)
        return False
