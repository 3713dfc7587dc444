"""Enter and leave a graph: one compiled step each, since every training step pays for both."""

import sys
from collections import deque
from weakref import ref as weakref

import torch
import torch.autograd.forward_ad as forward_ad

from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_frame, ao_frame_code, ao_frame_done, ao_frame_lasti, ao_frame_t, ao_mode_count, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.structure import forget_roots
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport exclude_autograd, include_autograd, recording, set_paused
from autograd_opt.graph.thread_state import saving_hooks, set_active_tape
from autograd_opt.record.arguments cimport MODE, foreign, lent, mode_innermost
from autograd_opt.record.entries import take_methods, take_operators
from autograd_opt.record.function_entries import take
from autograd_opt.record import own_bodies
from autograd_opt.record.cross_entropy cimport CrossEntropy
from autograd_opt.record.module_calls cimport calls_lost, look_for_tools
from autograd_opt.record.module_calls import take_calls
from autograd_opt.record.own_bodies cimport answer_questions, learn_body
from autograd_opt.record.reads import take_reads
from autograd_opt.record.resting cimport forget_graphs, learn_graph, rests
from autograd_opt.record.routes cimport Fill, Recorded, Route
from autograd_opt.record.sites cimport forget_sites
from autograd_opt.record.torch_function cimport handler_of, handlers

ao_use_reads(reads_address())
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef object get_frame_callback = private.get_frame_callback
cdef object stack_size = private.len_torch_function_stack
cdef object stack_at = private.get_function_stack_at
cdef object DeviceContext = private.DeviceContext
cdef object original = torch.overrides.handle_torch_function
cdef object BACKWARD = torch.autograd.backward


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """`torch.overrides.handle_torch_function`, by a shorter way where the mode of this library is the innermost.

    torch's own asks every argument for its class and swaps the stack of modes through two
    context managers, which costs more than recording the call.
    """
    cdef PyObject *tp = recording()
    cdef object handler, r
    if tp == NULL or (<Tape>tp).guarded or not mode_innermost() or foreign(relevant_args):
        return original(public_api, relevant_args, *args, **kwargs)
    handler = handlers.get(public_api)
    if handler is None:
        handler = handler_of(public_api)
    learn_body(public_api, handler)
    if type(handler) is Recorded or type(handler) is Fill:
        return (<Route>handler).run(public_api, args, kwargs)
    if type(handler) is CrossEntropy:
        r = (<CrossEntropy>handler).record(args, kwargs)
        if r is not None:
            return r
    if public_api is BACKWARD and handler is not None:     # the run itself sees to it that no mode is asked
        lent(args, kwargs)
        return handler(public_api, args, kwargs)
    pop()
    try:
        return MODE(public_api, None, args, kwargs)
    finally:
        push(MODE)


cdef list lifted_modes():
    """Take the user's modes that were entered before the graph from the stack: they are asked first, as without it."""
    cdef Py_ssize_t i, n = stack_size()
    for i in range(n):
        if not isinstance(stack_at(i), DeviceContext):
            return [pop() for _ in range(n - i)][::-1]
    return []


cdef int take_mode() except -1:
    """Take the mode of this library from the stack, whatever lies above it."""
    cdef list above = []
    mode = pop()
    while mode is not MODE:
        above.append(mode)
        mode = pop()
    for mode in reversed(above):
        push(mode)
    return 0


cdef Py_ssize_t users = 0                # graphs that are open, in all threads
cdef object shortcut_functions = None
cdef bint functions_taken = False
cdef dict overrides = torch.overrides.__dict__
cdef tuple REPLACED = (                  # a name in `torch.overrides`, torch's function, ours
    ("handle_torch_function", original, handle_torch_function),
    ("has_torch_function", torch.overrides.has_torch_function, own_bodies.layer_has_torch_function),
)
own_bodies.install_questions(handle_torch_function)


cdef bint entries_on = True, reads_on = True, calls_on = True, questions_on = True


def leave_out(names):
    """Do without these parts, which `abi/switches.py` lists; called before anything is installed."""
    global entries_on, reads_on, calls_on, questions_on
    entries_on, reads_on = "vectorcall" not in names, "getset" not in names
    calls_on, questions_on = "module_call" not in names, "torch_functions" not in names


cdef int begin_shortcuts() except -1:
    """A graph has opened: the first one puts the shorter way into the modules."""
    global users, functions_taken
    if not functions_taken:
        functions_taken = True
        if reads_on:
            take_reads()
        if entries_on:
            take(shortcut_functions())
            take_methods()
            take_operators()
        if calls_on:
            take_calls()
        for function in private.INCOMPLETE:
            own_bodies.take_apart(function, handler_of(function))
    elif calls_on and calls_lost():
        take_calls()
    look_for_tools()
    users += 1
    if users == 1 and questions_on:
        exchange(1, 2)
        answer_questions(True)
    return 0


cdef int end_shortcuts() except -1:
    """A graph has closed: the last one puts torch's own functions back."""
    global users
    users -= 1
    if users == 0 and questions_on:
        exchange(2, 1)
        answer_questions(False)
    return 0


cdef int exchange(int old, int new) except -1:
    """Put one of the functions in the place of the other, where `torch.overrides` still has that."""
    cdef tuple known
    for known in REPLACED:
        if PyDict_GetItem(overrides, known[0]) == <PyObject *>known[old]:
            PyDict_SetItem(overrides, known[0], known[new])
    return 0


cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "Python.h":
    PyObject *PyThreadState_GetDict()

cdef extern from *:
    """
    static AO_THREAD PyObject *ao_innermost = NULL;    /* the graph that records in this thread; `open_graphs` holds it */
    """
    PyObject *ao_innermost

cdef object transforms_active = private.transforms_active
cdef dict forward_names = forward_ad.__dict__
cdef str FORWARD_LEVEL = private.FORWARD_LEVEL
cdef object refuse_opening = None        # transforms.refuse_opening
cdef object references_of = None         # references.ReferenceManager
cdef object pipeline_of = None           # graph.pipeline_of
cdef object checked_options = None       # options.checked
cdef object plain_pipeline = None        # the pipeline without passes of the user's, not exact
cdef object is_finalizing = sys.is_finalizing
cdef object mode_count = private.len_torch_function_stack
cdef object NO_VERDICTS = deque(maxlen=0)
cdef int64_t graphs = 0                  # made in this process
cdef dict open_graphs = {}               # thread -> the graph that records there
cdef dict missed = {}
# Place where graphs are opened -> what the last one there computed again for want of keeping it, and
# the most that its program would have had alive at once; both in bytes.

cdef Py_ssize_t ALLOWANCE = 16 << 20     # bytes held only for reuse, at most, unless the user says otherwise


cdef class ThreadEnd:
    """Leave the graphs that a thread leaves open, while Python still runs in it.

    A thread's own dictionary holds it.  Without it torch would let go of the mode after the thread's Python has ended,
    which ends the process.
    """
    cdef unsigned long thread

    def __del__(self):
        if self.thread != PyThread_get_thread_ident() or is_finalizing():
            return                           # the interpreter ends, and no graph is used again
        while ao_innermost != NULL:
            (<Context>ao_innermost).__exit__()
        while mode_count():
            pop()                            # the user's, among which the graphs' own may have been


cdef int watch_thread_end() except -1:
    """Let a `ThreadEnd` run when this thread ends."""
    cdef ThreadEnd end
    cdef dict own = <dict>PyThreadState_GetDict()
    if ThreadEnd not in own:
        end = own[ThreadEnd] = ThreadEnd.__new__(ThreadEnd)
        end.thread = PyThread_get_thread_ident()
    return 0


cdef class Context:
    """What `AutogradGraph` does when it is entered and left."""
    cdef public Tape tape
    cdef public object thread, pipeline, allowance, name, planned, verdicts, _dag
    cdef public bint optimize, exact, default_passes, verify_each, anomaly, sources, keep
    cdef readonly int64_t number
    cdef public object place             # what graphs opened at one place have learned is known by it; by default the line
    cdef public bint numbered            # are values numbered, whatever was learned at that place?
    cdef readonly Context outer
    cdef int paused                      # was recording paused in the thread that this graph was opened in?
    cdef Py_ssize_t asked                # how many values had been asked for again when it was left last
    cdef int excluded                    # which of autograd's dispatch keys it has excluded in this thread
    cdef object manager, results

    def configure(self, optimize, passes, verify, anomaly, name, allowance, sources, bint keep):
        """Take what the user has asked for; the parameters are those of `AutogradGraph`."""
        global graphs, plain_pipeline
        if passes is None and (optimize is True or optimize is False) and plain_pipeline is not None:
            self.pipeline = plain_pipeline
        else:
            self.exact, self.pipeline = pipeline_of(optimize, passes)
            if passes is None and not self.exact:
                plain_pipeline = self.pipeline
        if verify is not False or allowance is not None or name is not None or anomaly is not False \
                or sources is not True:
            verify, anomaly, name, allowance, sources = checked_options((verify, anomaly, name, allowance, sources))
        self.default_passes = passes is None
        self.optimize = bool(optimize) or passes is not None or verify
        self.verify_each, self.anomaly, self.name = verify, anomaly, name
        self.allowance, self.sources, self.keep = allowance, sources, keep
        self.planned = (0, 0)                # runs whose plan was known, runs that had one
        self.verdicts = deque(maxlen=8) if verify else NO_VERDICTS
        graphs += 1
        self.number = graphs

    @property
    def references(self):
        """What this graph holds, and for how long."""
        if self.manager is None and self.tape is not None:
            self.manager = references_of(self.tape)
        return self.manager

    @property
    def runs(self):
        """What the passes did before the latest runs."""
        if self.results is None:
            self.results = deque(maxlen=8)
        return self.results

    def __enter__(self):
        cdef Tape tape
        cdef Context outer
        cdef ao_frame_t frame
        cdef object known, code
        cdef bint numbers = self.optimize
        if self.thread is not None:
            self.refuse_second_entry()
        if forward_names[FORWARD_LEVEL] >= 0 or transforms_active() or get_frame_callback():
            refuse_opening(self)
        allowance = self.allowance
        if self.optimize and (self.place is None or type(self.place) is tuple):
            frame = ao_frame()
            code = <object>ao_frame_code(frame)
            self.place = code.co_filename, code.co_firstlineno, ao_frame_lasti(frame)
            ao_frame_done(frame)
            numbers = not self.may_rest() or not rests(self.place)
        tape = Tape(numbers, self.sources, ALLOWANCE if allowance is None else <Py_ssize_t>allowance)
        tape.retention.advance = allowance is not None
        if numbers:
            if missed and allowance is None:
                known = missed.get(self.place)
                if known is not None:
                    tape.retention.missed_bytes = known[0]
                    tape.start_counting(known[1])
                    tape.retention.steady = known[2]
        self.asked = 0
        tape.graph = weakref(self)
        tape.plain = saving_hooks() == 0
        self.manager = None
        self.tape = tape
        self.begin(ao_innermost == NULL)
        return self

    cdef bint may_rest(self) except -1:
        """May the graph be recorded without numbers, where they have not paid for long?"""
        return type(self.place) is tuple and self.default_passes and not self.exact and not self.verify_each \
            and self.allowance is None and not self.numbered

    cdef int begin(self, bint guarded) except -1:
        """Let the tape record in this thread; `guarded`: torch's own autograd is to be passed over from here on."""
        cdef Context outer = <Context>ao_innermost if ao_innermost != NULL else None
        if guarded:
            self.excluded = exclude_autograd()
        if outer is None:
            above = lifted_modes()
            push(MODE)
            watch_thread_end()
            (<Tape>self.tape).modes = ao_mode_count()
            for mode in above:
                push(mode)
            begin_shortcuts()
        else:
            (<Tape>self.tape).modes = (<Tape>outer.tape).modes
        self.outer = outer
        self.thread = PyThread_get_thread_ident()
        set_innermost_graph(self)
        set_active_tape(self.tape)
        return 0

    def __exit__(self, *exc):
        if (self.keep or self.thread is None) and self._left(exc):
            return
        self.end()
        if self.optimize:
            self.remember()
        self._release()

    def _left(self, exc):
        """Was it left another way?  A graph that keeps something says so."""
        return False

    def suspend(self):
        """Leave the graph, and keep its nodes for `resume`."""
        set_paused(self.paused)
        self.end()
        if self.optimize:
            self.remember()
            self.tape.retention.forget_values()

    def resume(self):
        """Enter the graph that `suspend` has left, in whichever thread, also within a run of another graph."""
        (<Tape>self.tape).plain = saving_hooks() == 0
        self.begin(True)
        self.paused = set_paused(0)

    cdef int end(self) except -1:
        """Let the tape record in this thread no more."""
        cdef Context top, above
        ident = PyThread_get_thread_ident()
        if self.thread is None or ao_innermost == NULL:
            self.refuse_leaving()
        if self.thread != ident:
            self.require_thread("left")
        if self.tape.running:
            self.require_idle("left")
        top = <Context>ao_innermost
        if top is self:
            top = self.outer
        else:                                # left before one that was opened inside it
            above = top
            while above.outer is not self:
                above = above.outer
            above.outer = self.outer
            if self.excluded:
                above.excluded, self.excluded = self.excluded, 0
        self.outer = None
        if top is None:
            set_innermost_graph(None)
            set_active_tape(None)
            end_shortcuts()
            take_mode()
        else:
            set_innermost_graph(top)
            set_active_tape(top.tape)
        if self.excluded:
            include_autograd(self.excluded)
            self.excluded = 0
        self.thread = None
        return 0

    cpdef int _release(self) except -1:
        """Let the nodes go, and what was made of them."""
        if self.tape is not None:
            self.tape.clear()
        self._dag = None
        if self.results is not None:
            self.results.clear()
        return 0

    cdef int remember(self) except -1:
        """What the next graph opened here may hold for reuse: nothing, if nothing was found again."""
        cdef Tape tape = self.tape
        if self.asked and self.asked == tape.hits + tape.recomputed:
            return 0                         # left before, as a region's is by each run, and nothing was recorded since
        self.asked = tape.hits + tape.recomputed
        if self.may_rest():
            learn_graph(self.place, tape)
        if not tape.optimize:
            return 0
        if not tape.hits and not tape.recomputed:
            if missed:
                missed.pop(self.place, None)
        elif tape.retention.missed_bytes:
            if len(missed) >= 4096:
                missed.clear()
            missed[self.place] = tape.retention.missed_bytes, tape.retention.most_alive, *self.retention(tape, missed.get(self.place))
        return 0

    cdef tuple retention(self, Tape tape, known):
        """(should the next graph keep what it kept first?, values computed again where the newest were kept).

        Where more is asked for again than can be held, and in the order in which it was made, the oldest
        is always the next: to let it go for a newer one finds nothing.
        """
        cdef bint steady = tape.retention.steady
        cdef object newest = -1 if known is None else known[3]
        if not steady:
            steady = newest < 0 and 2 * tape.recomputed > tape.hits
            newest = tape.recomputed if steady else newest
        elif tape.recomputed >= newest:
            steady = False               # no better: not tried again at this place
        return steady, newest


def forget_places():
    """Forget what was learned about places in programs: where graphs are opened, calls numbered, results differentiated."""
    missed.clear()
    forget_graphs()
    forget_sites()
    forget_roots()


def innermost_graph():
    """The graph that records in this thread."""
    return <object>ao_innermost if ao_innermost != NULL else None


def set_innermost_graph(graph):
    """Let `graph`, opened here or in another thread, be the one that records in this one; None for none.

    What a thread that ended has left open is dropped when its number is given out again.
    """
    global ao_innermost
    ident = PyThread_get_thread_ident()
    ao_innermost = NULL
    if graph is None:
        open_graphs.pop(ident, None)
    else:
        open_graphs[ident] = graph
        ao_innermost = <PyObject *>graph


def install_context(opening, references, functions, pipeline, options):
    """What making and entering a graph asks other modules; `functions` get shorter ways."""
    global refuse_opening, references_of, shortcut_functions, pipeline_of, checked_options
    refuse_opening, references_of, pipeline_of, checked_options = opening, references, pipeline, options
    shortcut_functions = functions
