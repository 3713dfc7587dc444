"""Recorded graphs, rules and reverse sweeps as programs of plain instructions."""
