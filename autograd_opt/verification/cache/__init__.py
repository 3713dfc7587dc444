"""Proofs kept in memory, by everything that they read."""
