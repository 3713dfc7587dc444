from typing import final

@final
class Retention:
    missed_bytes: int
    saved_bytes: int
    kept_bytes: int
    peak_kept_bytes: int
    allowance: int
    steady: bool
    advance: bool
    @property
    def most_alive(self) -> int: ...
    def __new__(cls, allowance: int) -> Retention: ...
    def forget_values(self) -> None: ...
    def clear(self) -> None: ...
