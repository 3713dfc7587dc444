"""Nodes, the tape, values, tensors and hooks: the recorded graph as data."""
