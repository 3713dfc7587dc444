"""Plans: a recorded call as a flat program of kernels and elementwise stretches, run again without its function."""
