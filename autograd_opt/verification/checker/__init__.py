"""Proof that each optimized cotangent is the sum of the original ones."""
