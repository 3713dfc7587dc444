"""`python -m benchmarks`, the same as `autograd-opt bench`."""

from .command import bench

if __name__ == "__main__":
    bench(prog_name="python -m benchmarks")
