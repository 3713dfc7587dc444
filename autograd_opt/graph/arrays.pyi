from array import array

from autograd_opt.graph.tape import Tape

def flat_arrays(
    tape: Tape,
) -> tuple[array[int], array[int], array[int], array[int], array[int], array[int] | None]: ...
