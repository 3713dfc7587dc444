"""Drop what nodes have saved, behind a run that frees the graph."""

from libc.stdint cimport int64_t

from autograd_opt.graph.node cimport FREED, LEAF, MERGED, REACHED_DIRECTLY, VARIADIC, Leads, Node, leads_on
from autograd_opt.graph.tape cimport Tape


cdef bint nothing_saved(object extra) except -1:
    """Is this what an opaque call keeps that torch has saved nothing for?"""
    return type(extra) is tuple and len(extra) > 0 and getattr(extra[0], "repeats", False) is True


cdef void spend(Tape tape, Node node) noexcept:
    """A freeing backward run has executed `node`: drop what it saved."""
    if node.flags & (FREED | LEAF):
        return
    node.flags |= FREED
    tape.changes += 1                # a leader that is spent can lead no more
    if node.op.functions and node.saved_more is not None:
        ctx = node.saved_more[2][1]  # it stays, with the user's attributes; so does the rule, which may read no more
        tape.throw(ctx._saved)
        ctx._saved = None
    elif not (node.op.flags & VARIADIC and node.saved_more is not None and nothing_saved(node.saved_more[2])):
        tape.release(node)


cdef void spend_twin(Tape tape, Node node, int64_t task, Leads needed) noexcept:
    """A freeing run has gone through the leader of `node` in its place: spend it, and the
    merged nodes below it, as if the run had passed through them.
    """
    cdef Node twin
    stack = [node]
    while stack:
        twin = <Node>stack.pop()
        if twin.flags & FREED:
            continue
        spend(tape, twin)
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
    tape.drain()


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
