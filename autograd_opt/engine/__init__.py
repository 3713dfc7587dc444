"""The backward run: arguments, order, rules, accumulation, nested and batched runs."""
