"""Verdicts and budgets: what a verification answers and how it was asked."""
