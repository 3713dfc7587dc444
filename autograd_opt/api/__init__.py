"""Public names: graphs, functions, functional derivatives, checks, registration."""
