"""One sentence on what to change: it names only expressions whose values were seen to be equal."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autograd_opt.explaining.call_sites import Spot
from autograd_opt.explaining.sites import DERIVATIVE, EXPRESSION, MODULE, OPERATION, Pair, Site
from autograd_opt.explaining.source import (
    expression_of,
    holding,
    loops_to_leave,
    name_of,
    normal,
    one_result,
    text_of,
    value_of,
)
from autograd_opt.explaining.state import changes

MOST_LINES = 3
"""Lines beside the one that is named that are listed."""
Reached = dict[Spot, list[Site]]
"""For each expression, the sites of the chains of calls that lead to it."""


@dataclass(frozen=True)
class Program:
    """What is known of the whole program."""

    partly: bool
    """True if some of it was not watched."""
    forgot: bool
    """True if some values were forgotten, there being too many."""
    reached: Reached
    pairs: dict[tuple[Site, Site], Pair]


@dataclass(frozen=True)
class Advice:
    """The sentence on a finding, and what it names."""

    text: str
    action: str
    site: Site
    places: tuple[str, ...]
    expressions: tuple[str, ...] = ()
    loop: tuple[int, int] | None = None
    """The loop (levels up, first offset) before which a value is computed."""


def advise(group: list[Pair], program: Program) -> Advice:
    """The sentence for the pairs of one cause."""
    used = {p for pair in group for p in pair.uses}
    last = [pair for pair in group if pair not in used] or group
    main = max(last, key=lambda p: (p.count, sum(row[1] for row in p.rows.values())))
    if main.site.within(DERIVATIVE) is not None:
        return backward(main, group)
    if main.site.spot is None:
        text = "torch itself repeats this; nothing in the user's code asks for it"
        return Advice(text, "note", main.site, ("torch",))
    if not can_be_named(main):
        return part(main, group, program)
    named = [p for p in outermost(group) if can_be_named(p)]
    named.sort(key=lambda p: (p is not main, line_of(p)))
    if main.first is main.site:
        return loop(named, group, program)
    return reuse([p for p in named if p in last], group, program)


def can_be_named(pair: Pair) -> bool:
    """True if the value of the repeated expression is that of the one that it repeats, and all that it has."""
    return expression_of(pair.site) is not None and one_result(pair.first, pair.site)


def outermost(pairs: list[Pair]) -> list[Pair]:
    """Pairs whose expression is no part of another's on the same line that repeats as often."""
    def within(a: Pair, b: Pair) -> bool:
        one, other = a.site.spot, b.site.spot
        return (one is not None and other is not None and (one.file, one.line) == (other.file, other.line)
                and len(one.text) < len(other.text) and one.text in other.text and a.count <= b.count)

    return [p for p in pairs if not any(within(p, q) for q in pairs if q is not p)]


def part(main: Pair, group: list[Pair], program: Program) -> Advice:
    """Work that repeats inside an expression which as a whole does not."""
    site = main.site.expression
    if site is None or site.spot is None:
        return Advice("nothing in the user's code asks for this again", "note", main.site, (str(main.site.spot),))
    inside = list(dict.fromkeys(p.site.name for p in group if p.site.kind in (OPERATION, MODULE)))
    what = ", ".join(f"`{name}`" for name in inside[:4]) + (" …" if len(inside) > 4 else "")
    what = f"{what} inside {text_of(site.spot)}" if what else text_of(site.spot)
    where = str(site.spot)
    other = main.first.expression
    if other is not None and other is not site and other.spot is not None and other.spot is not site.spot:
        tail = f"computes what {text_of(other.spot)} at {other.spot} computed before"
    else:
        tail = "computes on values that it had before"
    often = runs(main, program) + (f" of `{main.site.name}`" if len(inside) > 1 else "")
    value = value_of(main.site)
    change = changes(main.site, value) if value is not None else ""
    end = f"; it also {change}, so leaving it out would change the program" if change \
        else ": keep these results where they can be kept"
    return Advice(f"{what} at {where} {tail}, in {often}{end}{beside(main, group)}", "note", main.site, (where,))


def runs(main: Pair, program: Program) -> str:
    """How many runs of a place, in all chains of calls, have values that the place of `main.first` had before."""
    sites, expression = [main.site], main.site.expression
    if expression is not None and expression.spot is not None:
        waiting = list(program.reached.get(expression.spot, ()))
        while waiting:
            at = waiting.pop()
            if at.place == main.site.place:
                sites.append(at)
            waiting += [inner for inner in at.children.values() if inner.kind != EXPRESSION]
    sites = list(dict.fromkeys(sites))
    again, all_of_them = sum(s.again[main.first.place] for s in sites), sum(s.executions for s in sites)
    unsure = again < all_of_them and (program.partly or program.forgot)
    return (f"{'at least ' * unsure}{again:,} of {all_of_them:,} runs"
            f"{' that were watched' * program.partly}")


def beside(main: Pair, group: list[Pair]) -> str:
    """The lines of a group whose repeats are counted with those of the one that is named."""
    named = str(main.site.spot)
    lines = list(dict.fromkeys(str(p.site.spot) for p in sorted(group, key=line_of)))
    others = [line for line in lines if line != named]
    if not others:
        return ""
    more = [f"{len(others) - MOST_LINES} more"] if len(others) > MOST_LINES else []
    return f"; counted with it are repeats at {listed(others[:MOST_LINES] + more)}"


def always(pair: Pair) -> bool:
    """True if every execution of the site has the value of the latest of the other one, as far as that was seen."""
    site, unknown = pair.site, pair.site.resumed
    return not pair.written and not site.written and not pair.first.written and not pair.elsewhere \
        and pair.latest == pair.count and pair.equal >= max(unknown, site.executions - unknown)


ENOUGH = 8
"""Repeats after which those of a program that was watched in part are taken for all."""


def certain(pair: Pair, program: Program) -> bool:
    """True unless a program was watched too little to say that its other executions repeat, too."""
    one, other = pair.first.spot, pair.site.spot
    if not program.partly or one is None or other is None:
        return not program.partly
    beside = pair.first.parent is pair.site.parent
    return (beside and one.text == other.text) or (pair.equal >= ENOUGH and (beside or one is other))


def gradients(pairs: list[Pair], loop: tuple[int, int] | None = None) -> str:
    """What to mind where gradients flow through one value in several backward runs; `loop`: the one that is left."""
    several = any(((p.across or loop in p.site.across) and p.first.lags and p.site.lags)
                  or len(p.first.lags | p.site.lags) > 1 for p in pairs)
    return ("; its gradients are asked for in several backward runs: all but the last need retain_graph=True"
            if several else "")


def under(spot: Spot, first: int) -> str:
    """The contexts between a loop and an expression, which has to stay in them."""
    items = [ast.unparse(item) for node in holding(spot.file, spot.line, (ast.With,)) if node.lineno > first
             for item in node.items]
    return f", also under `with {', '.join(items)}`" if items else ""


def listed(words: list[str]) -> str:
    """Words as a list in a sentence."""
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def keep(pair: Pair, group: list[Pair], program: Program) -> Advice:
    """Results that come up again now and then."""
    spot, first = pair.site.spot, pair.first.spot
    assert spot is not None
    assert first is not None
    before = "it had before" if first is spot else f"{text_of(first)} at {first} had before"
    tail = "; their gradients flow to different leaves, so that only what carries none can be kept" \
        if pair.elsewhere else gradients([pair])
    return Advice(
        f"{spot} computes {text_of(spot)} on values {before} in {runs(pair, program)}: "
        f"keep the results that are needed again{tail}{beside(pair, group)}", "keep", pair.site,
        (str(spot),) if first is spot else (str(first), str(spot)), (spot.text,))


def reuse(pairs: list[Pair], group: list[Pair], program: Program) -> Advice:
    """One value that several places ask for."""
    main, reached = pairs[0], program.reached
    spot, first = main.site.spot, main.first.spot
    assert spot is not None
    assert first is not None
    if not all(always(p) and certain(p, program) and expression_of(p.first) is not None for p in pairs):
        return keep(main, group, program)
    tail = gradients(pairs)
    what = listed([text_of(p.site.spot) for p in pairs if p.site.spot is not None])
    if first is spot:
        calls = [s for s in (caller(main.first, main.site), caller(main.site, main.first)) if s is not None]
        if len(calls) < 2:
            return keep(main, group, program)
        return Advice(f"{what} at {spot} has the same value when it is reached from {call_text(calls[0])} and from "
                      f"{call_text(calls[1])}: compute it once and hand it to both{tail}", "note", main.site,
                      (str(calls[0]), str(calls[1])), (spot.text,))
    if not (alone(main.first, reached) and alone(main.site, reached)) and not all(side_by_side(p, program)
                                                                                 for p in pairs):
        return Advice(f"{what} at {spot}{via(main.site, reached)} has the value of {text_of(first)} at "
                      f"{first}{via(main.first, reached)}: compute it once and hand it over{tail}", "note", main.site,
                      (str(first), str(spot)), (spot.text,))
    uses: dict[tuple[str, str], list[Pair]] = {}
    for p in sorted(pairs, key=line_of):             # those that go from one place to the same others are said at once
        others = [str(q.site.spot) for q in pairs if q.first.spot is p.first.spot]
        uses.setdefault((str(p.first.spot), " ".join(sorted(others))), []).append(p)
    places = dict.fromkeys(str(spot) for p in pairs for spot in (p.first.spot, p.site.spot))
    return Advice(f"{', and '.join(shared(ps) for ps in uses.values())}{tail}", "reuse", main.site, tuple(places),
                  tuple(dict.fromkeys(p.site.spot.text for p in pairs if p.site.spot is not None)))


def shared(pairs: list[Pair]) -> str:
    """What to compute once and where to use it, for pairs whose firsts stand on one line."""
    first = str(pairs[0].first.spot)
    source = listed([text_of(p.first.spot) for p in pairs if p.first.spot is not None])
    what = listed([text_of(p.site.spot) for p in pairs if p.site.spot is not None])
    it, are = ("them", "they are") if len({p.first.spot for p in pairs}) > 1 else ("it", "it is")
    places = list(dict.fromkeys(str(p.site.spot) for p in pairs))
    where = "there again" if places == [first] else f"at {listed(places)}"
    return f"compute {source} once, at {first}, and use {it} {where}{f', where {are} {what}' * (source != what)}"


def line_of(pair: Pair) -> int:
    """The line of a pair's site."""
    return pair.site.spot.line if pair.site.spot is not None else 0


def side_by_side(pair: Pair, program: Program) -> bool:
    """True if both expressions stand in one call of a function, and are equal whatever chain of calls leads there."""
    if pair.site.spot is None or pair.first.spot is None or pair.first.parent is not pair.site.parent:
        return False
    for site in program.reached[pair.site.spot]:
        firsts = [f for f in program.reached[pair.first.spot] if f.parent is site.parent]
        found = [program.pairs.get((f, site)) for f in firsts]
        if not any(p is not None and always(p) for p in found):
            return False
    return True


def repeating(sites: list[Site]) -> list[Site]:
    """The sites but those that ran once and stand in no loop."""
    return [site for site in sites if site.constant or site.executions > 1]


def call_text(spot: Spot) -> str:
    """A call and where it stands."""
    return f"{text_of(spot)} at {spot}"


def alone(site: Site, reached: Reached) -> bool:
    """True if one chain of calls leads to an expression: a change there is for this value alone."""
    return site.spot is not None and len(reached.get(site.spot, ())) <= 1


def via(site: Site, reached: Reached) -> str:
    """The innermost call by which a site's chain is told from the others to the same expression."""
    if alone(site, reached):
        return ""
    calls = [s for s in site.chain()[:-1] if len(reached.get(s, ())) <= 1] or list(site.chain()[:-1])[:1]
    return f" (when it is reached from {call_text(calls[-1])})" if calls else ""


def caller(site: Site, other: Site) -> Spot | None:
    """Where the chain of calls of a site first differs from that of another one."""
    mine, its = site.chain(), other.chain()
    return next((s for k, s in enumerate(mine) if k >= len(its) or its[k] is not s), None)


def loop(pairs: list[Pair], group: list[Pair], program: Program) -> Advice:
    """One value that a loop asks for again."""
    main, reached = pairs[0], program.reached
    spot = main.site.spot
    assert spot is not None
    moved = frozenset(normal(p.site.spot) for p in pairs if p.site.spot is not None)
    left = [loops_to_leave(p.site, moved) for p in pairs]
    # what a caller's loop changes in turns that nobody watched is not in the source of the site's own function
    common = [place for place in left[0] if all(place in other for other in left) and not (place[0] and program.partly)]
    if not common or any(p.written or p.elsewhere for p in pairs):
        return keep(main, group, program)
    # what is said of all chains of calls comes before what is said of one, and the outermost loop before those in it
    sites = [site for p in pairs if p.site.spot is not None for site in repeating(reached[p.site.spot])]
    shared = [place for place in common if all(place in loops_to_leave(site, moved) for site in sites)]
    everywhere = bool(shared)
    level, file, line, begin = (shared or common)[-1]
    where = f"{Spot(file, line, '', 0)}"
    pairs = sorted(pairs, key=line_of)
    what, at = listed([name_of(p.site) for p in pairs]), listed([str(p.site.spot) for p in pairs])
    it = "them" if len({name_of(p.site) for p in pairs}) > 1 else "it"
    tail = under(spot, line) + gradients(pairs, (level, begin))
    texts = tuple(p.site.spot.text for p in pairs if p.site.spot is not None)
    places = tuple(dict.fromkeys(str(p.site.spot) for p in pairs))
    single = all(alone(p.site, reached) for p in pairs)
    call = "" if everywhere else via(main.site, reached)
    if not (everywhere and level == 0) and (call or not single):
        each = ", one for each chain of calls that leads there" if everywhere else ""
        have = "have one value each" if it == "them" else "has one value"
        return Advice(f"{what} at {at}{call} {have} throughout the loop at "
                      f"{where}{each}: compute {it} once and hand {it} over{tail}", "note", main.site, places, texts,
                      (level, begin))
    if level == 0:
        return Advice(f"compute {what} once, before the loop at {where}{tail}", "hoist", main.site, places, texts,
                      (level, begin))
    return Advice(f"compute {what} once, outside the loop at {where}, and keep {it} for {at}{tail}", "hoist", main.site,
                  places, texts, (level, begin))


def backward(main: Pair, group: list[Pair]) -> Advice:
    """Work that derivatives repeat."""
    derivative = main.site.within(DERIVATIVE)
    assert derivative is not None
    run = derivative.parent.expression if derivative.parent is not None else None
    other = main.first.within(DERIVATIVE)
    first = other.parent.expression if other is not None and other.parent is not None else main.first.expression
    here = str(run.spot) if run is not None and run.spot is not None else "an unknown line"
    there = str(first.spot) if first is not None and first.spot is not None else here
    lines = listed([str(p.site.spot).removeprefix("derivative of ") for p in group if p.site.spot is not None])
    lines = f"derivative{'s' * (' and ' in lines)} of {lines}"
    if all(p.one_run == p.count for p in group):
        sentence = f"the backward run at {here} computes this more than once on the same values, in the {lines}"
    elif here != there:
        sentence = f"the backward runs at {there} and {here} compute this on the same values, in the {lines}"
    else:
        sentence = f"the backward run at {here} computes this again on values of an earlier run, in the {lines}"
    places = (there, here) if here != there else (here,)
    return Advice(sentence, "note", main.site, places)
