"""Workloads, and how they are measured; installed as autograd_opt.benchmarks."""
