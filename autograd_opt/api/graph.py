"""AutogradGraph: the context in which operations are recorded."""

from __future__ import annotations

import copy
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Self, Unpack

import torch

from autograd_opt import errors
from autograd_opt._common.arguments import named, yes_or_no
from autograd_opt.api.proved_graph import ProvedGraph
from autograd_opt.engine import backward as engine
from autograd_opt.graph import released_history, thread_state
from autograd_opt.optimizer import merging as optimize_
from autograd_opt.passes import Pipeline
from autograd_opt.record import tasks

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from autograd_opt.api.options import GraphOptions, Passes, Tensors

OPTIONS = "pipeline default_passes optimize exact verify_each anomaly name allowance sources keep".split()
"""What a graph was asked for, as `Context.configure` keeps it."""

Tensor = torch.Tensor


def pipeline_of(optimize: Any, passes: Any) -> tuple[bool, Pipeline]:
    """Whether sums of cotangents stay as written, and the pipeline, of what the user has asked for."""
    exact = optimize_.mode_of(optimize) == "exact"
    return exact, optimize_.pipeline_of(passes, exact)


class AutogradGraph(ProvedGraph):
    """Record torch operations, optimize them, differentiate them.

    Parameters
    ----------
    optimize : find repeated work while recording and merge it before backward.  "exact": values
        are reused, but every sum of cotangents stays as written, bit for bit.
    passes : pass names or `Pass` objects instead of the default ("cse", "prune").
    verify : prove every optimization before it is used; a refuted one raises, and a run whose
        optimization is not proved goes as written.  `graph.verdicts` holds the latest answers.
    anomaly : name the operation whose backward makes a NaN.
    name : shown in messages.
    allowance : bytes of values that may be kept alive only for reuse, beside as many as
        reuse saves.  By default as much as repeats turn out to need, learned from graph to
        graph opened at one place, 16 MiB at most, and only where the peak does not rise by it.
    sources : remember the user's file and line of every operation.
    keep : hold a snapshot when the context is left, so that printing, drawing, reporting, iterating and indexing
        work afterwards. Results that are still held then keep their history: torch's `backward()` outside goes
        through it. It is let go of with the last of them, or by a run without `retain_graph`. Where a leaf is one
        of `ao.tensor`, of which torch knows nothing, or another context is around, they keep none.

    Raises
    ------
    ArgumentError : an unknown pass name, or a number out of range; the message names the nearest pass.
    ArgumentTypeError : an unknown option, with the nearest; an option of a wrong type.  It is a TypeError.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> a = ao.tensor([1.0, 2.0])
    >>> with ao.AutogradGraph(optimize=True) as graph:
    ...     loss = ((a + 1) * (a + 1)).sum()
    ...     loss.backward()
    >>> a.grad
    tensor([4., 6.])
    """

    def __init__(self, optimize: bool | str = False, *, passes: Passes | None = None,
                 verify: bool = False, anomaly: bool = False, name: str | None = None, allowance: int | None = None,
                 sources: bool = True, keep: bool = False):
        if keep is not False:
            keep = yes_or_no("keep", keep)
        self.configure(optimize, passes, verify, anomaly, name, allowance, sources, keep)
        if verify:
            from autograd_opt.verification.strategies import verifier
            assert verifier                  # loaded now, so that no step waits for it

    def _left(self, exc: tuple[Any, ...]) -> bool:
        """Was it left another way, by the task that it was opened in, or together with results that keep a history?"""
        if self.thread is None and tasks.waiting and tasks.forget(self):
            self._release()                     # the task does not go on
            return True
        if self.keep and self.thread == threading.get_ident():
            from autograd_opt.api.regions import left_with_history
            self.kept = self.snapshot()
            return exc[:1] in ((), (None,)) and left_with_history(self)
        return False

    # Copies --------------------------------------------------------------------------
    def __copy__(self) -> Self:
        """A new graph of the same options and attributes, as a model that holds a graph is copied."""
        if self.thread is not None:
            raise errors.GraphError(errors.at(
                f"{self.label} is open and cannot be copied: copy it before it is opened, or after it was left"
            ))
        made = type(self).__new__(type(self))
        made.configure(False, None, False, False, None, None, True, False)
        for option in OPTIONS:
            setattr(made, option, getattr(self, option))
        if self.verify_each:
            made.verdicts = deque(maxlen=self.verdicts.maxlen)
        made.__dict__.update(self.__dict__)
        made.__dict__.pop("released", None)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = memo[id(self)] = self.__copy__()
        made.__dict__.update(copy.deepcopy({k: v for k, v in self.__dict__.items() if k != "released"}, memo))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be pickled."""
        raise errors.ArgumentTypeError(errors.at(
            f"{self.label} cannot be pickled: it records in this process alone; make an AutogradGraph where it is "
            "needed, and pickle tensors, which keep their values"
        ))

    def refuse_second_entry(self) -> None:
        """Refuse to be entered while open."""
        raise errors.GraphError(errors.at(f"{self.label} is already open; make a new AutogradGraph"))

    def refuse_leaving(self) -> None:
        """Refuse to be left while closed, or from a thread that has no graph open."""
        self.require_thread("left")
        raise errors.GraphError(errors.at(f"{self.label} is not open, so it cannot be left"))

    def clear(self) -> None:
        """Release everything but the leaves.

        Inside the context recording goes on; what was computed before is a value without a history, of which only
        `detach()` can be differentiated past.

        Raises
        ------
        GraphError : a backward run is under way (a hook has called this), or another thread has the graph open.
        """
        self.require_thread("cleared")
        self.require_idle("cleared")
        if self.thread is None:
            released_history.forget(self)
        else:
            released_history.release(self)
        self._release()

    def require_idle(self, what: str) -> None:
        """Refuse what would take the nodes from a run that visits them."""
        if self.tape is not None and self.tape.running:
            raise errors.GraphError(errors.at(
                f"{self.label} cannot be {what} while a backward run over it is under way: do it after the run"
            ))

    def require_active(self, what: str) -> None:
        """Refuse to differentiate while another graph, or none, is active in this thread."""
        self.require_thread("used")
        if self.tape is None or thread_state.get_active() is not self.tape:
            raise errors.OutsideGraphError(errors.at(
                f"{what}() of {self.label} was called outside its context: call it inside `with ... as graph:`"
            ))

    @named
    def backward(self, loss: Tensors, gradient: Tensors | None = None, *, inputs: Tensors | None = None,
                 retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Accumulate the gradients of `loss` into the leaves; what `loss.backward(...)` calls.

        Parameters
        ----------
        loss : a tensor of this graph, or a sequence of them; one element each, unless `gradient` is given.
        gradient : the cotangent of `loss`, of its shape; a sequence for a sequence.
        inputs : the leaves that get a `.grad`; default all.
        retain_graph : keep what a second run needs; by default as `create_graph`.
        create_graph : record the run, so that the gradients can be differentiated.

        Raises
        ------
        OutsideGraphError : called outside this graph's context.
        FreedGraphError : an earlier run has released what this one needs.
        InplaceError : a value that a rule has saved was written since.

        >>> import torch, autograd_opt as ao
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> with ao.AutogradGraph() as graph:
        ...     graph.backward(x * x, torch.ones(2))
        >>> x.grad
        tensor([2., 4.])
        """
        self.require_active("backward")
        engine.backward(loss, gradient, retain_graph, create_graph, inputs)

    @named
    def grad(self, outputs: Tensors, inputs: Tensors, grad_outputs: Tensors | None = None, *,
             retain_graph: bool | None = None, create_graph: bool = False, allow_unused: bool | None = None,
             is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Tensor, ...]:
        """The gradients of `outputs` with respect to `inputs`, as `torch.autograd.grad`, whose parameters it takes.

        Returns
        -------
        A tuple, one tensor of the shape of each input; None for an unused one where `allow_unused`.

        Raises
        ------
        OutsideGraphError : called outside this graph's context.
        RuntimeError : an input is not used, without `allow_unused`, in torch's words.

        >>> import torch, autograd_opt as ao
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> with ao.AutogradGraph() as graph:
        ...     graph.grad((x * x).sum(), x)
        (tensor([2., 4.]),)
        """
        self.require_active("grad")
        return engine.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, True, allow_unused,
                           is_grads_batched, materialize_grads)

    @named
    def to_fx(self, outputs: Tensors | None = None, *, inputs: Tensors | None = None, gradients: bool = False,
              optimized: bool = False) -> GraphModule:
        """The record as a `torch.fx.GraphModule` of aten operations, which runs under torch alone.

        It takes the inputs and returns a tuple of the outputs; with `gradients`, that tuple and one of the gradients
        that a run here computes. Other leaves are part of it as they are now; random operations draw anew.

        Parameters
        ----------
        outputs : what it computes; default every result that nothing reads. Of one element, with `gradients`.
        inputs : leaves that it takes, in this order; default all that require grad, in the order of recording.
        gradients : also those of the outputs' sum with respect to the inputs; None for one that is not used.
        optimized : equal calls are merged, forward and backward together.

        Raises
        ------
        OutsideGraphError : the graph is not open.
        UnsupportedError : the graph does not keep what was called (a Function, an operator without a rule), a hook
            changes a gradient, or a constant is gone.

        >>> import torch, autograd_opt as ao
        >>> x = torch.ones(2, requires_grad=True)
        >>> with ao.AutogradGraph() as graph:
        ...     module = graph.to_fx((x.exp() * x.exp()).sum(), gradients=True, optimized=True)
        >>> module(torch.zeros(2))
        ((tensor(2.),), (tensor([2., 2.]),))
        """
        from autograd_opt.api.recorded_fx import graph_module
        self.require_active("to_fx")
        roots, nodes = self.root_numbers(outputs), self.tape.snapshot()
        if inputs is None:
            found = [n for n in nodes if n.is_leaf and n.requires_grad]
        else:
            found = engine.input_nodes(engine.as_tuple(inputs))
        if not all(n is not None and n.is_leaf for n in found):
            raise errors.ArgumentError(errors.at(f"inputs= of to_fx() takes leaves that {self.label} has recorded"))
        return graph_module(nodes, roots, [n.index for n in found], gradients, optimized)


def autograd_graph(optimize: bool | str = False, **options: Unpack[GraphOptions]) -> AutogradGraph:
    """`AutogradGraph` as a function, with its parameters.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([2.0])
    >>> with ao.autograd_graph(optimize=True):
    ...     (x * x).backward()
    >>> x.grad
    tensor([4.])
    """
    return AutogradGraph(optimize, **options)
