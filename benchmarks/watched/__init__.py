"""Scripts that `explain` watches: programs of a user's, which know nothing of this library.

Each prints, as its last line, what it computed, to the last bit, and the seconds of processor time that it took.
"""
