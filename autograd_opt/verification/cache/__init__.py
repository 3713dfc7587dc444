"""Proofs and traces kept in memory and in files, by everything that they read."""
