"""Other libraries on the same workloads, where they are installed (`pip install .[bench]`)."""
