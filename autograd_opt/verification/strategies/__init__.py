"""Which engine is asked when; sympy end to end."""
