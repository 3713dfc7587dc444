import numpy as np
from numpy.typing import NDArray

def removal(offsets: NDArray[np.int64], operands: NDArray[np.int32], kept: NDArray[np.uint8]) -> tuple[int, int]: ...
