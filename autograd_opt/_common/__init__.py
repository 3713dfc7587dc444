"""Helpers that know neither torch nor graphs: environment, files, locks, arguments."""
