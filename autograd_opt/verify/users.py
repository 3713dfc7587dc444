"""The user's rules on traces: whatever they do that a run would not do alike makes them untraceable, caught or not.

A rule may catch what its trace refuses and go another way than a run does; so every refusal stays noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autograd_opt.verify.calls import Untraceable
from autograd_opt.verify.tracer import Draws, Tracer, Undrawn

T = TypeVar("T")


class Watch(Undrawn):
    """Notes what fails beneath the functions that a tracer sees."""

    def __init__(self, tracer: UsersTracer):
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except Exception as error:
            if not self.tracer.inside:
                self.tracer.refuse(error)
            raise


class UsersTracer(Tracer):
    """Traces say that they are on the device of what they stand for: the user's rules may branch on it."""

    users = True

    def __init__(self, vocabulary: Any, places: int, device: str):
        super().__init__(vocabulary, places, device)
        self.refused: Untraceable | None = None
        self.inside = 0
        self.watch = Watch(self)

    def __enter__(self) -> UsersTracer:
        self.watch.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.watch.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.inside += 1
        try:
            return super().__torch_function__(func, types, args, kwargs)
        except Exception as error:
            self.refuse(error)
            raise
        finally:
            self.inside -= 1

    def refuse(self, error: Exception) -> None:
        """The rule is untraceable, whatever it makes of the error; the first one is told.  Keeps no frame alive."""
        if self.refused is None:
            self.refused = (Draws if isinstance(error, Draws) else Untraceable)(str(error))


def ran(call: Callable[[Callable[..., Any]], T]) -> T:
    """What `call` makes with a tracer of this kind, unless that has refused.

    Raises
    ------
    Untraceable : it has.
    """
    tracers: list[UsersTracer] = []

    def tracer(*args: Any) -> UsersTracer:
        tracers.append(UsersTracer(*args))
        return tracers[-1]

    made: list[T] = []
    try:
        made.append(call(tracer))
    except Exception as error:
        if not tracers:
            raise
        tracers[0].refuse(error)
    if tracers and tracers[0].refused is not None:
        raise tracers[0].refused
    return made[0]
