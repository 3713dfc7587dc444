"""Number domains, and the meaning of each operator over any of them."""
