"""Rules that are written in C as well, for the operators of hot loops."""
