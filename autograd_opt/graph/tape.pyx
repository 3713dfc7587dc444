"""Tape: nodes in record order, leaves, how long saved tensors live; and which tape records in a thread.

A `Tape` owns its nodes in record order; a tensor owns only its own node.
"""

import weakref

import torch

from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.weakref cimport PyWeakref_NewRef
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport *
from autograd_opt.abi.tensor_info cimport resizable, sole_owner
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.blocks cimport give, grown, take
from autograd_opt.graph.node cimport *
from autograd_opt.graph.node_classes cimport shown
from autograd_opt.graph.plain_values cimport CPU, same_device
from autograd_opt.graph.retention cimport nbytes
cimport cython

cdef extern from *:
    """
    static AO_THREAD PyObject *ao_active = NULL;   /* the Tape recording in this thread */
    static AO_THREAD int ao_paused = 0;
    static AO_THREAD int ao_saving_hooks = 0;      /* 1 while a pair of saved-tensor hooks is in place */
    """
    PyObject *ao_active
    int ao_paused
    int ao_saving_hooks

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)
    Py_ssize_t references "Py_REFCNT"(PyObject *o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)
    void PyErr_Clear()

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object grad_enabled = private.is_grad_enabled
cdef object get_version = ao_own(private.version_property)
cdef object get_device = ao_own(base.__dict__["device"])
cdef object get_base = ao_own(private.base_property)
cdef object get_inference = base.__dict__["is_inference"]
cdef object get_meta = ao_own(base.__dict__["is_meta"])
cdef object get_hooks = private.backward_hooks_property
cdef object get_post_hooks = private.post_accumulate_grad_hooks_property
cdef object STRIDED_LAYOUT = torch.strided
cdef int64_t _tape_ids = 0


# The tape that records in this thread. ---------------------------------------------------
cdef Tape active_tape():
    return None if ao_active == NULL else <Tape>ao_active


cdef PyObject *recording() noexcept:
    """The tape that records in this thread now, borrowed, or NULL."""
    return NULL if ao_paused else ao_active


cdef Tape tape_here():
    """The tape that records now; an error where none does."""
    cdef PyObject *tp = recording()
    if tp == NULL:
        from autograd_opt.errors import OutsideGraphError, at
        raise OutsideGraphError(at("an operation was to be recorded while no AutogradGraph records in this thread"))
    return <Tape>tp


cdef int set_paused(int value) noexcept:
    global ao_paused
    cdef int old = ao_paused
    ao_paused = value
    return old


def pause():
    """Stop recording in this thread; returns what `resume` needs."""
    return set_paused(1)


def resume(int old):
    """Restore what `pause` or `resume` returned; returns the state until now."""
    return set_paused(old)


def get_active():
    return active_tape()


def get_recording():
    """The Tape that records in this thread now, or None."""
    return None if ao_paused or ao_active == NULL else <Tape>ao_active


def set_active_tape(Tape tape):
    """Make `tape` (held by its graph) the one recording in this thread; None for none."""
    global ao_active
    ao_active = NULL if tape is None else <PyObject *>tape


def saving_hooks():
    """How many pairs of saved-tensor hooks are in place in this thread."""
    return ao_saving_hooks


def set_saving_hooks(int depth):
    """Say how many are in place; the active tape learns whether there are any."""
    global ao_saving_hooks
    ao_saving_hooks = depth
    if ao_active != NULL:
        (<Tape>ao_active).plain = depth == 0


# Tensors that a graph must not touch, or whose memory others may write. -----------------
cdef object plain_dispatch = PlainTensor.__torch_dispatch__


def unusual(t):
    """Is this a tensor that cannot be recorded: nested, or of a class with its own `__torch_dispatch__`?"""
    return isinstance(t, PlainTensor) and (t.is_nested or type(t).__torch_dispatch__ is not plain_dispatch)


cdef int require_ordinary(object t) except -1:
    """Refuse a tensor whose class computes in a way of its own, below the recorder."""
    if ordinary(t) and ao_plain(t):
        return 0
    if unusual(t):
        from autograd_opt.graph.refusals import unsupported_operand
        raise unsupported_operand(t)
    if type(t) is not Parameter:
        from autograd_opt.graph.refusals import note_class
        note_class(type(t))
    return 0


cdef bint borrowed(object t) except -1:
    """Can the memory of `t` be written unseen: numpy's, say, or an inference tensor's?"""
    return ao_is_inference(get_inference, t) or ao_strided(t) \
        and ao_get(get_meta, t) is not True and not resizable(t)


# The tape. -------------------------------------------------------------------------------
cdef bint nothing_saved(object extra) except -1:
    """Is this what an opaque call keeps that torch has saved nothing for?"""
    return type(extra) is tuple and len(extra) > 0 and getattr(extra[0], "repeats", False) is True


cdef int spend_below(Node other, list stack, Leads needed) except -1:
    """One operand of a spent twin: on the stack if it goes with it, else reached by the run itself.

    `needed` are the nodes that lead to what the run was asked for; None for all.
    """
    if needed is not None and not leads_on(needed, other.index) and not (
            other.flags & MERGED and leads_on(needed, other.leader.index)):
        return 0
    if other.flags & MERGED:
        stack.append(other)
    else:
        other.flags |= REACHED_DIRECTLY
    return 0


cdef class Forgetter:
    """What to do when the constant behind a leaf node dies."""
    cdef int64_t tape
    cdef PyObject *key
    cdef Node node

    def __call__(self, _):
        tape = tape_by_id(self.tape)
        if tape is not None:
            (<Tape>tape).drop_leaf(self.key, self.node)


cdef object forgetter(Tape tape, PyObject *key, Node node):
    cdef Forgetter made = Forgetter.__new__(Forgetter)
    made.tape, made.key, made.node = tape.id, key, node
    return made


cdef Py_ssize_t KEPT_RECORD = -1         # instead of a number of references
cdef bint compacts_always = False


def compact_always(bint on):
    """Compact at every record, which finds what is dropped too early; returns what was set before.  For tests."""
    global compacts_always
    before, compacts_always = compacts_always, on
    return before


cdef PyObject *leaf_tensor(Node node) except? NULL:
    """The tensor behind a leaf's node, borrowed; NULL where it is gone."""
    if node.value is None:
        return NULL
    if not is_weak(node.value):
        return <PyObject *>node.value
    return ao_referent(node.value)


cdef Py_ssize_t own_references(Node node) except -1:
    """How many references to a leaf's node are its tensor's handle, and what waits for the tensor's end."""
    cdef Py_ssize_t found = is_weak(node.value) or is_weak(node.x1)
    cdef PyObject *t = leaf_tensor(node)
    cdef PyObject *p
    if t != NULL and type(<object>t) is CustomTensor:
        p = ao_try_attr(<object>t, NODE)
        if p != NULL:
            found += p == <PyObject *>node
            Py_DECREF(<object>p)
    return found


@cython.final
cdef class Held:
    """Keeps nodes and what they have saved alive while a call is open whose operands they are."""

    def __init__(self, nodes):
        self.nodes = [n for n in nodes if n is not None]

    def __enter__(self):
        cdef Node node
        for node in self.nodes:
            node.live += 1

    def __exit__(self, *_):
        cdef Node node
        for node in self.nodes:
            tape = tape_by_id(node.tape_id)
            if tape is not None:
                (<Tape>tape).decrement(node)


cdef object free_weak_ref = private.storage_free_weak_ref
cdef object expired = private.storage_expired


@cython.final
cdef class Memory:
    """A weak reference to the storage of a tensor, as `StorageWeakRef` is one, and where it was last written."""
    cdef size_t address
    cdef PyObject *code                  # as `user_code` has it
    cdef int lasti

    def __init__(self, t):
        self.address = private.storage_new_weak_ref(t.untyped_storage())

    def __dealloc__(self):
        if self.address:
            free_weak_ref(self.address)


cdef dict late_bases = {}                # id -> weak reference to a tensor that came to require grad by a write


def base_became_late(base):
    """Let every graph, also those to come, look at the history of views that are older than that of their `base`."""
    if not ao_strided(base) or sole_owner(base):     # there are none, or none that gets a history later
        return
    cdef size_t key = <size_t><PyObject *>base
    late_bases[key] = weakref.ref(base, lambda _: late_bases.pop(key, None))
    for address in tapes.values():
        (<Tape><PyObject *><size_t>address).late = True


cdef bint plain_below(object t) except -1:
    """Is the view `t` one of a tensor of torch's that neither requires grad nor is known to a graph?"""
    cdef object base = ao_get(get_base, t)
    cdef PyObject *p
    if type(base) is not PlainTensor or ao_needs_grad(base):
        return False
    p = ao_try_attr(base, NODE)
    Py_XDECREF(p)
    return p == NULL


cdef bint any_late() except -1:
    """True if such a tensor has a view that is alive, as far as the count of its memory tells."""
    for key in list(late_bases):             # its items are pairs, whose making may let bases end
        reference = late_bases.get(key)
        base = None if reference is None else reference()
        if base is not None:
            storage = base.untyped_storage()
            if private.storage_use_count(private.storage_id(storage)) > 2:           # `base` and `storage`
                return True
        late_bases.pop(key, None)
    return False


cdef bint listens(object t) except -1:
    """Has the leaf hooks, from outside or from another graph?"""
    if type(t) is CustomTensor and (t.__dict__.get("_leaf_hooks") or t.__dict__.get("_post_hooks")):
        return True
    return bool(ao_get(get_hooks, t)) or bool(ao_get(get_post_hooks, t))


cdef enum:
    FIRST = 64                           # nodes for which there is room at first


@cython.no_gc_clear
cdef class Tape:
    """The staging area of one graph: nodes in record order, leaves, value table."""

    def __cinit__(self, bint optimize=False, bint sources=True, Py_ssize_t allowance=16 << 20):
        global _tape_ids
        _tape_ids += 1
        self.id = _tape_ids
        self.optimize = optimize
        self.sources = sources
        self.plain = True
        self.late = bool(late_bases) and any_late()
        self.capacity = FIRST
        self.nodes = <PyObject **>take(FIRST * sizeof(PyObject *))
        self.recent = <Recent *>take(2 * RECENT * sizeof(Recent))
        memset(self.recent, 0, 2 * RECENT * sizeof(Recent))
        self.leaves = {}
        self.exposed, self.seeds, self.writes, self.abroad = {}, {}, {}, {}
        tapes[self.id] = <size_t><PyObject *>self
        self.table = ValueTable.__new__(ValueTable)
        self.retention = Retention.__new__(Retention, allowance)
        self.merges = Merges.__new__(Merges)
        if optimize:
            self.table.allocate(32)

    def __dealloc__(self):
        global ao_active
        cdef Py_ssize_t i
        tapes.pop(self.id, None)
        if ao_active == <PyObject *>self:
            ao_active = NULL
        for i in range(self.n):
            Py_XDECREF(self.nodes[i])
        give(self.nodes, self.capacity * sizeof(PyObject *))
        give(self.trash, self.room * sizeof(PyObject *))
        give(self.recent, 2 * RECENT * sizeof(Recent))

    def __len__(self):
        return self.n

    def node(self, Py_ssize_t i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return <object>self.nodes[i]

    def snapshot(self):
        """All nodes in record order, as a list."""
        return [<object>self.nodes[i] for i in range(self.n)]

    cdef int append(self, Node node) except -1:
        cdef size_t size = self.capacity * sizeof(PyObject *)
        if self.n == self.capacity:
            self.nodes = <PyObject **>grown(self.nodes, size, 2 * size)
            self.capacity *= 2
        node.tape_id = self.id
        node.index = self.n
        Py_INCREF(node)
        self.nodes[self.n] = <PyObject *>node
        self.n += 1
        if self.n > self.floor:
            self.compact_if_due()
        return 0

    cdef Node leaf_of(self, PyObject *t):
        """The node of the leaf at this address; None where it has none here."""
        cdef Recent *places = &self.recent[2 * ((<size_t>t >> 5) % RECENT)]
        cdef PyObject *found
        if places[0].tensor == t:
            return <Node>places[0].node
        if places[1].tensor == t:
            return <Node>places[1].node
        found = PyDict_GetItemWithError(self.leaves, <size_t>t)
        if found == NULL:
            return None
        places[1] = places[0]
        places[0].tensor, places[0].node = t, found
        return <Node>found

    cdef int forget_recent(self, PyObject *t) except -1:
        cdef Recent *places = &self.recent[2 * ((<size_t>t >> 5) % RECENT)]
        for i in range(2):
            if places[i].tensor == t:
                places[i].tensor = NULL
        return 0

    cdef int add_leaf(self, PyObject *t, Node node) except -1:
        """Let `node` be the one of the leaf at this address."""
        self.forget_recent(t)
        self.leaves[<size_t>t] = node
        return 0

    cdef int drop_leaf(self, PyObject *t, Node node) except -1:
        """Let the leaf at this address have no node, where it has this one, or any for None."""
        cdef Node known = self.leaf_of(t)
        if known is not None and (node is None or known is node):
            self.forget_recent(t)
            del self.leaves[<size_t>t]
        return 0

    cdef Node leaf(self, object t):
        """The node of the leaf `t`: its own, or `written` nodes above it once its memory changed.

        A write outside the record (under no_grad) makes a new value, to which the gradient of
        the leaf still belongs; so it gets a node of its own, with the identity as its rule.
        """
        cdef Node node, now, entry = self.leaf_of(<PyObject *>t)
        cdef bint mark, history
        cdef uint32_t version
        if entry is None and type(t) is PlainTensor and not ao_plain(t):
            inner = private.unwrap_if_dead(t)
            if inner is not t:           # kept from inside a transform that has ended
                from autograd_opt.graph.references import kept_inside
                return <Node>kept_inside(t, inner)
        if type(t) is CustomTensor:
            mark = bool(getattr(t, MARK, False))
        else:
            mark = ao_needs_grad(t)
            if mark and entry is None and not self.late and not self.exposed:
                node = self.parameter(t)
                if node is not None:
                    self.add_leaf(<PyObject *>t, node)
                    self.take(node, t)
                    return node
        if entry is not None and mark != (entry.flags & REQUIRES_GRAD != 0):
            entry = None                 # what was recorded so far keeps the flag of its time
        history = mark and type(t) is not CustomTensor and not ao_is_leaf(t)
        if history and self.late and ao_is_view(t):
            from autograd_opt.graph.view_history import own_flag
            history = own_flag(t)
        if history and self.stands:
            from autograd_opt.graph.references import kept_inside
            found = kept_inside(t)
            if found is not None:
                return <Node>found
        if not history and (self.late or mark and entry is None and type(t) is not CustomTensor) and ao_is_view(t) \
                and not plain_below(t):
            from autograd_opt.graph.view_history import late, own_flag
            node = late(t, mark and (type(t) is CustomTensor or own_flag(t)))
            if node is not None:
                return node
        if entry is not None:
            node = entry
        else:
            if mark and not history and type(t) is not CustomTensor and not ao_is_leaf(t):
                from autograd_opt.graph.view_history import refuse_foreign
                refuse_foreign(t)
                mark = False                 # for this use
            if type(t) is not PlainTensor and type(t) is not CustomTensor:
                require_ordinary(t)
            node = new_node(LEAF_OP)
            node.flags = LEAF
            self.describe(node, t)
            if self.optimize and (borrowed(t) or self.exposed and self.shares_exposed(t)):
                node.flags |= EXPOSED | NO_MERGE
            self.append(node)
            self.add_leaf(<PyObject *>t, node)
            if history:
                if self.histories is None:
                    self.histories = []
                self.histories.append(node)
            if type(t) is CustomTensor:
                ao_hold(t, NODE, node)
        if entry is None:
            if mark:
                node.flags |= REQUIRES_GRAD
                self.take(node, t)
                if not self.heard and listens(t):
                    self.heard = True
            else:
                node.value = PyWeakref_NewRef(t, forgetter(self, <PyObject *>t, node))
        elif node.flags & REQUIRES_GRAD and is_weak(node.value):
            self.take(node, t)
        node.flags |= TOUCHED
        if entry is None or not (self.optimize or node.flags & WROTE):
            return node if node.view is None else <Node>node.view
        if self.exposed and not node.flags & EXPOSED and self.shares_exposed(t):
            node.mark(EXPOSED | NO_MERGE)
        now = node if node.view is None else <Node>node.view
        version = version_of(t)
        if version != now.version or node.flags & (EXPOSED | WROTE):
            node.flags &= ~<uint32_t>WROTE
            node.view = self.above(node, t)
            if now is not node:
                self.decrement(now)          # its leaf holds the newer one
            return <Node>node.view
        if now is not node:
            now.flags = (now.flags & ~<uint32_t>REQUIRES_GRAD) | (node.flags & REQUIRES_GRAD)
        return now

    cdef Node parameter(self, object t):
        """The node of a plain leaf that requires grad, met for the first time; None where there is more to ask."""
        cdef Node node
        cdef int64_t version
        if type(t) is not Parameter and type(t) is not PlainTensor or not ao_is_leaf(t) \
                or ao_is_view(t) or not ao_strided(t):
            return None
        version = ao_version(t)
        if version < 0:
            version = ao_get_int(get_version, t)
        if version < 0:                  # an inference tensor
            PyErr_Clear()
            return None
        node = new_node(LEAF_OP)
        node.device = CPU if ao_on_cpu(t) else same_device(ao_get(get_device, t))
        node.flags = LEAF | REQUIRES_GRAD | TOUCHED
        try:
            node.shape = ao_shape(t)
            if self.optimize and (node.device is CPU or ao_get(get_meta, t) is not True) \
                    and not resizable(t):
                node.flags |= EXPOSED | NO_MERGE
        except RuntimeError:             # a nested tensor has no shape, a sparse one no storage
            return None
        node.dtype = ao_dtype(t)
        node.vn = fresh_vn()
        node.version = <uint32_t>version
        self.append(node)
        if not self.heard and listens(t):
            self.heard = True
        return node

    cdef int take(self, Node node, object t) except -1:
        """Hold a leaf that is read, but not where no gradient is recorded: torch then has no history that holds it."""
        if ao_grad_on(grad_enabled):
            node.value = t
        elif node.value is None:
            node.value = t
            self.let_go(node)
        return 0

    cpdef bint shares_exposed(self, object t) except -1:
        """Does `t` lie in memory that is visible outside torch?"""
        cdef size_t memory
        if not self.exposed:
            return False
        memory = <size_t>ao_memory(t)
        if memory != 0:
            return memory in self.exposed
        return t.layout is STRIDED_LAYOUT and private.storage_id(t.untyped_storage()) in self.exposed

    def escape(self, t):
        """The memory of `t` can change unseen from now on."""
        self.changes += 1
        if t.layout is STRIDED_LAYOUT:
            storage = t.untyped_storage()
            self.exposed[private.storage_id(storage)] = storage

    cdef Node above(self, Node below, object t):
        """A `written` node for the present memory of the leaf `t`."""
        cdef Node node = new_node(WRITTEN_OP)
        node.flags = below.flags & (REQUIRES_GRAD | EXPOSED)
        node.in0 = below
        below.live += 1
        node.live = 1                    # held by its leaf
        self.describe(node, t)
        if self.sources:
            self.locate_write(node, t)
        self.append(node)
        return node

    cdef int note_write(self, object t) except -1:
        """Remember which line of the user's has written the memory of `t` without a record."""
        cdef size_t address = <size_t>ao_memory(t)
        cdef PyObject *known = PyDict_GetItemWithError(self.writes, address) if address else NULL
        cdef Memory memory
        if known == NULL:
            try:
                memory = Memory(t)           # held, it keeps the address from being given away
            except NotImplementedError:      # a slice inside vmap, whose memory has no name
                return 0
            if len(self.writes) >= self.writes_due:
                self.forget_writes()
            self.writes[memory.address] = memory
        else:
            memory = <Memory>known
        memory.code = user_code(&memory.lasti)
        return 0

    cdef int forget_writes(self) except -1:
        """Forget the writes of memory that is gone: a few bytes kept for each would come to lie
        between what is freed, and keep the memory of the process growing."""
        for address in list(self.writes):
            if expired(address):
                del self.writes[address]
        self.writes_due = 2 * len(self.writes) + 8
        return 0

    cpdef int locate_write(self, Node node, object t) except -1:
        """Give a `written` node the line of the write; none where the write was not seen."""
        cdef size_t address = <size_t>ao_memory(t)
        cdef PyObject *known
        if not address and t.layout is STRIDED_LAYOUT:
            address = private.storage_id(t.untyped_storage())
        known = PyDict_GetItemWithError(self.writes, address) if address else NULL
        node.code = None
        if known != NULL and (<Memory>known).code != NULL:
            node.code, node.lasti = <object>(<Memory>known).code, (<Memory>known).lasti
        return 0

    cdef int describe(self, Node node, object t) except -1:
        """Metadata and a value number of its own, from the tensor itself."""
        try:
            node.shape = ao_shape(t)
        except RuntimeError:             # a nested tensor has none
            from autograd_opt.graph.refusals import unsupported_operand
            raise unsupported_operand(t)
        node.dtype = ao_dtype(t)
        node.device = CPU if ao_on_cpu(t) else same_device(ao_get(get_device, t))
        node.vn = fresh_vn()
        node.version = version_of(t)
        if not ao_strided(t):
            node.flags |= SPARSE
        return 0

    def leaf_items(self):
        """(node, tensor) of every leaf whose tensor is alive."""
        return [(node, node.tensor) for node in list(self.leaves.values()) if node.tensor is not None]

    def rewritten(self, Node node, t):
        from autograd_opt.graph.view_history import rewritten
        return rewritten(node, t)

    def adopt(self, t, Node node):
        """The node of a tensor that another tape has recorded: a leaf of a mere value; where a gradient would go on in
        that graph, one that no run may come to."""
        cdef Node made
        if not node.flags & REQUIRES_GRAD:
            if node.view is not None and not self.late:
                from autograd_opt.graph.references import base_requires_grad
                self.late = base_requires_grad(t)        # which it may have come to since
            return self.leaf(t)
        if node.op.name == "view_apart":         # whatever its base is here, no gradient goes through it
            from autograd_opt.graph.view_history import apart
            found = apart(t, node.attrs["unrecorded"])
            return self.leaf(t) if found is None else found
        found = self.elsewhere(t)
        if found is not None and (<Node>found).version == version_of(t):
            made = <Node>found
        else:
            from autograd_opt.graph.released_history import guard
            made = new_node(ELSEWHERE_OP)
            self.describe(made, t)
            made.flags = REQUIRES_GRAD
            if self.optimize and (borrowed(t) or self.exposed and self.shares_exposed(t)):
                made.flags |= EXPOSED | NO_MERGE
            made.saved_more = ([], [], node, None)
            if self.sources:
                current_source(made)
            guard(self, made)
            self.append(made)
            self.abroad[id(t)] = (weakref.ref(t), made)
        made.flags |= TOUCHED
        if made.flags & EXPOSED:
            made.vn = fresh_vn()
        return made

    def elsewhere(self, t):
        """The node that stands here for the tensor `t` of another graph; None where nothing has read it."""
        cdef Node node
        found = self.abroad.get(id(t))
        if found is None or found[0]() is not t:
            return None
        node = <Node>found[1]
        return None if node.index < 0 or node.flags & DEAD else node

    def refresh_view(self, Node node, t):
        from autograd_opt.graph.view_history import refresh
        return refresh(self, node, t)

    # Lifetimes -----------------------------------------------------------------------
    cdef void release(self, Node node) noexcept:
        """Move everything the node saved to the trash."""
        if node.x0 is not None and not node.flags & SCALAR0:
            self.throw(node.x0)
            node.x0 = None
        if node.x1 is not None and not node.flags & SCALAR1:
            self.throw(node.x1)
            node.x1 = None
        if node.saved_more is not None and node.op is not ELSEWHERE_OP:
            self.throw(node.saved_more)
            node.saved_more = None
        if node.value is not None and node.flags & NEEDS_ANS and not node.flags & KEPT:
            self.throw(node.value)
            node.value = None
            node.spare = None
        if node.flags & COUNTED and node.tensor == NULL:
            self.retention.uncount(node)

    cdef void decrement(self, Node node) noexcept:
        node.live -= 1
        if node.live == 0:
            if not node.flags & LEAF:
                self.throw(node)
                self.drain()
            elif node.flags & REQUIRES_GRAD and not is_weak(node.value):
                self.let_go(node)

    cpdef int let_go_unread(self, nodes) except -1:
        """Hold those of the nodes that are leaves which no record reads as a finished run of torch's does: not at all."""
        cdef Node node
        for node in nodes:
            if node is not None and node.live == 0 and node.flags & LEAF and node.flags & REQUIRES_GRAD \
                    and not is_weak(node.value):
                self.let_go(node)
        return 0

    cdef void let_go(self, Node node) noexcept:
        """A leaf that no living record reads is its user's alone: its next use takes hold of it again."""
        cdef object t = node.value
        if t is None or self.leaf_of(<PyObject *>t) is not node:
            return
        if node.x1 is None:
            node.x1 = PyWeakref_NewRef(t, forgetter(self, <PyObject *>t, node))
        node.value = node.x1
        if Py_REFCNT(t) == 1:            # nobody else has it: its end may run code of the user's
            self.throw(t)
            t = None
            self.drain()

    cdef void spend(self, Node node) noexcept:
        """A freeing backward run has executed `node`: drop what it saved."""
        if node.flags & (FREED | LEAF):
            return
        node.flags |= FREED
        self.changes += 1                # a leader that is spent can lead no more
        if node.op.functions and node.saved_more is not None:
            ctx = node.saved_more[2][1]  # it stays, with the user's attributes; so does the rule, which may read no more
            self.throw(ctx._saved)
            ctx._saved = None
        elif not (node.op.flags & VARIADIC and node.saved_more is not None and nothing_saved(node.saved_more[2])):
            self.release(node)

    cdef void spend_twin(self, Node node, int64_t task, Leads needed) noexcept:
        """A freeing run has gone through the leader of `node` in its place: spend it, and the
        merged nodes below it, as if the run had passed through them.
        """
        cdef Node twin
        stack = [node]
        while stack:
            twin = <Node>stack.pop()
            if twin.flags & FREED:
                continue
            self.spend(twin)
            twin.task = task             # spent by this run, which may come here again
            if twin.more is not None:
                for other in twin.more:
                    if other is not None:
                        spend_below(<Node>other, stack, needed)
            else:
                if twin.in0 is not None:
                    spend_below(twin.in0, stack, needed)
                if twin.in1 is not None:
                    spend_below(twin.in1, stack, needed)
        self.drain()

    cdef void unlink(self, Node node) noexcept:
        """The node no longer keeps its operands alive."""
        if node.more is not None:
            for other in node.more:
                if other is not None:
                    self.decrement(<Node>other)
        else:
            if node.in0 is not None:
                self.decrement(node.in0)
            if node.in1 is not None:
                self.decrement(node.in1)
        if node.leader is not None:
            self.decrement(node.leader)

    cdef void throw(self, object what) noexcept:
        """Let go of `what` when the trash is next drained."""
        cdef size_t size = self.room * sizeof(PyObject *)
        if self.thrown == self.room:
            try:
                self.trash = <PyObject **>(grown(self.trash, size, 2 * size) if size else take(32 * sizeof(PyObject *)))
            except MemoryError:
                return                       # it goes at once
            self.room = 2 * self.room or 32
        Py_INCREF(what)
        self.trash[self.thrown] = <PyObject *>what
        self.thrown += 1

    cdef void drain(self) noexcept:
        """Free what is in the trash; a node there is dead.  Never recursive."""
        cdef Node node
        cdef object item
        if self.sweeping:
            return
        self.sweeping = True
        while self.thrown:
            self.thrown -= 1
            item = <object>self.trash[self.thrown]
            Py_DECREF(item)
            if type(item) is Node or not ordinary(item) and isinstance(item, Node):      # by its kind, if it was shown
                node = <Node>item
                if node.live == 0 and not node.flags & DEAD:
                    node.flags |= DEAD
                    if node.view is not None:
                        self.throw(node.view)
                        node.view = None
                    if node.hooks is not None:
                        self.throw(node.hooks)
                        node.hooks = None
                    if not node.flags & FREED or node.saved_more is not None:
                        self.release(node)
                    self.unlink(node)
                node = None
            item = None
        self.sweeping = False

    def start_counting(self, Py_ssize_t expected):
        """From now on, know the bytes that the program would have alive without any reuse.

        Views count for nothing, cotangents of runs that are not recorded neither.
        `expected` is the most that such a program is known to have alive at once.
        """
        cdef Py_ssize_t i
        cdef Node node
        self.retention.counting, self.retention.expected = True, expected
        for i in range(self.n):
            node = <Node>self.nodes[i]
            if node.tensor != NULL or node.value is not None and node.flags & NEEDS_ANS and not node.flags & FREED:
                self.retention.count(node)

    cdef int missed(self, Node node) except -1:
        """A known value has to be computed again because it was not kept: allow to keep more.

        So a program without repeats keeps nothing, and its peak of memory is torch's.
        """
        self.recomputed += 1
        self.retention.missed_bytes += nbytes(node.shape, node.dtype)
        if not self.retention.counting and not self.retention.advance:
            self.start_counting(0)
        return 0

    def set_leaders(self, leader):
        """Merge node i into node leader[i]; where they are equal, keep node i apart.

        A leader that is dead or spent can no longer be differentiated: the first member of
        its class that can takes its place.  Returns how many nodes that require grad had no leader before.
        """
        cdef Py_ssize_t i, found = 0
        cdef Node node, target
        cdef const int[::1] view = leader
        cdef dict heirs = {}
        for i in range(min(self.n, view.shape[0])):
            node = <Node>self.nodes[i]
            target = None
            if view[i] != i:
                target = <Node>self.nodes[view[i]]
                if target.flags & (DEAD | FREED):
                    target = heirs.get(view[i])
                    if target is None and not node.flags & (DEAD | FREED):
                        heirs[view[i]] = node
                found += target is not None and node.leader is None and node.flags & (DEAD | REQUIRES_GRAD) == REQUIRES_GRAD
            self.lead(node, target)
        self.changes += 1
        self.planned += self.n
        return found

    cdef int lead(self, Node node, Node target) except -1:
        cdef Node old = node.leader
        if old is target:
            return 0
        if node.flags & DEAD:
            return 0                     # its leader has been let go already
        node.flags &= ~<uint32_t>MERGED
        if target is not None:
            target.live += 1
        node.leader = target
        if old is not None:
            self.decrement(old)
        return 0

    cdef int resolve(self, dict captured) except -1:
        """Decide which nodes hand their cotangent to their leader in the next run."""
        return self.merges.resolve(self.nodes, self.n, self.changes, captured)

    cdef int keep_number(self, Node node, object r) except -1:
        """Give `node`, just recorded, the number of its operand if `r` is that, bit for bit and in its strides.

        What is found by this number later looks to the user as if it had been computed from `r`.
        """
        cdef Node at = operand_of(node)
        if at is None or (node.flags | at.flags) & (NO_MERGE | EXPOSED) or at.dtype is not node.dtype \
                or at.device is not node.device or (at.flags ^ node.flags) & REQUIRES_GRAD or at.shape != node.shape:
            return 0
        if node.op.keeps is not None and node.op.keeps is not True and not node.op.keeps(node):
            return 0
        with private.DisableTorchFunction():
            value = at.value if at.tensor == NULL else <object>at.tensor
            if isinstance(value, weakref.ref):
                value = value()
            if value is None or version_of(value) != at.version or r.stride() != value.stride():
                return 0
        node.flags |= SAME
        node.vn = at.vn
        self.lead(node, at.leader if at.leader is not None and at.leader.vn == at.vn else at)
        return 0

    def compact_if_due(self):
        """Called when the array grows beyond `floor`."""
        if self.running or self.fixed:   # somebody holds record numbers
            if not compacts_always:
                self.floor = self.n + (self.n >> 1) + 64
        elif self.consumed or self.n > (1 << 20) or compacts_always:
            self.compact()
        else:
            self.floor = min(2 * self.n + 64, (1 << 20) + 1) if self.n < (1 << 20) else 2 * self.n

    cdef int compact(self) except -1:
        """Forget dead and spent records; what something needs or somebody holds keeps its order, with all below it.

        A call may be open that has looked up its operands and runs code of the user's.  No record
        counts them yet, but they have references that the graph does not account for, as have
        nodes behind a `GradientEdge`, a `ctx` or a frame of a traceback.
        """
        cdef Py_ssize_t i, k = 0, dropped = 0, n
        cdef Py_ssize_t *known
        cdef Node node
        cdef bint by_leaf
        cdef list trash
        self.retention.forget_values()
        self.table.clear()
        n = self.n
        known = <Py_ssize_t *>PyMem_Malloc((n + 1) * sizeof(Py_ssize_t))
        if known == NULL:
            raise MemoryError()
        # nothing is made or released before the numbers are right again: finalizers run code that may record
        self.count_references(known)
        for i in range(n - 1, -1, -1):
            node = <Node>self.nodes[i]
            if known[i] >= 0:
                by_leaf = node.op is WRITTEN_OP and node.in0 is not None and node.in0.view is node
                if references(self.nodes[i]) - 2 > known[i] or node.live > by_leaf \
                        or node.flags & TOUCHED and not compacts_always:
                    known[i] = KEPT_RECORD
                elif by_leaf:                    # its leaf makes another one when it is used again
                    node.in0.view = None
                    node.in0.live -= 1
                    node.in0.flags |= WROTE
            if known[i] == KEPT_RECORD:
                self.keep_below(node, known)
        for i in range(n):
            node = <Node>self.nodes[i]
            node.holder = NULL                   # no key finds it any more
            if known[i] == KEPT_RECORD:
                node.flags &= ~<uint32_t>TOUCHED
                node.index = k
                self.nodes[k] = <PyObject *>node
                k += 1
            else:
                if node.flags & LEAF:
                    self.forget_leaf(node)
                node.index = -1
                (<PyObject **>known)[dropped] = <PyObject *>node
                dropped += 1
        self.dropped += dropped
        self.n = k
        self.floor = 0 if compacts_always else 2 * k + 64
        self.consumed = False
        self.merges.resolved = 0
        self.epoch += 1
        self.merges.twins = self.merges.merging = 0
        for i in range(k):
            node = <Node>self.nodes[i]
            node.spare = None
            if node.leader is not None:
                self.merges.twins += 1
                if node.flags & REQUIRES_GRAD:
                    self.merges.merging += 1
        trash = []
        for i in range(dropped):
            node = <Node>(<PyObject **>known)[i]
            trash.append(node)
            Py_DECREF(node)
        PyMem_Free(known)
        for node in trash:
            node.in0 = node.in1 = None
            node.more = None
            node.leader = None
            node.value = node.spare = None
        return 0

    cdef int count_references(self, Py_ssize_t *known) except -1:
        """For each record, how many references to its node the graph itself holds, besides the array."""
        cdef Py_ssize_t i
        cdef Node node
        cdef PyObject *more
        for i in range(self.n):
            known[i] = 0
        for i in range(self.n):
            node = <Node>self.nodes[i]
            self.count_reference(node.in0, known)
            self.count_reference(node.in1, known)
            self.count_reference(node.leader, known)
            more = <PyObject *>node.more
            if node.more is not None and references(more) == 1:
                for other in node.more:
                    self.count_reference(<Node>other, known)
            if node.flags & LEAF:
                if type(node.view) is Node:
                    self.count_reference(<Node>node.view, known)
                known[i] += own_references(node)
        for other in self.leaves.values():
            self.count_reference(<Node>other, known)
        return 0

    cdef inline int count_reference(self, Node node, Py_ssize_t *known) except -1:
        if node is not None and 0 <= node.index < self.n and self.nodes[node.index] == <PyObject *>node:
            known[node.index] += 1
        return 0

    cdef int keep_below(self, Node node, Py_ssize_t *known) except -1:
        """The operands of a record that stays, and its leader, stay, too."""
        self.keep_record(node.in0, known)
        self.keep_record(node.in1, known)
        self.keep_record(node.leader, known)
        if node.more is not None:
            for other in node.more:
                self.keep_record(<Node>other, known)
        return 0

    cdef inline int keep_record(self, Node node, Py_ssize_t *known) except -1:
        if node is not None and 0 <= node.index < self.n and self.nodes[node.index] == <PyObject *>node:
            known[node.index] = KEPT_RECORD
        return 0

    cdef int forget_leaf(self, Node node) except -1:
        """The next use of the tensor behind this node registers it anew."""
        cdef PyObject *t = leaf_tensor(node)
        if t == NULL:
            return 0
        self.drop_leaf(t, node)
        if type(<object>t) is CustomTensor and getattr(<object>t, NODE, None) is node:
            ao_hold(<object>t, NODE, None)
        return 0

    cpdef int clear(self) except -1:
        """Release everything but the leaves' own tensors."""
        cdef Py_ssize_t i, n = self.n
        cdef Node node
        cdef PyObject **old = self.nodes
        cdef size_t room = self.capacity * sizeof(PyObject *)
        if n == 0:
            old = NULL                       # the array stays
        else:
            self.nodes, self.capacity, self.n = <PyObject **>take(FIRST * sizeof(PyObject *)), FIRST, 0
        self.sweeping = True                 # nothing goes before all is cleared: finalizers run code that may record
        for i in range(n):
            node = <Node>old[i]
            if node.tensor != NULL and node.op.named:
                shown(node)                  # while the operands that its name depends on are there
            node.index = -1
            if node.x0 is not None and not node.flags & SCALAR0:
                self.throw(node.x0)
                node.x0 = None
            if node.x1 is not None and not node.flags & SCALAR1:
                self.throw(node.x1)
                node.x1 = None
            if node.value is not None:
                self.throw(node.value)
                node.value = None
            if node.spare is not None:
                self.throw(node.spare)
                node.spare = None
            if node.saved_more is not None or node.view is not None or node.hooks is not None:
                self.throw((node.saved_more, node.view, node.hooks))
                node.saved_more = node.hooks = None
                if type(node.view) is Node:      # else what says that it is one, which its tensor goes on being
                    node.view = None
            node.in0 = node.in1 = node.leader = None
            node.more = None
            node.flags = (node.flags | FREED) & ~<uint32_t>COUNTED
            node.holder = NULL
            Py_XDECREF(node.cotangent)
            node.cotangent = NULL
        self.exposed.clear()
        self.seeds.clear()
        self.writes.clear()
        self.abroad.clear()
        self.casts = self.cast_seal = None
        self.retention.clear()
        memset(self.recent, 0, 2 * RECENT * sizeof(Recent))
        self.leaves.clear()
        self.table.clear()
        self.consumed = False
        self.floor = 0
        while self.thrown:
            self.thrown -= 1
            Py_DECREF(<object>self.trash[self.thrown])
        self.sweeping = False
        for i in range(n):
            Py_DECREF(<object>old[i])
        give(old, room)
