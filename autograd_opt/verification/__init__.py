"""Verification: proved, refuted or undecided, for every optimization.

The entry point is `autograd_opt.verify.verify`. The packages, in reading order:

    result            verdicts and budgets: what is answered, and how it was asked
    program           a recorded graph as plain instructions; gradient rules, users' rules too, traced once per
                      signature; values and reverse sweep of a graph as one program
    semantics         number domains, and what every operator means over any of them; sympy as a domain, kinks by cases
    lemmas            sympy's proofs of every rule and every linearity that the checker composes
    cache             proofs of this process, by everything that they have read
    checker           the proof: every optimized cotangent is a sum of original ones
    rewrites          a node replaced by another computation: both are compared
    counterexample    evaluation modulo a prime, which finds differences; rational points with rigorous bounds: refutes
    strategies        which engine is asked when; elementwise gradients of small graphs, compared and printed

`serialize` and `certificate` save an answer with its graph, and verify it again; `asserting` serves tests.
"""
