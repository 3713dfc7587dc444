"""sympy's proofs of rules and of linearity, composed by the checker."""
