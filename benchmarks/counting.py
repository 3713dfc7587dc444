"""What does not depend on the clock: kernels run, kernels an FX trace keeps, bytes alive at the peak."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from .workload import Workload

FREE = frozenset("""
    _lazy_clone alias detach detach_ view _unsafe_view reshape _reshape_alias expand t transpose permute squeeze
    unsqueeze select slice split split_with_sizes unbind chunk diagonal as_strided lift_fresh unfold narrow
    real imag view_as_real view_as_complex movedim empty empty_like empty_strided new_empty new_empty_strided
    is_same_size sym_size sym_stride sym_numel _local_scalar_dense item resize_ set_ _has_compatible_shallow_copy_type
    _fused_sdp_choice
""".split())
"""aten operators that run no kernel over data: views, aliases, copy-on-write clones, bare allocations, questions."""


def launches(operator: Any) -> bool:
    """Does a call of this aten operator run a kernel?"""
    name = operator._schema.name.removeprefix("aten::")
    return name not in FREE


class KernelCounter(TorchDispatchMode):
    """Counts the kernels that torch is asked to run, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """All of them."""
        return self.names.total()

    def counted(self, name: str) -> None:
        """One more kernel."""
        self.names[name] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # With autograd's dispatch keys excluded, `linear` or `flatten` arrive whole: what
        # counts is the operators that they consist of, as everywhere else.
        with self:
            parts = func.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        if launches(func):
            self.counted(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def kernels(run: Callable[[], Any], *, warm: bool = True) -> Counter[str]:
    """Kernels of one step, by name; of the second one with `warm`."""
    if warm:
        run()
    with KernelCounter() as counter:
        run()
    return counter.names


class SiteCounter(KernelCounter):
    """Counts kernels by operator and by the line of Python that called for them."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: Counter[tuple[str, str]] = Counter()

    def counted(self, name: str) -> None:
        super().counted(name)
        self.sites[plain_name(name), caller()] += 1


def plain_name(name: str) -> str:
    """An operator's name without the mark of the in-place form.

    >>> plain_name("add_"), plain_name("ones_like"), plain_name("ones")
    ('add', 'ones', 'ones')
    """
    return name.rstrip("_").removesuffix("_like")


def caller() -> str:
    """File and line of the nearest frame that is neither torch's nor this module's."""
    frame = sys._getframe(1)
    skipped = (str(Path(torch.__file__).parent), __file__)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno}"


def traced_names(workload: Workload) -> tuple[Counter[str], Counter[str]] | None:
    """Kernels by name in the step traced by `make_fx`, before and after torch's own `fx_graph_cse`.

    None where the step cannot be traced.
    """
    from torch._functorch.compile_utils import fx_graph_cse
    from torch.fx.experimental.proxy_tensor import make_fx

    leaves = [leaf.detach().clone().requires_grad_() for leaf in workload.leaves]
    try:
        graph = make_fx(functional(workload))(*leaves).graph
        graph.eliminate_dead_code()
        merged = fx_graph_cse(graph)
        merged.eliminate_dead_code()
    except Exception:  # whatever the tracer cannot follow is a property of the tracer, printed as such
        return None
    return calls(graph), calls(merged)


def calls(graph: torch.fx.Graph) -> Counter[str]:
    """Calls of a traced graph that run a kernel."""
    return Counter(
        node.target._schema.name.removeprefix("aten::")
        for node in graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and launches(node.target)
    )


def functional(workload: Workload) -> Callable[..., Any]:
    """The step as a function from leaves to results, which is what a tracer can take."""

    def step(*leaves: Tensor) -> Any:
        out = called(workload, leaves)
        return torch.autograd.grad(out, leaves, allow_unused=True) if workload.backward else out

    return step


def called(workload: Workload, leaves: tuple[Tensor, ...]) -> Any:
    if workload.module is None:
        return workload.forward(*leaves)
    names = [name for name, _ in workload.module.named_parameters()]
    with torch.nn.utils.stateless._reparametrize_module(workload.module, dict(zip(names, leaves, strict=True))):
        return workload.forward()


def peak_bytes(run: Callable[[], Any], leaves: Iterable[Tensor] = ()) -> int:
    """Most bytes of tensors alive at once during one step, beyond those alive before it."""
    return allocations(run, leaves)[1]


def allocations(run: Callable[[], Any], leaves: Iterable[Tensor] = (), *, warm: bool = True) -> tuple[int, int]:
    """Bytes of tensors allocated in one step, and the most of them alive at once.

    Read from torch's allocator, so that storage shared copy-on-write counts once.  Gradients
    of the `leaves` from the step before are released first: the profiler would see some of
    them go that it had not seen come.
    """
    if warm:
        run()
    for leaf in leaves:
        leaf.grad = None
    with quiet_profiler(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recording:
        run()
    events = memory_events(recording)
    alive = peak = allocated = 0
    for _, change in sorted(events, key=lambda event: event[0]):
        allocated += max(change, 0)
        alive += change
        peak = max(peak, alive)
    return allocated, peak


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """Keep the profiler's own start and stop lines, written by C++ code, off stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def memory_events(recording: Any) -> list[tuple[int, int]]:
    """(time, bytes allocated or, negative, released) of every allocator call."""
    results = recording.profiler.kineto_results
    return [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]"]
