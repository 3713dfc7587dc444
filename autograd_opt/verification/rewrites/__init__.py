"""Values taken from another computation, each proved on its own."""
