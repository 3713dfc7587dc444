# torch's Python functions, which ask for a mode themselves.

cdef object original = torch.overrides.handle_torch_function
cdef object stack_size = private.len_torch_function_stack
cdef object stack_at = private.get_function_stack_at
cdef object MODE = None


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
    if type(handler) is Recorded or type(handler) is Fill:
        return (<Route>handler).run(public_api, args, kwargs)
    if type(handler) is CrossEntropy:
        r = (<CrossEntropy>handler).record(args, kwargs)
        if r is not None:
            return r
    pop()
    try:
        return torch_function(MODE, public_api, None, args, kwargs)
    finally:
        push(MODE)


cdef Py_ssize_t users = 0                # graphs that are open, in all threads
cdef list namespaces = []
cdef object shortcut_modules = ()
cdef object shortcut_functions = None
cdef bint functions_taken = False
cdef str NAME = "handle_torch_function"


cdef object parts_off = ()


def leave_out(names):
    """Do without these parts, which `abi/switches.py` lists; called before anything is installed."""
    global parts_off
    parts_off = names


cdef int begin_shortcuts() except -1:
    """A graph has opened: the first one puts the shorter way into the modules."""
    global users, functions_taken
    cdef dict names
    if not functions_taken:
        functions_taken = True
        if "getset" not in parts_off:
            take_reads()
        if "vectorcall" not in parts_off:
            take(shortcut_functions())
            take_methods()
        if "module_call" not in parts_off:
            take_calls()
    elif "module_call" not in parts_off and calls_lost():
        take_calls()
    look_for_tools()
    users += 1
    if users == 1 and "torch_functions" not in parts_off:
        if not namespaces:
            namespaces[:] = [m.__dict__ for m in shortcut_modules]
        for names in namespaces:
            if names.get(NAME) is original:
                names[NAME] = handle_torch_function
    return 0


cdef int end_shortcuts() except -1:
    """A graph has closed: the last one puts torch's own function back."""
    global users
    cdef dict names
    users -= 1
    if users == 0:
        for names in namespaces:
            if names.get(NAME) is handle_torch_function:
                names[NAME] = original
    return 0
