"""Where torch's C functions are that say what a tensor is, and its kernels; where one is missing, Python does it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch
from torch.overrides import BaseTorchFunctionMode

from autograd_opt.abi import tensor_info
from autograd_opt.abi.kernel_names import PRODUCTS, SINGLES
from autograd_opt.abi.switches import OFF

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
    "functions": "_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv",
}
"""What is asked -> the function that knows: torch's stable C interface, and methods of its C++ classes by symbol."""
SWITCHES = {
    "recording": "aoti_torch_grad_mode_is_enabled",
    "excluded": "_ZN3c104impl31tls_is_dispatch_keyset_excludedENS_14DispatchKeySetE",
}
"""Of a thread: torch's grad mode, and whether these dispatch keys are off."""
EXCLUSION = {
    "key_off": "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE",
    "set_key_off": "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb",
}
"""Of a thread: is one dispatch key off, and switch it off or on."""
KERNELS = {
    "wrap": "_Z16THPVariable_WrapON2at10TensorBaseE",
    "translate": "_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE",
    "drop": "aoti_torch_delete_tensor_object",
    "count": "aoti_torch_get_numel",
    "device": NAMES["device"],
    "number": "_ZN2at4_ops19_local_scalar_dense4callERKNS_6TensorE",
    "mm": "_ZN2at4_ops2mm4callERKNS_6TensorES4_",
    "t": "_ZN2at4_ops1t4callERKNS_6TensorE",
    "sum": "_ZN2at4_ops15sum_dim_IntList4callERKNS_6TensorEN3c1016OptionalArrayRefIlEEbSt8optionalINS5_10ScalarTypeEE",
    "linear": "_ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E",
    "threshold": "_ZN2at4_ops18threshold_backward4callERKNS_6TensorES4_RKN3c106ScalarE",
    "threshold_into": "_ZN2at4_ops29threshold_backward_grad_input4callERKNS_6TensorES4_RKN3c106ScalarERS2_",
    "nll": "_ZN2at4_ops16nll_loss_forward4callERKNS_6TensorES4_RKSt8optionalIS2_ElN3c106SymIntE",
    "nll_back": "_ZN2at4_ops17nll_loss_backward4callERKNS_6TensorES4_S4_RKSt8optionalIS2_ElN3c106SymIntES4_",
    "convolution_back": "_ZN2at4_ops20convolution_backward4callERKNS_6TensorES4_S4_N3c1016OptionalArrayRefINS5_6SymIntE"
                        "EENS5_8ArrayRefIS7_EESA_SA_bSA_S7_St5arrayIbLm3EE",
}
"""What `kernels.pyx` calls, by its symbols on Linux: the dispatcher's entries, and what a binding does around them."""
ELEMENTWISE = {
    **{name: f"_ZN2at4_ops{len(name)}{name}4callERKNS_6TensorE" for name in SINGLES},
    **{name: f"_ZN2at4_ops{len(name)}{name}4callERKNS_6TensorES4_" for name in ("tanh_backward", "sigmoid_backward")},
    "mul": "_ZN2at4_ops10mul_Tensor4callERKNS_6TensorES4_",
    "div": "_ZN2at4_ops10div_Tensor4callERKNS_6TensorES4_",
    "add": "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE",
    "sub": "_ZN2at4_ops10sub_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE",
    "mul_": "_ZN2at4_ops11mul__Tensor4callERNS_6TensorERKS2_",
    "div_": "_ZN2at4_ops11div__Tensor4callERNS_6TensorERKS2_",
    "add_": "_ZN2at4_ops11add__Tensor4callERNS_6TensorERKS2_RKN3c106ScalarE",
    "sub_": "_ZN2at4_ops11sub__Tensor4callERNS_6TensorERKS2_RKN3c106ScalarE",
    "addcmul_": "_ZN2at4_ops8addcmul_4callERNS_6TensorERKS2_S5_RKN3c106ScalarE",
    "addcdiv_": "_ZN2at4_ops8addcdiv_4callERNS_6TensorERKS2_S5_RKN3c106ScalarE",
}
"""The same for kernels whose Python method or operator has the name given."""
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)
IN_USE: dict[str, int] = {"tensor_info": 0, "kernels": 0}
"""How many functions of torch's each part has found and uses in this process."""
FILES = {"linux": "lib{}.so", "darwin": "lib{}.dylib", "win32": "{}.dll"}


def addresses(names: dict[str, str] = NAMES) -> dict[str, int] | None:
    """The function of each name; None where one is missing."""
    folder = Path(torch.__file__).parent / "lib"
    pattern = FILES.get(sys.platform, "lib{}.so")
    try:
        libraries = [ctypes.CDLL(str(folder / pattern.format(name))) for name in ("torch_cpu", "c10", "torch_python")]
    except OSError:
        return None
    found: dict[str, int] = {}
    for name, symbol in names.items():
        for library in libraries:
            function = getattr(library, symbol, None)
            if function is not None:
                found[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
                break
    return found if len(found) == len(names) else None


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
    found = addresses() if "tensor_info" not in OFF else None
    if found is None:
        return False
    mode = BaseTorchFunctionMode()
    tensor_info.install_functions(found["functions"], [mode, BaseTorchFunctionMode(), mode])
    try:
        ready = tensor_info.install_reads(found, {dtype: torch.empty(0, dtype=dtype) for dtype in DTYPES}, samples())
    except (AttributeError, RuntimeError, TypeError):        # another version of torch, which sets versions another way
        tensor_info.use_reads(False)
        return False
    install_keys()
    install_memory()
    functions = kernels() if ready and "kernels" not in OFF else {}
    tensor_info.install_kernels(functions)
    IN_USE.update(tensor_info=len(found) if ready else 0, kernels=len(functions))
    return ready


def install_keys() -> None:
    """Let the compiled modules read dispatch keys instead of asking torch's Python interface what follows from them."""
    keys, bits = torch._C.DispatchKey, {}
    for name in ("AutocastCPU", "AutocastPrivateUse1", "Negative", "ZeroTensor", "ADInplaceOrView"):
        if not hasattr(keys, name):
            return
        bits[name] = torch._C.DispatchKeySet(getattr(keys, name)).raw_repr()
    found = addresses(SWITCHES)
    if found is not None and sys.platform == "linux":
        casting = 2 * bits["AutocastPrivateUse1"] - bits["AutocastCPU"]      # the first and the last of a row
        devices = "cpu", "cuda", "xpu", "privateuseone"
        tensor_info.install_switches(found["recording"], found["excluded"], casting, devices)
    found = addresses(EXCLUSION)
    if found is not None and sys.platform == "linux":
        excluded = [keys.AutogradFunctionality, keys.AutogradOther, keys.AutogradNestedTensor]
        tensor_info.install_exclusion(found["key_off"], found["set_key_off"], excluded)
    plain = torch.ones(2, device="cpu")
    with torch.inference_mode():
        untracked = torch.ones(2, device="cpu")
    tensor_info.install_keys(bits["Negative"], bits["ZeroTensor"], bits["ADInplaceOrView"], [
        plain, torch._neg_view(plain), torch._efficientzerotensor(3, device="cpu"),
        torch.zeros(2, dtype=torch.int64, device="cpu"), torch.zeros(4, dtype=torch.complex64, device="cpu").conj(),
        torch.empty(2, device="meta"), torch.nn.Parameter(plain), untracked])


def install_memory() -> None:
    """Let the compiled modules read whose memory a tensor lies in."""
    own = [torch.empty(shape, dtype=dtype, device="cpu") for dtype in (torch.float32, torch.float64, torch.int8)
           for shape in ((), (3,), (2, 500), (0,))]
    others = [torch.frombuffer(bytearray(size), dtype=torch.uint8) for size in (1, 24, 64, 4000)]
    parts = [torch.ones(4, 5, device="cpu")[1:, 2], torch.nn.Parameter(torch.ones(2, device="cpu"))]
    tensor_info.install_memory([*own, *others, *parts])


def bound(name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What torch's binding of an elementwise kernel says of `x` and `y`, which it leaves as they are."""
    if name.endswith("_backward"):
        found: torch.Tensor = getattr(torch.ops.aten, name).default(x, y)
        return found
    into = x + 0
    return getattr(into, name)(*() if name in SINGLES else (x, y) if name in PRODUCTS else (y,))


@torch.no_grad()
def kernels() -> dict[str, int]:
    """The functions of `kernels.pyx`, where they can be called and give what torch's bindings give."""
    found = addresses(KERNELS) if sys.platform == "linux" else None
    try:
        from autograd_opt.abi.kernels import probe, probe_convolution, probe_elementwise, take
    except ImportError:                  # there was no C++ compiler
        return {}
    elementwise = addresses(ELEMENTWISE)
    if found is None or elementwise is None:
        return {}
    ones = torch.ones(3, 4, device="cpu")
    x, w, b = ones.cumsum(1).sub_(2), ones[:2].cumsum(0), ones[0, :2]
    target = torch.tensor([1], device="cpu")
    y = torch.nn.functional.linear(x, w, b)
    threshold, nll_back = torch.ops.aten.threshold_backward.default, torch.ops.aten.nll_loss_backward.default
    loss, total = torch.ops.aten.nll_loss_forward.default(y[:1], target, None, 1, -100)
    expected = [y.mm(w), y.t().mm(x), y.sum(0), y, threshold(x, x, 0), threshold(y + 1, y, 0), loss, total,
                *(nll_back(loss, y[:1], target, b, 1, ignored, total) for ignored in (0, 1))]
    try:
        functions = take(found, elementwise, *torch.arange(2, device="cpu").unbind())
        right = all(map(torch.equal, probe(x, w, b, target), expected))
        image = torch.arange(1.0, 21.0, dtype=torch.float64, device="cpu").view(1, 1, 4, 5)
        kernel, cotangent = image[..., :1, 1:2], image[..., :3, :] * 2           # of one tap: no thread is started
        of_all, of_one = probe_convolution(cotangent, image, kernel)
        convolution_back, how = torch.ops.aten.convolution_backward.default, ([2, 1], [1, 0], [1, 2], False, [0, 0], 1)
        expected = [*convolution_back(cotangent, image, kernel, [1], *how, [True, True, True]),
                    convolution_back(cotangent, image, kernel, None, *how, [False, True, False])[1]]
        right = right and of_one[0] is of_one[2] is None and all(map(torch.equal, [*of_all, *of_one[1:2]], expected))
        p, q = ones.cumsum(0).div_(4), ones.cumsum(1).div_(3)
        for name, said in probe_elementwise(functions, p, q).items():
            right = right and torch.equal(said, bound(name, p, q))
    except (RuntimeError, TypeError):
        return {}
    return functions if right else {}
