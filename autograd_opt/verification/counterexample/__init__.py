"""Exact and bounded evaluation at points, which refutes."""
