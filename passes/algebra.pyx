"""Values numbered modulo the rules of algebra; `algebra_py.py` says the same in plain Python.

The rules are flattened once into arrays of C structs. A sweep interns the terms of
nodes in one open-addressing table and all other nodes in another, both compared in
full; a hash that fails hands the graph to the twin. Before the sweep a look at each
node and its operands decides whether any rule can apply at all.
"""

from libc.math cimport fabs, fma, frexp, isfinite
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from itertools import product

import numpy as np

from autograd_opt.passes import flags as _flags
from autograd_opt.passes.algebra_py import STEPS as _STEPS, algebra as twin
from autograd_opt.passes.data import LEAST as _LEAST, MOST as _MOST, MOST_BITS as _MOST_BITS
from autograd_opt.passes.effort import degenerate_hash_forced
from autograd_opt.passes.leaders import first_merges, identity_leaders
from autograd_opt.passes.rules import COMMUTES, SYMBOLS

cdef uint8_t commutative = _flags.COMMUTATIVE
cdef uint8_t never_merges = _flags.NEVER_MERGES
cdef int most_steps = _STEPS
cdef int most_bits = _MOST_BITS
cdef double least_number = _LEAST, most_number = _MOST
cdef uint64_t odd = 0x9E3779B97F4A7C15u

cdef enum DatumKind:
    NOTHING, CONSTANT, VARIABLE, COMPOSE, NEGATIVE, PRODUCT, TOTAL, INVERSE

cdef enum Question:
    TYPED, ALIKE, BEFORE, NESTED, SINGLE, IDENTITY, POWER_OF_TWO, EXACT_PRODUCT, EXACT_SUM

cdef dict DATUM_KINDS = {"": NOTHING, "constant": CONSTANT, "variable": VARIABLE, "compose": COMPOSE,
                         "negative": NEGATIVE, "product": PRODUCT, "total": TOTAL, "inverse": INVERSE}
cdef dict QUESTIONS = {"typed": TYPED, "alike": ALIKE, "before": BEFORE, "nested": NESTED, "single": SINGLE,
                       "identity": IDENTITY, "power_of_two": POWER_OF_TWO, "exact_product": EXACT_PRODUCT,
                       "exact_sum": EXACT_SUM}
cdef frozenset OF_DATA = frozenset(("identity", "power_of_two", "exact_product", "exact_sum"))
cdef enum:
    VARIABLES = 4
    CONDITIONS = 4
    WORDS = 64

cdef uint8_t commutes[WORDS]
memset(commutes, 0, sizeof(commutes))
for _name in COMMUTES:
    commutes[SYMBOLS[_name]] = 1


cdef struct Part:
    # a symbol over operands; an operand >= 0 is a variable, -1 - k is part k
    int32_t symbol, arity, kind
    int32_t[2] data
    int32_t[2] operand
    int64_t bits


cdef struct Flat:
    # one rule with the operands of what commutes in one of their orders
    int32_t number, left, right, conditions
    int32_t[CONDITIONS] question
    int32_t[CONDITIONS] first
    int32_t[CONDITIONS] second


cdef struct Content:
    int64_t datum, type
    int32_t symbol, a, b


cdef struct Found:
    int32_t[VARIABLES] value
    int64_t[VARIABLES] datum
    uint8_t[VARIABLES] bound


cdef class Flattened:
    """Rules as arrays, those of one root symbol in a row."""
    cdef Part *parts
    cdef Flat *rules
    cdef Py_ssize_t n_parts
    cdef int32_t[WORDS + 1] begin

    def __cinit__(self, rules):
        if len(rules) > 64:
            raise ValueError(f"{len(rules)} rules are more than the 64 that one pass can tell apart")
        self.n_parts = 0
        self.parts = <Part *>malloc(4096 * sizeof(Part))
        rows = []
        for number, rule in enumerate(rules):
            rows += [(SYMBOLS[rule.left.symbol], number, left, rule) for left in orders(rule.left)]
        rows.sort(key=lambda row: row[:2])
        self.rules = <Flat *>malloc(max(1, len(rows)) * sizeof(Flat))
        if self.parts == NULL or self.rules == NULL or 6 * len(rows) > 4096:
            raise MemoryError()
        memset(self.begin, 0, sizeof(self.begin))
        for k, (symbol, number, left, rule) in enumerate(rows):
            self.begin[symbol + 1] = k + 1
            self.add(&self.rules[k], number, left, rule)
        for symbol in range(1, WORDS + 1):
            self.begin[symbol] = max(self.begin[symbol], self.begin[symbol - 1])

    def __dealloc__(self):
        free(self.parts)
        free(self.rules)

    cdef int add(self, Flat *flat, int number, left, rule) except -1:
        values, data = {}, {}
        flat.number = number
        flat.left = self.part(left, values, data)
        flat.right = self.part(rule.right, values, data)
        flat.conditions = len(rule.conditions)
        for k, condition in enumerate(rule.conditions):
            names = data if condition.question in OF_DATA else values
            flat.question[k] = QUESTIONS[condition.question]
            flat.first[k] = names[condition.names[0]]
            flat.second[k] = names[condition.names[len(condition.names) - 1]]
        if len(values) > VARIABLES or len(data) > VARIABLES:
            raise ValueError(f"the rule {rule.name!r} has too many variables")
        return 0

    cdef int32_t part(self, term, dict values, dict data) except? -2147483647:
        """The number of a variable, or -1 - k for part k."""
        cdef Part *part
        if term.is_variable:
            return values.setdefault(term.name, len(values))
        index = self.n_parts
        self.n_parts += 1
        operands = [self.part(operand, values, data) for operand in term.operands]
        part = &self.parts[index]
        memset(part, 0, sizeof(Part))
        part.symbol, part.arity = SYMBOLS[term.symbol], len(operands)
        for k, operand in enumerate(operands):
            part.operand[k] = operand
        part.kind, part.bits = DATUM_KINDS[term.datum.kind], term.datum.bits
        for k, name in enumerate(term.datum.names):
            part.data[k] = data.setdefault(name, len(data))
        return -1 - <int32_t>index


def orders(term):
    """The term with the operands of everything that commutes in each order."""
    if term.is_variable:
        return [term]
    found = [tuple(operands) for operands in product(*map(orders, term.operands))]
    if term.symbol in COMMUTES and term.operands[0] != term.operands[1]:
        # as the twin: an order of the whole before the orders of its operands
        found += [operands[::-1] for operands in found]
    return [type(term)(term.symbol, term.datum, operands) for operands in found]


cdef dict _flattened = {}


cdef class Store:
    """Values by number: `Terms` of the twin, in C."""
    cdef Flattened rules
    cdef Content *content
    cdef Py_ssize_t count, capacity
    cdef int32_t *slots
    cdef Py_ssize_t mask, used, probes, most
    cdef uint64_t spread, fired
    cdef int steps

    def __cinit__(self, Flattened rules, Py_ssize_t n, bint degenerate):
        self.rules = rules
        self.capacity = n + 64
        self.content = <Content *>malloc(self.capacity * sizeof(Content))
        self.mask = 1023
        self.slots = <int32_t *>malloc((self.mask + 1) * sizeof(int32_t))
        if self.content == NULL or self.slots == NULL:
            raise MemoryError()
        memset(self.slots, 0, (self.mask + 1) * sizeof(int32_t))
        self.spread = 0 if degenerate else odd
        self.most = 65536 + 64 * n

    def __dealloc__(self):
        free(self.content)
        free(self.slots)

    cdef int32_t push(self, Content content) except -1 nogil:
        cdef Content *grown
        if self.count == self.capacity:
            grown = <Content *>realloc(self.content, 2 * self.capacity * sizeof(Content))
            if grown == NULL:
                with gil:
                    raise MemoryError()
            self.content = grown
            self.capacity *= 2
        self.content[self.count] = content
        self.count += 1
        return <int32_t>(self.count - 1)

    cdef int32_t atom(self, int64_t type) except -1 nogil:
        cdef Content content
        content.symbol = 0
        content.datum = 0
        content.type = type
        content.a = content.b = -1
        return self.push(content)

    cdef uint64_t hashed(self, Content *c) noexcept nogil:
        cdef uint64_t h = (<uint64_t>c.datum ^ (<uint64_t>c.symbol << 48) ^ <uint64_t>c.type) * self.spread
        h = (h ^ (h >> 31) ^ <uint32_t>c.a) * self.spread
        h = (h ^ (h >> 31) ^ <uint32_t>c.b) * self.spread
        return h ^ (h >> 32)

    cdef int grow(self) except -1 nogil:
        cdef Py_ssize_t slots = 4 * (self.mask + 1), i, p
        cdef int32_t *old = self.slots
        cdef int32_t *new = <int32_t *>malloc(slots * sizeof(int32_t))
        if new == NULL:
            with gil:
                raise MemoryError()
        memset(new, 0, slots * sizeof(int32_t))
        for i in range(self.mask + 1):
            if old[i]:
                p = self.hashed(&self.content[old[i] - 1]) & (slots - 1)
                while new[p]:
                    p = (p + 1) & (slots - 1)
                new[p] = old[i]
        self.slots = new
        self.mask = slots - 1
        free(old)
        return 0

    cdef int32_t intern(self, Content content) except -1 nogil:
        cdef Py_ssize_t p
        cdef Content *other
        cdef int32_t number
        if 2 * self.used > self.mask:
            self.grow()
        p = self.hashed(&content) & self.mask
        while self.slots[p]:
            self.probes += 1
            other = &self.content[self.slots[p] - 1]
            if other.a == content.a and other.b == content.b and other.symbol == content.symbol \
                    and other.datum == content.datum and other.type == content.type:
                return self.slots[p] - 1
            p = (p + 1) & self.mask
        number = self.push(content)
        self.slots[p] = number + 1
        self.used += 1
        return number

    cdef int32_t value(self, Content c) except -1 nogil:
        """The number of a term's value, after every rule that applies."""
        cdef int32_t found, k, swap
        cdef Found bound
        while True:
            if commutes[c.symbol] and c.a > c.b:
                swap = c.a
                c.a = c.b
                c.b = swap
            found = -1
            if self.steps < most_steps:
                for k in range(self.rules.begin[c.symbol], self.rules.begin[c.symbol + 1]):
                    memset(bound.bound, 0, sizeof(bound.bound))
                    memset(bound.value, 255, sizeof(bound.value))
                    if self.matches(&self.rules.parts[-1 - self.rules.rules[k].left], &c, &bound) \
                            and self.holds(&self.rules.rules[k], &c, &bound):
                        found = k
                        break
            if found < 0:
                return self.intern(c)
            self.steps += 1
            self.fired |= <uint64_t>1 << self.rules.rules[found].number
            found = self.rules.rules[found].right
            if found >= 0:
                return bound.value[found]
            self.build(&self.rules.parts[-1 - found], &c, &bound)

    cdef bint matches(self, Part *part, Content *c, Found *bound) noexcept nogil:
        cdef int32_t k, value, want
        if part.symbol != c.symbol or part.arity != (c.a >= 0) + (c.b >= 0):
            return False
        if part.kind == CONSTANT:
            if part.bits != c.datum:
                return False
        elif part.kind == VARIABLE:
            k = part.data[0]
            if bound.bound[k] and bound.datum[k] != c.datum:
                return False
            bound.bound[k] = 1
            bound.datum[k] = c.datum
        for k in range(part.arity):
            value = c.a if k == 0 else c.b
            want = part.operand[k]
            if want >= 0:
                if bound.value[want] >= 0 and bound.value[want] != value:
                    return False
                bound.value[want] = value
            elif not self.matches(&self.rules.parts[-1 - want], &self.content[value], bound):
                return False
        return True

    cdef bint holds(self, Flat *rule, Content *whole, Found *bound) noexcept nogil:
        cdef int k, q
        cdef int32_t a, b
        for k in range(rule.conditions):
            q, a, b = rule.question[k], rule.first[k], rule.second[k]
            if q == TYPED:
                if self.content[bound.value[a]].type != whole.type:
                    return False
            elif q == ALIKE:
                if self.content[bound.value[a]].type != self.content[bound.value[b]].type:
                    return False
            elif q == BEFORE:
                if bound.value[a] >= bound.value[b]:
                    return False
            elif q == NESTED or q == SINGLE:
                if (self.content[bound.value[a]].symbol == whole.symbol) != (q == NESTED):
                    return False
            elif q == IDENTITY:
                if not is_identity(bound.datum[a]):
                    return False
            elif q == EXACT_PRODUCT:
                if not is_exact_product(as_number(bound.datum[a]), as_number(bound.datum[b])):
                    return False
            elif q == EXACT_SUM:
                if not is_exact_sum(as_number(bound.datum[a]), as_number(bound.datum[b])):
                    return False
            elif not is_small_power_of_two(bound.datum[a]):
                return False
        return True

    cdef int build(self, Part *part, Content *c, Found *bound) except -1 nogil:
        """Replace `c`, all but its type, by a term over what is bound."""
        cdef Content inner
        cdef Part *deeper
        cdef int32_t k
        cdef int32_t[2] operands
        operands[0] = operands[1] = -1
        for k in range(part.arity):
            if part.operand[k] >= 0:
                operands[k] = bound.value[part.operand[k]]
                continue
            deeper = &self.rules.parts[-1 - part.operand[k]]
            inner.symbol, inner.datum = deeper.symbol, datum_of(deeper, bound)
            inner.a = bound.value[deeper.operand[0]]
            inner.b = bound.value[deeper.operand[1]] if deeper.arity > 1 else -1
            inner.type = self.content[inner.a].type
            operands[k] = self.value(inner)
        c.symbol, c.datum = part.symbol, datum_of(part, bound)
        c.a, c.b = operands[0], operands[1]
        return 0

    cdef bint may(self, Part *part, Py_ssize_t node, const int16_t[::1] symbol, const int64_t[::1] datum,
                  const int64_t[::1] offsets, const int32_t[::1] operands, const uint8_t[::1] flags) noexcept nogil:
        """Do the symbols and constants of a pattern stand where it wants them, in the graph as written?"""
        cdef int32_t k, want
        if flags[node] & never_merges or symbol[node] != part.symbol or offsets[node + 1] - offsets[node] != part.arity:
            return False
        if part.kind == CONSTANT and part.bits != datum[node]:
            return False
        for k in range(part.arity):
            want = part.operand[k]
            if want < 0 and not self.may(&self.rules.parts[-1 - want], operands[offsets[node] + k],
                                         symbol, datum, offsets, operands, flags):
                return False
        return True

    cdef bint may_apply(self, Py_ssize_t node, const int16_t[::1] symbol, const int64_t[::1] datum,
                        const int64_t[::1] meta, const int64_t[::1] offsets, const int32_t[::1] operands,
                        const uint8_t[::1] flags) noexcept nogil:
        cdef int32_t k, q
        cdef Flat *rule
        cdef Part *part
        for k in range(self.rules.begin[symbol[node]], self.rules.begin[symbol[node] + 1]):
            rule = &self.rules.rules[k]
            part = &self.rules.parts[-1 - rule.left]
            if not self.may(part, node, symbol, datum, offsets, operands, flags):
                continue
            q = rule.question[0] if rule.conditions else -1
            if q == IDENTITY and not is_identity(datum[node]):
                continue
            if q == POWER_OF_TWO and not is_small_power_of_two(datum[node]):
                continue
            if q == TYPED and part.operand[0] == rule.first[0] and meta[node] != meta[operands[offsets[node]]]:
                continue
            return True
        return False


cdef bint is_identity(int64_t code) noexcept nogil:
    cdef int place
    for place in range(code & 15):
        if (code >> (4 * (place + 1))) & 15 != place:
            return False
    return True


cdef bint is_small_power_of_two(int64_t bits) noexcept nogil:
    cdef double number = as_number(bits), mantissa
    cdef int exponent = 0
    if not isfinite(number) or number == 0:
        return False
    mantissa = frexp(number, &exponent)
    return (mantissa == 0.5 or mantissa == -0.5) and -most_bits <= exponent - 1 <= most_bits


cdef bint is_exact_product(double x, double y) noexcept nogil:
    cdef double product = x * y
    if x == 0 or y == 0:
        return isfinite(product)
    return fabs(product) >= least_number and isfinite(product) and fma(x, y, -product) == 0


cdef bint is_exact_sum(double x, double y) noexcept nogil:
    # the error of a sum, as in Knuth's TwoSum
    cdef double total = x + y, other = total - x
    return fabs(x) < most_number and fabs(y) < most_number and (x - (total - other)) + (y - other) == 0


cdef double as_number(int64_t bits) noexcept nogil:
    cdef double number
    memcpy(&number, &bits, 8)
    return number


cdef int64_t as_bits(double number) noexcept nogil:
    cdef int64_t bits
    memcpy(&bits, &number, 8)
    return bits


cdef int64_t datum_of(Part *part, Found *bound) noexcept nogil:
    cdef int64_t a = bound.datum[part.data[0]], b = bound.datum[part.data[1]], code
    cdef int place
    if part.kind == VARIABLE:
        return a
    if part.kind == COMPOSE:
        code = b & 15
        for place in range(b & 15):
            code |= ((a >> (4 * (((b >> (4 * (place + 1))) & 15) + 1))) & 15) << (4 * (place + 1))
        return code
    if part.kind == NEGATIVE:
        return as_bits(-as_number(a))
    if part.kind == PRODUCT:
        return as_bits(as_number(a) * as_number(b))
    if part.kind == TOTAL:
        return as_bits(as_number(a) + as_number(b))
    if part.kind == INVERSE:
        return as_bits(1.0 / as_number(a))
    return part.bits


cdef bint sweep(
    Store store,
    const int64_t[::1] key,
    const int64_t[::1] offsets,
    const int32_t[::1] operands,
    const uint8_t[::1] flags,
    const int64_t[::1] meta,
    const int16_t[::1] symbol,
    const int64_t[::1] datum,
    const int32_t[::1] start,
    int32_t[::1] leader,
    uint64_t[::1] fired,
    int32_t[::1] values,
    int32_t[::1] below,
    int32_t[::1] first,
    int32_t[::1] slot,
) except -1 nogil:
    """Set `leader` and `fired`; False if too many probes were needed.

    `values` gets the number of each node's value, `below` those of its operands, `first`
    the first node of each value.
    """
    cdef Py_ssize_t n = key.shape[0], mask = slot.shape[0] - 1, i, j, p, begin, end, probes = 0
    cdef int32_t other, value, swap
    cdef uint64_t h
    cdef Content c
    for i in range(n):
        begin, end = offsets[i], offsets[i + 1]
        if start[i] != i:
            values[i] = values[start[i]]
            leader[i] = leader[start[i]]
            continue
        for j in range(begin, end):
            below[j] = values[operands[j]]
        store.fired = 0
        store.steps = 0
        if flags[i] & never_merges:
            value = store.atom(meta[i])
        elif symbol[i] and 0 < end - begin <= 2:
            c.symbol, c.datum, c.type = symbol[i], datum[i], meta[i]
            c.a = below[begin]
            c.b = below[begin + 1] if end - begin == 2 else -1
            value = store.value(c)
        else:
            if flags[i] & commutative and end - begin == 2 and below[begin] > below[begin + 1]:
                swap = below[begin]
                below[begin] = below[begin + 1]
                below[begin + 1] = swap
            h = <uint64_t>key[i] * store.spread
            for j in range(begin, end):
                h = (h ^ (h >> 31) ^ <uint32_t>below[j]) * store.spread
            p = <Py_ssize_t>(h >> 20) & mask
            value = -1
            while slot[p]:
                probes += 1
                other = slot[p] - 1
                if key[other] == key[i] and same(below, offsets, i, other):
                    value = values[other]
                    break
                p = (p + 1) & mask
            if value < 0:
                slot[p] = <int32_t>(i + 1)
                value = store.atom(meta[i])
        values[i] = value
        if value >= first.shape[0]:
            return False                 # more terms that stand for no node than nodes: never met, not wrong
        fired[i] = store.fired
        if first[value] < 0:
            first[value] = <int32_t>i
        elif fired[i] or fired[first[value]]:
            leader[i] = first[value]
        if probes + store.probes > store.most:
            return False
    return True


cdef bint same(int32_t[::1] below, const int64_t[::1] offsets, Py_ssize_t i, Py_ssize_t other) noexcept nogil:
    cdef Py_ssize_t a = offsets[i], b = offsets[other], end = offsets[i + 1]
    if end - a != offsets[other + 1] - b:
        return False
    while a < end and below[a] == below[b]:
        a += 1
        b += 1
    return a == end


def algebra(table, rules, *, leader=None, limit=None, degenerate_hash=None, effort=None):
    start = identity_leaders(len(table)) if leader is None else leader
    result = start
    fired = np.zeros(len(table), np.uint64)
    if table.symbol is None or table.datum is None or table.meta is None:
        return result, fired
    rules = tuple(rules)
    flattened = _flattened.get(rules)
    if flattened is None:
        flattened = _flattened[rules] = Flattened(rules)
    if degenerate_hash is None:
        degenerate_hash = degenerate_hash_forced()
    cdef Py_ssize_t n = len(table), i
    cdef Store store = Store(flattened, n, degenerate_hash)
    cdef const int64_t[::1] key = table.key, offsets = table.offsets, meta = table.meta, datum = table.datum
    cdef const int32_t[::1] operands = table.operands
    cdef const uint8_t[::1] flags = table.flags
    cdef const int16_t[::1] symbol = table.symbol
    cdef bint any_applies = False, done
    with nogil:
        for i in range(n):
            if symbol[i] and not flags[i] & never_merges \
                    and store.may_apply(i, symbol, datum, meta, offsets, operands, flags):
                any_applies = True
                break
    if effort is not None:
        effort.probes += n
    if not any_applies:
        return result, fired
    result = start.copy()
    cdef const int32_t[::1] starts = start
    cdef int32_t[::1] leaders = result, values = np.empty(n, np.int32), below = np.empty(len(operands), np.int32)
    cdef int32_t[::1] first = np.full(2 * n + 64, -1, np.int32)
    cdef int32_t[::1] slot
    cdef uint64_t[::1] fires = fired
    cdef Py_ssize_t slots = 16
    while 2 * slots < 3 * n:
        slots *= 2
    slot = np.zeros(slots, np.int32)
    with nogil:
        done = sweep(store, key, offsets, operands, flags, meta, symbol, datum, starts, leaders, fires,
                     values, below, first, slot)
    if effort is not None:
        effort.probes += store.probes
        effort.refined |= not done
    if not done:
        return twin(table, rules, leader=leader, limit=limit)
    if limit is not None:
        result = first_merges(result, start, limit)
    fired |= fired[result] | fired[start]
    fired[result == start] = 0
    return result, fired


algebra.__doc__ = twin.__doc__
