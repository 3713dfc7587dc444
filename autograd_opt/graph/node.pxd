"""Declarations shared by the compiled modules: Op, Vjp, Node, Tape."""

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
    AGAIN = 2048         # operands are read by recorded runs alone, which compute the result again
    OTHERS = 4096        # in each operand: what an operand needs is the others

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
    cdef uint32_t needs(self, int i)
    cdef bint commutes(self, dict attrs) except -1

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
    cdef object x0, x1           # saved operands, or Python numbers
    cdef int64_t tape_id         # which Tape recorded it; ids are never used again
    cdef PyObject *tensor        # borrowed: the user's tensor, NULL once it died
    cdef object saved_more       # list of saved operands when there are more than two
    cdef object value            # the output, kept for the rule or for reuse
    cdef int64_t vn              # value number
    cdef PyObject *holder        # of a leader, borrowed: the newest node whose value may be alive
    cdef object spare            # of a leader: a clone of its value that nobody has any more
    cdef object hooks            # NodeHooks or None
    cdef object view             # ViewInfo or None
    cdef PyObject *cotangent     # owned, while a run has it pending
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

cdef struct Entry:
    int64_t a
    int64_t b
    uint64_t kind
    PyObject *first              # borrowed Node: the leader

cdef class Tape:
    cdef readonly int64_t id
    cdef PyObject **nodes        # owned
    cdef Py_ssize_t n, capacity, floor
    cdef public bint optimize, consumed, sources
    cdef public Py_ssize_t running   # backward runs under way: record numbers must not move
    cdef public Py_ssize_t fixed     # others that hold record numbers
    cdef Py_ssize_t moves        # how often entries of the value table were moved or forgotten
    cdef bint moved              # the last value handed out again was the kept one itself, not a clone
    cdef bint layouts            # a value was computed twice for its strides
    cdef public bint histories   # a tensor that torch has computed is a leaf: its gradient goes on in torch's graph
    cdef public bint late        # a tensor came to require grad by a write: its views may, too
    cdef public bint heard       # leaves have hooks: they see the order in which leaves get their gradients
    cdef public bint plain       # no saved-tensor hooks: fast paths allowed
    cdef dict casts              # (id(leaf), grad mode) -> the leaf and its cast by autocast
    cdef object cast_seal        # dies when torch forgets its own
    cdef bint sweeping, guarded
    cdef int64_t modes           # how many torch-function modes there were when its context began, its own the innermost
    cdef list trash
    cdef object guard            # disables torch functions around one kernel
    cdef dict abroad             # id(tensor of another graph) -> (weak reference, the node that stands for it)
    cdef dict leaves             # id(tensor) -> (leaf Node, tensor or weakref)
    cdef public Py_ssize_t hits, recomputed, epoch, changes
    cdef public Py_ssize_t twins, merging        # nodes with a leader; those that a cotangent may reach
    cdef Py_ssize_t resolved, resolved_changes
    cdef public dict seeds       # cotangents of scalars, by shape, dtype and device
    cdef dict writes             # storage -> (weak reference, code, instruction) of its latest unrecorded write
    cdef Py_ssize_t writes_due   # so many are looked through for memory that is gone
    cdef public dict exposed     # storage -> storage object, of memory visible outside torch
    cdef int missed(self, Node node) except -1
    cdef public Py_ssize_t missed_bytes, saved_bytes, kept_bytes, peak_kept_bytes
    cdef Py_ssize_t allowance
    cdef bint counting           # are the bytes of living outputs counted?
    cdef Py_ssize_t alive_bytes, largest, expected
    cdef Py_ssize_t freeing      # runs under way that free the graph
    cdef readonly Py_ssize_t most_alive
    cdef public bint steady      # values held for reuse give way to none that comes later
    cdef public bint advance     # the whole allowance from the start, not only once it was missed
    cdef public Py_ssize_t reused_bytes
    cdef Entry *table
    cdef size_t mask, used
    cdef object ring             # deque of nodes whose value is kept for reuse
    cdef public object graph     # weak reference to the AutogradGraph
    cdef object last_shape, last_dtype
    cdef Py_ssize_t last_bytes
    cdef object other_shape, other_dtype
    cdef Py_ssize_t other_bytes
    cdef int append(self, Node node) except -1
    cdef Node leaf(self, object t)
    cdef Node above(self, Node below, object t)
    cdef int describe(self, Node node, object t) except -1
    cdef bint degenerate(self)
    cdef Entry *find(self, int64_t a, int64_t b, uint64_t kind) except NULL
    cdef int grow(self) except -1
    cdef void decrement(self, Node node) noexcept
    cdef void let_go(self, Node node) noexcept
    cdef void release(self, Node node) noexcept
    cdef void spend(self, Node node) noexcept
    cdef void drain(self) noexcept
    cdef void unlink(self, Node node) noexcept
    cdef int keep(self, Node node) except -1
    cdef int evict(self, Py_ssize_t limit) except -1
    cdef Py_ssize_t budget(self) noexcept
    cdef int count(self, Node node) except -1
    cdef void uncount(self, Node node) noexcept
    cdef int lost(self, Node node, bint wanted=*) except -1
    cdef int inherit(self, Node node) except -1
    cdef int forget_writes(self) except -1
    cdef int compact(self) except -1
    cdef int count_references(self, Py_ssize_t *known) except -1
    cdef int count_reference(self, Node node, Py_ssize_t *known) except -1
    cdef int keep_below(self, Node node, Py_ssize_t *known) except -1
    cdef int keep_record(self, Node node, Py_ssize_t *known) except -1
    cdef int forget_leaf(self, Node node) except -1
    cpdef int clear(self) except -1
    cdef Node parameter(self, object t)
    cdef int resolve(self, dict captured) except -1
    cdef void spend_twin(self, Node node, int64_t task, Leads needed) noexcept
    cdef int lead(self, Node node, Node target) except -1
    cdef int mergeable(self, Node node, dict captured) except -1
    cdef int keep_number(self, Node node, object r) except -1
    cdef Py_ssize_t nbytes(self, object shape, object dtype) except -1

cdef int64_t fresh_vn()
cdef Tape active_tape()
cdef object known_value(Tape tape, Node first)
cdef object live_value(Tape tape, Node node)
cdef object left_over(Tape tape, Node first, object value)
cdef object value_of(Tape tape, Op op, Node operand)
cdef PyObject *recording()
cdef Tape tape_here()
cpdef wrote(t)
cdef int set_paused(int value)
cdef Node handle(Tape tape, object t)
cdef Node new_node(Op op)
cdef int attach(Tape tape, Node node, object tensor) except -1
cdef object current_source(Node node)
cdef int is_custom(object t)
cdef uint32_t version_of(object t) except? 4294967295
cdef object shape_of(object t)
cdef object same_device(object device)
cdef tuple number_arguments(object number, object t, object dtype)
cdef bint is_float(object dtype)

cdef inline bint followed(Node operand):
    """Does a gradient go on from this operand?"""
    return operand is not None and (operand.flags & (REQUIRES_GRAD | NOWHERE)) == REQUIRES_GRAD
cdef inline bint awaits(Op op, Node operand):
    """Does the rule of `op` for this operand ever run?  Where it does not, torch saves nothing for it."""
    return followed(operand) or not op.several and operand.flags & REQUIRES_GRAD != 0
cdef int release_handle(Tape tape, object t) except -1
cdef object encode(object v, bint typed=*)
cdef object encode_attributes(object attrs, bint typed)
cdef int deeper() except -1
cdef void shallower() noexcept
