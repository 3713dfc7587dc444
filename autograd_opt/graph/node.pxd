"""What is recorded: operators, nodes and their flags."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

# What an operator is (Op.flags).
cdef enum OpFlag:
    ELEMENTWISE = 1      # output element i depends on operand elements i: broadcasts
    COMMUTATIVE = 2      # a op b == b op a, bit for bit
    PURE = 4             # same operands and attributes, same bits: may be reused and merged
    VIEW = 8             # the output aliases operand 0
    REDUCES = 16         # the rule may return a cotangent still to be summed to the operand
    MULTI = 32           # several outputs: operand of `output` nodes
    JOINT = 64           # one rule returns the cotangents of all operands
    VARIADIC = 128       # takes any number of operands, as a list
    MOVES = 256          # the result may be on another device than the operands
    ONCE = 512           # a run that frees the graph frees it, though its rules read nothing that is saved
    HIDES = 1024         # torch's kernel returns a view of memory that eager mode does not show
    OTHERS = 2048        # in each operand: what an operand needs is the others
    FOLDS = 8192         # a product: torch copies operands whose leading axes cannot be seen as one, and saves the copies
    FILLS = 4096         # the kernel reads no values: running it costs no more than sharing the memory of another result

# What a node is (Node.flags).
cdef enum NodeFlag:
    LEAF = 1
    REQUIRES_GRAD = 1 << 1
    FREED = 1 << 2               # a backward run has released what the node saved
    DEAD = 1 << 3                # neither its tensor nor a consumer is alive
    NEEDS_ANS = 1 << 4           # the rule reads the output
    SCALAR0 = 1 << 5             # operand 0 is the Python number in x0
    SCALAR1 = 1 << 6
    UNBROADCAST0 = 1 << 7        # the cotangent of operand 0 must be brought to its shape and dtype
    UNBROADCAST1 = 1 << 8
    EXPOSED = 1 << 9             # memory visible outside torch: value never reused
    OVERWRITTEN = 1 << 10        # the tensor now belongs to a newer node
    NO_MERGE = 1 << 11
    PINNED = 1 << 12             # keeps its own cotangent: hooks, retain_grad, named
    COUNTED = 1 << 13            # the output is part of Tape.alive_bytes
    UNBROADCASTN = 1 << 14       # UNBROADCAST0 for any operand of three or more
    WROTE = 1 << 15              # a leaf whose memory was written since its last use
    MERGED = 1 << 16             # cotangents go to `leader` instead; set by Tape.resolve
    REACHED_DIRECTLY = 1 << 17   # this run has reached the node itself, not only its twins
    KEPT = 1 << 18               # `value` is kept for reuse
    CLONE = 1 << 19              # the tensor is a copy-on-write clone, which cost no memory so far
    PACKED = 1 << 20             # `value` is what a pack hook made of the output
    TOUCHED = 1 << 21            # a leaf used since the last compaction
    FRESH = 1 << 22              # the pending cotangent is memory of its run's own: sums may be made in it
    SAME = 1 << 23               # the value is the operand's own, bit for bit: the node has its number
    INNER = 1 << 25              # the tensor is a rule's own: the user has never seen it, and never will
    NOWHERE = 1 << 26            # requires grad, as torch says of a view of what does, and leads to nobody
    SPARSE = 1 << 27             # the tensor has no strides: what is computed from it is torch's to differentiate
    CONTIGUOUS = 1 << 28         # FRESH memory that a kernel has just filled: contiguous, and what its bits say

cdef inline uint32_t unbroadcast(Py_ssize_t i) noexcept:
    """The flag that says this of operand i."""
    return UNBROADCAST0 if i == 0 else UNBROADCAST1 if i == 1 else UNBROADCASTN

cdef class Vjp:
    cdef readonly object fn
    cdef readonly tuple codes
    cdef readonly tuple attributes
    cdef readonly uint32_t needs

cdef class Op:
    cdef readonly str name
    cdef readonly int id
    cdef readonly tuple operands
    cdef readonly dict attributes
    cdef readonly uint32_t flags
    cdef readonly list vjps
    cdef readonly object joint
    cdef public object kernel    # forward(*operands, **attrs) -> (result, what to save besides)
    cdef public object forward
    cdef public object meaning
    cdef public object shape_rule
    cdef readonly int hot
    cdef readonly bint differentiable    # has any rule
    cdef readonly bint several   # has rules for more than one operand
    cdef public object keeps     # is a result of the operand's type the operand?  True, None, or a function of the node
    cdef public bint unit        # with the number 1 the result is the operand
    cdef public uint32_t lean        # what the rules do not need where the second operand is a number
    cdef public bint functions   # calls the backward of a Function, which may be sent no cotangent at all
    cdef public bint named       # its nodes' names depend on operands
    cdef public bint typed       # its function may tell a list from a tuple; torch's do not
    cdef uint32_t need0, need1
    cdef uint32_t needs(self, int i) except? 4294967295
    cdef bint commutes(self, dict attrs) except -1

cdef class TapeBase:
    """What a node knows of the tape that recorded it."""
    cdef readonly int64_t id
    cdef public Py_ssize_t changes       # how often something changed that decides which nodes merge
    cdef public bint plain       # no saved-tensor hooks: fast paths allowed
    cdef public bint late        # a tensor came to require grad by a write: its views may, too

cdef class Node:
    # first, side by side in memory, what a walk over all nodes reads
    cdef readonly Op op
    cdef uint32_t flags
    cdef uint32_t version
    cdef Py_ssize_t index        # record number, -1 outside the tape's array
    cdef Node in0, in1
    cdef tuple more              # every operand node when there are more than two
    cdef object shape, dtype, device
    cdef Node leader             # the first node of the same value, or None
    cdef object attrs            # dict of attributes, or None
    cdef object x0, x1           # saved operands, or Python numbers; of a leaf, its history and a reference to it
    cdef int64_t tape_id         # which Tape recorded it; ids are never used again
    cdef PyObject *tensor        # borrowed: the user's tensor, NULL once it died
    cdef object saved_more       # list of saved operands when there are more than two
    cdef object value            # the output, kept for the rule or for reuse
    cdef int64_t vn              # value number
    cdef PyObject *holder        # of a leader, borrowed: the newest node whose value may be alive
    cdef object spare            # of a leader: a clone of its value that nobody has any more
    cdef object hooks            # NodeHooks or None
    cdef object view             # ViewInfo or None
    cdef PyObject *cotangent     # owned, while a run has it pending, which takes it or abandons it
    cdef int64_t task            # the run that owns `cotangent`
    cdef Py_ssize_t live         # alive consumers + (tensor alive)
    cdef uint32_t v0, v1
    cdef int lasti               # with `code`: the source position
    cdef uint32_t site           # where it was numbered without a gradient, see `learn` in the recorder; 0 elsewhere
    cdef object code

cdef class Leads:
    cdef int64_t low, high       # record numbers from `low` up to `high`
    cdef unsigned char *marks    # one for each of them

cdef inline bint leads_on(Leads leads, int64_t index) noexcept:
    """Is the node of this number a target of the run, or on a way to one?"""
    return leads.low <= index < leads.high and leads.marks[index - leads.low] & 1

cdef object CustomTensor, PlainTensor, Parameter
cdef object NODE, MARK           # names of a tensor's attributes: its node, and of a leaf whether it requires grad
cdef Op LEAF_OP, OUTPUT_OP, WRITTEN_OP, ELSEWHERE_OP

cdef int64_t fresh_vn() noexcept
cdef dict tapes                  # id -> address of the Tape, while it lives
cdef object tape_by_id(int64_t id)
cdef Node new_node(Op op)
cdef PyObject *user_code(int *lasti) except? NULL
cdef int current_source(Node node) except -1
cdef bint is_custom(object t) except -1
cdef uint32_t version_of(object t) except? 4294967295
cdef object shape_of(object t)

cdef inline bint same_shape(object a, object b) except -1:
    """Equal shapes are mostly one object."""
    return a is b or a == b


cdef inline bint followed(Node operand) except -1:
    """Does a gradient go on from this operand?"""
    return operand is not None and (operand.flags & (REQUIRES_GRAD | NOWHERE)) == REQUIRES_GRAD

cdef inline bint awaits(Op op, Node operand) except -1:
    """Does the rule of `op` for this operand ever run?  Where it does not, torch saves nothing for it."""
    return followed(operand) or not op.several and operand.flags & REQUIRES_GRAD != 0

cdef inline Node end(Node node):
    """Where the cotangent of `node` goes."""
    return node.leader if node is not None and node.flags & MERGED else node

cdef inline Node operand_of(Node node):
    """The first operand that is a tensor."""
    return node.in0 if node.in0 is not None else node.in1

cdef inline bint commutes(Node node) except -1:
    """May the two operands change places?  Not in `torch.add(x, y, alpha=2)`, which is x + 2 y."""
    return node.op.commutes(node.attrs)

cdef inline object attribute(Node node, str name):
    """An attribute of a recorded call, its default where the call did not name it."""
    cdef object found
    if node.attrs is not None:
        found = (<dict>node.attrs).get(name, node)
        if found is not node:
            return found
    return node.op.attributes[name]

cdef inline bint ordinary(object t) except -1:
    """True if this is a tensor without a behaviour of its own."""
    return type(t) is CustomTensor or type(t) is PlainTensor or type(t) is Parameter
