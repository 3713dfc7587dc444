"""What a pass may do with a node: one bit each, kept in ``NodeTable.flags``.

A node with no bit set is pure: it may merge with an equal node and may be
pruned when nothing needs it.

======================  =====  ======  =======  ==============================
flag                    value  merges  pruned   for
======================  =====  ======  =======  ==============================
``LEAF``                1      never   yes      inputs and parameters, however
                                                equal their values
``EFFECT``              2      never   never    random draws, in-place writes,
                                                operations of unknown purity
``PINNED``              4      never   yes      hooks, ``retain_grad``: the node
                                                sees its own cotangent
``COMMUTATIVE``         8                       two operands in either order
``KEEP``                16     yes     never    needed though nothing uses it
``NOMERGE``             32     never   yes      pure, but must run each time,
                                                e.g. a view or a recomputation
======================  =====  ======  =======  ==============================
"""

from typing import Final

__all__ = [
    "COMMUTATIVE",
    "EFFECT",
    "KEEP",
    "LEAF",
    "NEVER_MERGES",
    "NEVER_PRUNED",
    "NOMERGE",
    "PINNED",
]

LEAF: Final = 1
EFFECT: Final = 2
PINNED: Final = 4
COMMUTATIVE: Final = 8
KEEP: Final = 16
NOMERGE: Final = 32

NEVER_MERGES: Final = LEAF | EFFECT | PINNED | NOMERGE
NEVER_PRUNED: Final = EFFECT | KEEP
