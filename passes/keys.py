"""Key bytes to small integers: equal numbers exactly where the bytes are equal."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["KeyInterner"]


class _Numbers(dict[bytes, int]):
    def __missing__(self, key: bytes) -> int:
        # 1, 1.0 and True are one dict key; bytes are equal to bytes only
        if type(key) is not bytes:
            raise TypeError(f"a key is bytes, not {type(key).__name__}: {key!r}")
        number = self[key] = len(self)
        return number


class KeyInterner:
    """Number the key bytes of operations 0, 1, 2, … in the order they appear.

    The bytes are compared in full by the dict that holds them, so two keys
    with one hash keep two numbers. One interner can serve many graphs; numbers
    of different interners have nothing to do with one another.

    Examples
    --------
    >>> interner = KeyInterner()
    >>> interner.number_all([b"add", b"mul", b"add"])
    array([0, 1, 0])
    >>> interner.key(1), len(interner)
    (b'mul', 2)
    """

    def __init__(self) -> None:
        self._numbers = _Numbers()

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, key: bytes) -> int:
        """Return the number of `key`, a new one if it was never seen.

        Raises
        ------
        TypeError
            If `key` is not bytes.
        """
        return self._numbers[key]

    def number_all(self, keys: Iterable[bytes], count: int = -1) -> NDArray[np.int64]:
        """Return the numbers of many keys; `count`, if known, saves copies."""
        return np.fromiter(map(self._numbers.__getitem__, keys), np.int64, count)

    def key(self, number: int) -> bytes:
        """Return the bytes behind a number (a slow search, for messages)."""
        for key, known in self._numbers.items():
            if known == number:
                return key
        raise KeyError(number)
