"""Hold all kinds of statements of random programs, a subject a file, in one table: `tests.statements.table.KINDS`."""

from tests.statements import (  # noqa: F401 (each enters its kinds in the table)
    checkpoints,
    foreign,
    functions,
    given,
    indexing,
    kept,
    kinks,
    layers,
    layouts,
    liveness,
    loops,
    operands,
    printing,
    repeats,
    runs,
    sparse,
    transforms,
    values,
    wrapped,
    writes,
)
