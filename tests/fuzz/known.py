"""Differences from torch eager that are known and not yet, or never to be, removed.

The normal tests pass over them, the long sweep counts them by name.  An entry goes when its
cause does; `test_known_differences_still_differ` fails for an entry that has become obsolete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.causes import (
    chaotic,
    counted_alike,
    fed,
    held_as_saved,
    hidden_views,
    shared_gradients,
    written_through,
)
from tests.fuzz.oracle import MODES, differs
from tests.programs import Program


@dataclass(frozen=True)
class Known:
    """A difference: what its message says, what the program has, and the shortest program that has it.

    `besides` is a second question to the program and the message; all three must hold.
    `sometimes`: why both agree where they do.
    """

    reason: str
    message: str
    program: str
    example: str
    besides: Callable[[Program, str], bool] = field(default=lambda program, message: True)
    sometimes: str = ""


def agree(program: Program, lines: list[str]) -> bool:
    """Do both agree when the program says these lines, which are others?"""
    return lines != program.statements and differs(Program(lines)) is None


def merging(program: Program, message: str) -> bool:
    """Does the program do as torch does where nothing merges: as written, and with `optimize="exact"`?"""
    modes = [m for m in MODES if not m["optimize"]] + [{**m, "optimize": "exact"} for m in MODES if m["optimize"]]
    return differs(program, modes) is None


def rounding(program: Program, message: str) -> bool:
    """Does torch eager itself give other numbers there, from inputs, or gradients, that differ by rounding?"""
    where = re.search(r": (\w+|\w+\.grad|hook \S+) (is|saw)", message)
    if where is None:
        return False
    return where.group(1) in chaotic(program) or all(fed(program, mode) is None for mode in MODES)


def one_memory(program: Program, message: str) -> bool:
    """Has torch eager given the `.grad` of two tensors one memory, so that what is added to one is added to both?"""
    where = re.search(r": (\w+\.grad) is", message)
    return where is not None and where.group(1) in shared_gradients(program)


def given_a_copy(program: Program, message: str) -> bool:
    """Do both agree when the cotangents that the user gives are copies?"""
    return agree(program, [re.sub(r"backward\((\w+)\.detach\(\)", r"backward(\1.detach().clone()", line)
                           for line in program.statements])


def to_nobody(program: Program, message: str) -> bool:
    """Do both agree when views made under no_grad are cut off from their base?"""
    under = re.compile(r"^(with torch\.(?:no_grad\(\)|set_grad_enabled\(False\)): \w+ = )(.*)$")
    return differs(Program([under.sub(r"\1(\2).detach()", line) for line in program.statements])) is None


def looked_at(program: Program, message: str) -> bool:
    """Do both agree when somebody looks at the history of a tensor after each assignment to a part of it?"""
    statements: list[str] = []
    for line in program.statements:
        statements.append(line)
        written = re.match(r"(\w+)\[.*\] = ", line)
        if written:
            statements.append(f"{written.group(1)}.grad_fn")
    return len(statements) > len(program.statements) and differs(Program(statements)) is None


def told_by(program: Program, message: str) -> tuple[int, str]:
    """The number and the text of the first statement that has told something else."""
    line = message.partition("told by ")[2]
    for k, statement in enumerate(program.statements):
        if line.startswith(repr(statement) + ": "):
            return k, statement
    return -1, ""


def starting(program: Program, message: str) -> bool:
    """Do versions that differ grow alike from where the variable is made?"""
    place, statement = told_by(program, message)
    if ".clone()" in statement:          # of an inference tensor torch counts the copy
        lines = [*program.statements[:place], statement.replace(".clone()", ".mul(1)")]
        return differs(Program(lines)) is None
    name = re.search(r"(\w+)(\.\w+\([^()]*\))?\)?\._version", statement)
    return name is not None and counted_alike(program, place, name.group(1), MODES)


def names_apart(message: str) -> bool:
    """Do the two texts that were told differ in names of nodes alone?"""
    told = re.search(r"': (\[.*\]) instead of (\[.*\])", message.partition("--- program ---")[0], re.DOTALL)
    ours, theirs = (re.sub(r"\\n|\s|\w+Backward\d?", "", text) for text in told.groups()) if told else ("", "")
    return bool(ours) and ours == theirs


def between(program: Program, message: str) -> bool:
    """Do both histories lead to the same leaves?  A name that differs must be of a transform's, or linear's, result."""
    place, statement = told_by(program, message)
    found = re.search(r"(\w+)\.grad_fn|printed\((\w+), True\)", statement)
    if found is None or (found.group(2) and not names_apart(message)):
        return False
    name = found.group(1) or found.group(2)
    made = [line for line in program.statements[:place] if re.search(rf"\b{name}(, \w+)* = ", line)]
    several = r"vmap\(|func\.|F\.linear\("
    if "next_functions" not in statement and not (made and re.search(several, made[-1])):
        return False
    return differs(Program([*program.statements[:place], f"tell(leaves_below({name}))"])) is None


def saved(program: Program, message: str) -> bool:
    """Do both agree on what is alive once torch saves aliases?"""
    place, _ = told_by(program, message)
    shorter = Program(program.statements[:place + 1])
    return held_as_saved(shorter, MODES) or handed_as_copies(shorter)


def handed_as_copies(program: Program) -> bool:
    """Do both agree when transforms, inside which torch runs no hooks, get copies that nobody else has?"""
    lines = []
    for line in program.statements:
        made, equals, call = line.rpartition(" = ")
        transforms = "func." in call or "functional." in call
        lines.append(made + equals + re.sub(r"\b(v\d+)\b", r"\1.clone()", call) if transforms else line)
    return agree(program, lines)


def staying(program: Program, message: str) -> bool:
    """Do both agree when the program stays in one graph, and collects cycles before each look?"""
    place, _ = told_by(program, message)
    lines = [re.sub(r"(?<!collected\(\); )alive\(\)", "collected(); alive()", line).removeprefix("with outside(): ")
             for line in program.statements[:place + 1] if line != "fresh()"]
    return differs(Program(lines)) is None


def leaking(program: Program, message: str) -> bool:
    """Do both agree when pack hooks give back another tensor than the one that they got?"""
    text = "saved_tensors_hooks(lambda t: t.detach(),"
    return differs(Program([
        re.sub(r"saved_tensors_hooks\(lambda t: t,", text, line).replace(
            "lambda t: (t, t._", "lambda t: (t.detach(), t._").replace("save_on_cpu()", f"{text} lambda t: t)")
        for line in program.statements
    ])) is None


def copied(program: Program, message: str) -> bool:
    """Do both agree when what a transform returns is copied?"""
    made = re.compile(r"^(.*\w+ = )((?:func|functional)\.(?:hessian|jacrev|jacfwd|jacobian)\(.*)$")
    return differs(Program([made.sub(r"\1(\2).clone()", line) for line in program.statements])) is None


def copied_derivatives(program: Program, message: str) -> bool:
    """Do both agree when what a transform gives back besides the value is copied?"""
    made = re.compile(r"^(\w+, \w+ = )(functional\.v?jv?p\(.*)$")
    return agree(program, [made.sub(r"\1(t.clone() for t in \2)", line) for line in program.statements])


def without_sign(program: Program, message: str) -> bool:
    """Do both agree when 0 is added to what a transform gives, so that no zero has a sign?"""
    made = re.compile(r"^(\w+ = )((?:func|functional)\.(?:hessian|jacrev|jacfwd|jacobian|grad)\(.*)$")
    return agree(program, [made.sub(r"\1\2 + 0.0", line) for line in program.statements])


def of_its_shape(program: Program, message: str) -> bool:
    """Do both agree when what is given as `out=` is a copy, and the tensor keeps its shape?"""
    return agree(program, [re.sub(r"out=(\w+)\)", r"out=\1.clone())", line) for line in program.statements])


def without_gradient(program: Program, message: str) -> bool:
    """Do both agree when no second operand of a product requires grad, and within the tolerance as it is?"""
    near = Program(program.statements, frozenset(re.findall(r"\bv\d*\b", str(program))))
    if differs(near) is not None:
        return False
    product = re.compile(r"( @ |F\.linear\(\w+, )(\w+\([^()]*\)|\w+)")
    return differs(Program([product.sub(r"\1\2.detach()", line) for line in program.statements])) is None


def finite(program: Program, message: str) -> bool:
    """Do both agree when no number is infinite?"""
    return differs(Program([re.sub(r"\binf\b", "7.0", line) for line in program.statements])) is None


def through_gradient(program: Program, message: str) -> bool:
    """Has torch eager added a gradient to the memory of the tensor itself?"""
    where = re.search(r": (\w+) is", message)
    return where is not None and where.group(1) in written_through(program)


def out_of_place(program: Program, message: str) -> bool:
    """Do both agree when each activation is computed elsewhere, and copied into its operand?"""
    activation = re.compile(r"F\.(rrelu)\((\w+)(, [^=]*)?, inplace=True\)")
    product = re.compile(r"\b(\w+)\.cumprod_\(([^()]*)\)")
    lines = [product.sub(r"\1.copy_(\1.cumprod(\2))", activation.sub(r"\2.copy_(F.\1(\2\3))", line))
             for line in program.statements]
    return agree(program, lines)


def copied_products(program: Program, message: str) -> bool:
    """Do both agree when products of letters are copied?"""
    made = re.compile(r"^(\w+ = )(torch\.einsum\([^()]*\))$")
    lines = [made.sub(r"\1\2.clone()", line) for line in program.statements]
    return agree(program, lines)


def not_asked_itself(program: Program, message: str) -> bool:
    """Do both agree when no run is asked for the result of a quotient itself?"""
    quotients = {line.partition(" = ")[0] for line in program.statements if " // " in line or "floor_divide" in line}
    asked = re.compile(rf"backward\(inputs=\[({'|'.join(quotients)})\](, )?")
    return bool(quotients) and agree(program, [asked.sub("backward(", line) for line in program.statements
                                               if not line.endswith(".retain_grad()")])


def copied_sources(program: Program, message: str) -> bool:
    """Do both agree when the added values are copies?"""
    added = re.compile(r"(index_add\([^,]+, .*, )(\w+(\[[^\]]*\])?)\)$")
    return agree(program, [added.sub(r"\1\2.clone())", line) for line in program.statements])


def copied_hidden(program: Program, message: str) -> bool:
    """Do both agree when views of memory that no variable has are copied as soon as they are made?"""
    names = "|".join(sorted(hidden_views(program)))
    made = re.compile(rf"^((?:{names}) = )(.*)$")
    return bool(names) and agree(program, [made.sub(r"\1(\2).clone()", line) for line in program.statements])


def multiplied_out(program: Program, message: str) -> bool:
    """Do both agree when powers are products?"""
    return agree(program, [re.sub(r"\b(\w+) \*\* 3\b", r"(\1 * \1 * \1)", line) for line in program.statements])


def as_they_are(program: Program, message: str) -> bool:
    """Do both agree when the operands of `linear` are in no other layout than made?"""
    laid = re.compile(r"laid\((\w+), '\w+'\)")
    return agree(program, [laid.sub(r"\1", line) if "F.linear(" in line else line for line in program.statements])


def by_method(program: Program, message: str) -> bool:
    """Do both agree when `_foreach_` writes are those of the methods?"""
    called = re.compile(r"torch\._foreach_(\w+_)\(\[(\w+)\], ([^\[\]]+)\)$")
    return agree(program, [called.sub(r"\2.\1(\3)", line) for line in program.statements])


def left_as_it_is(program: Program, message: str) -> bool:
    """Do both agree when nothing is turned without a record?"""
    turned = re.compile(r"no_grad\(\): \w+\.(t_|transpose_|swapaxes_|swapdims_|squeeze_|unsqueeze_)\(")
    return agree(program, [line for line in program.statements if not turned.search(line)])


def without_hooks(program: Program, message: str) -> bool:
    """Do both agree without hooks of several leaves?"""
    return agree(program, [line for line in program.statements if "register_multi_grad_hook" not in line])


def kept_for_later(program: Program, message: str) -> bool:
    """Do both agree when no run frees what the one after it reads?"""
    lines = [line.replace(".backward()", ".backward(retain_graph=True)") for line in program.statements]
    return agree(program, lines)


def without_history(program: Program, message: str) -> bool:
    """Do both agree when transforms ask for derivatives that have no history?"""
    lines = [line.replace("create_graph=True, ", "") if "vmap(" in line else line for line in program.statements]
    return agree(program, lines)


def read_once(program: Program, message: str) -> bool:
    """Do both agree when no derivative has a history, in which the results that it has read are saved?"""
    return agree(program, [re.sub(r"(, )?create_graph=True", "", line) for line in program.statements])


FUNCTIONS = {"==": "eq", "!=": "ne"}


def called(program: Program, message: str) -> bool:
    """Do both agree when `==` and `!=` of two tensors are calls, whose first operand Python does not choose?"""
    compared = re.compile(r"\b([a-z]\w*) (==|!=) (?!nan|inf)([a-z]\w*)\b")
    return differs(Program([
        compared.sub(lambda m: f"torch.{FUNCTIONS[m[2]]}({m[1]}, {m[3]})", line) for line in program.statements
    ])) is None


KNOWN = (
    Known(
        "strides after `plain == recorded`, of which Python asks the more special class first: `recorded == plain`",
        r"has strides",
        r" [!=]= [a-z]",
        "u = c.t()\nv = torch.view_as_real(z)\nt = torch.where(u == v, u, v)",
        called,
    ),
    Known(
        "a view that an assignment to its part has given a history: torch takes it for a leaf until somebody looks",
        r"(?s)torch raises .*a leaf Variable that requires grad.*this library None",
        r"\w+\[.*\] = ",
        "u = d * 1\nv = u[1:]\nv[0] = s\nv.zero_()",
        looked_at,
    ),
    Known(
        "torch's .grad of two leaves in one memory, to which it adds twice",
        r"\.grad is",
        r"",
        "u = torch.stack([x, c.requires_grad_()]).sum(0)\n"
        "u.sin().sum().backward(retain_graph=True)\nu.sin().sum().backward()",
        one_memory,
    ),
    Known(
        "torch keeps a cotangent that is the leaf itself as its .grad, and adds to that: the leaf is written",
        r": \w+ is|torch raises .*modified by an inplace operation",
        r"backward\(\w+\.detach\(\)",
        "v = s.transpose(0, -1)\nv.backward(v.detach(), retain_graph=True)\n(v * 3).backward()",
        given_a_copy,
    ),
    Known(
        "the derivative of a normalization of equal elements is a rounding error",
        r"optimize=True: \w+\.grad is",
        r"(layer|group|instance|batch|rms)_norm\(.*'expanded'",
        "v = F.layer_norm(laid(f, 'expanded'), f.shape[-1:])\nu = F.layer_norm(laid(f, 'expanded'), f.shape[-1:])\n"
        "(v.sum() * 2 + u.sum() * 3 + u.sum() * 4 + y.sum() * 5).backward()",
        merging,
    ),
    Known(
        "torch's sum of infinities is NaN where a merged rule sums before it multiplies",
        r"(?s)optimize=True.*(\.grad is|v\d+ is|saw).*inf.*instead of.*nan",
        r"",
        "a = z.abs()\nb = z.abs()\n(a * inf + b * 5).sum().backward()",
        merging,
    ),
    Known(
        "operands of a call that is differentiated for nobody, written later: torch refuses, here they are not read",
        r"(?s)torch raises .*modified by an inplace operation.*this library None",
        r"no_grad\(\): |set_grad_enabled\(False\): ",
        "with torch.no_grad(): u = x[0]\nv = u / c[0]\nc.mul_(2)\n(v.sum() + x.sum()).backward()",
        to_nobody,
    ),
    Known(
        "an activation in place, written again: torch, which saves its result, refuses; here its operand was kept",
        r"(?s)torch raises .*modified by an inplace operation.*this library None",
        r"rrelu\(.*inplace=True\)|cumprod_",
        "v = w * 1\nF.rrelu(v, inplace=True)\nF.relu6(v, inplace=True)\nv.sum().backward()",
        out_of_place,
    ),
    Known(
        "a second run through a `_foreach_mul_` by a number, which torch does not save there, unlike that of a `mul_`",
        r"(?s)torch raises None .*this library FreedGraphError.*reached (mul|div)",
        r"_foreach_(mul|div)_",
        "v = (d - f).clone()\ntorch._foreach_mul_([v], 2.0)\nv.sum().backward()\nv.sum().backward()",
        kept_for_later,
    ),
    Known(
        "a derivative that is a view in torch, of whose history a write without a record leaves nothing to a hook",
        r"\.grad is",
        r"(?s)functional\.v?jv?p\(.*register_(pre)?hook\(.*no_grad\(\)",
        "v, u = functional.vjp(lambda t: t.prod(), w, create_graph=True)\nu.grad_fn; handles.append(u.grad_fn."
        "register_hook(lambda i, o: tuple(None if g is None else g * 2 for g in i)))\n"
        "with torch.no_grad(): u.square_()\nu.sum().backward()",
        copied_derivatives,
    ),
    Known(
        "the sign of a zero among derivatives of a product of all elements, which torch computes as a difference",
        r": \w+ is",
        r"(func|functional)\..*\.prod\(",
        "u = functional.hessian(lambda t: t.prod(), c)\nv = s / u",
        without_sign,
    ),
    Known(
        "`out=` of another shape on a result with a history: torch takes its cotangent, of the new shape, for the old",
        r"\.grad is",
        r"(multi_dot|cov|corrcoef|quantile)\((?s:.)*no_grad\(\): .*out=",
        "u = torch.linalg.multi_dot([f, f[:, None], f[None], f])\nwith torch.no_grad(): torch.mul(w, 2, out=u)\n"
        "u.sum().backward()",
        of_its_shape,
    ),
    Known(
        "the flag of a derivative in vmap for which torch does not read what requires grad: of a convolution in its "
        "weight, of a softmax of one number",
        r"requires_grad True, is_leaf False instead of False, True",
        r"(conv\w+|softmax)\((?s:.)*vmap\(.*create_graph=True",
        "u = F.conv2d(ramp(1, 2, 4, 4), ramp(2, 2, 2, 1) * s)\nv = torch.vmap(lambda v: torch.autograd.grad(u, s, v, "
        "create_graph=True, retain_graph=True)[0])(torch.stack([torch.ones_like(u), u.detach()]))",
        without_history,
    ),
    Known(
        "a second derivative through a Function that has only a first, in vmap: torch takes that for a constant, here "
        "it is refused",
        r"torch raises None .*this library GraphError.*marked with @once_differentiable",
        r"vmap\(.*create_graph=True",
        "u, _ = Ranked.apply(y * s)\nv = func.grad(lambda t: (t * s).tanh().sum())(u)\nz = torch.vmap(lambda t: "
        "torch.autograd.grad(v, s, t, create_graph=True, retain_graph=True)[0])(torch.stack([u.detach(), u.detach()]))"
        "\nz.sum().backward()",
        without_history,
    ),
    Known(
        "the version that a result starts with: in torch it counts the writes of a kernel's own",
        r"told by .*_version",
        r"_version",
        "v = x.isclose(x)\ntell(v._version)",
        starting,
    ),
    Known(
        "calls of which torch makes several nodes are one node here: what lies between it and the leaves",
        r"told by .*(grad_fn|printed\()",
        r"grad_fn|printed\(",
        "v = z.imag\ntell(v.grad_fn and [None if n is None else n.name() for n, _ in v.grad_fn.next_functions])",
        between,
    ),
    Known(
        "a tensor object that torch's graph holds as saved (the indices of a sort); here it holds the value alone",
        r"told by .*alive\(\).*\[.*False.*instead of",
        r"alive\(\)",
        "u, v = (s * y).sort(0)\nwatch(v); del v; alive()",
        saved,
    ),
    Known(
        "the grad_fn of a view that was written without a record, asked for outside of its graph: that from before",
        r"told by .*outside\(\): .*grad_fn.*instead of.*AsStrided",
        r"no_grad\(\)",
        "v = f.unsqueeze(0)\nwith torch.no_grad(): v.neg_()\nwith outside(): tell(v.grad_fn and v.grad_fn.name())",
    ),
    Known(
        "what a graph holds (also in cycles) ends where it is left; in torch it lives as long as its results do",
        r"told by .*alive\(\).*\[.*False.*instead of",
        r"(?s)(fresh\(\)|outside\(\)).*alive\(\)",
        "v = tied('', w)\nwatch(v); del v\nfresh()\nalive()",
        staying,
    ),
    Known(
        "whether a result is a view of memory that nobody has seen: of the squeezed result of a kernel, say",
        r"told by .*_is_view\(\)",
        r"_is_view\(\)",
        "u = torch.linalg.multi_dot([d, d[:, None], d[None], d])\ntell(u._is_view())",
        copied_hidden,
        sometimes="views are recorded one by one while a view lives whose base came to require grad after it was made",
    ),
    Known(
        "a result is written that torch's rule has saved, of a view from inference mode, which leads to nobody: torch "
        "calls the rule all the same, and refuses",
        r"torch raises .*modified by an inplace operation.*this library None",
        r"inference_mode\(\): \w+ = .*view",
        "with torch.inference_mode(): v = s.view(-1)\nu = v.exp()\nu.sin_()\nu.sum().backward()",
    ),
    Known(
        "the squeezed result of an einsum is in torch a view of memory that nobody has seen, and refuses detach_()",
        r"torch raises .*Can't detach views in-place.*this library None",
        r"detach_\(\)",
        "u = torch.einsum('...i,...i->...', d, d)\nu.detach_()",
        copied_hidden,
    ),
    Known(
        "a hook in a batched run with create_graph=True, which is a run for each slice: it is called in each",
        r"torch raises None .*hook returned 'list'",
        r"(?s)register_hook\(lambda g: handles and.*(vmap|is_grads_batched)",
        "handles.append(z.register_hook(see('z')))\nw.register_hook(lambda g: handles and handles.pop().remove())\n"
        "v = torch.vmap(lambda v: torch.autograd.grad(w, s, v, create_graph=True, materialize_grads=True)[0])"
        "(torch.ones_like(w)[None].expand(3, *w.shape))",
    ),
    Known(
        "a hook that calls backward() in a run inside vmap: torch refuses, here runs and their hooks are outside of it",
        r"torch raises .*backward\(\) called inside a functorch transform.*this library None",
        r"(?s)register_hook\(.*backward\(\).*vmap\(",
        "u = f * 2\nu.register_hook(lambda g: (w * 3).sum().backward())\n"
        "v = torch.vmap(lambda v: torch.autograd.grad(u, x, v, create_graph=True, materialize_grads=True)[0])"
        "(torch.ones(2, *u.shape))",
    ),
    Known(
        "a result that a pack hook keeps itself, and that `out=` then gives another shape: torch's rule reads what it "
        "finds there, and so does ours, which is another rule",
        r"\.grad is",
        r"(?s)saved_tensors_hooks\(lambda t: \(?t,.*out=",
        "with graph.saved_tensors_hooks(lambda t: (t, t._version), lambda t: t[0]): v = y.prod()\n"
        "with torch.no_grad(): torch.mul(d, 2, out=v)\n(v.sum() * 4 + v.sum() * 5).backward()",
        of_its_shape,
    ),
    Known(
        "`backward(inputs=[v])` runs the node of `v` in torch, also one without a derivative, which refuses; here "
        "nothing asks it",
        r"derivative for aten::floor_divide is not implemented.*this library None",
        r"inputs=\[",
        "v = f // f.half()\nv.retain_grad(); v.sum().backward(inputs=[v])",
        not_asked_itself,
    ),
    Known(
        "what `index_add` adds, written afterwards: torch saves it for its shape and refuses, here the shape is kept",
        r"(?s)torch raises .*modified by an inplace operation.*this library None",
        r"index_add\(",
        "u = y * 1\nv = u.index_add(0, i[:1] * 0, u[:1])\nu.mul_(2)\nv.sum().backward()",
        copied_sources,
    ),
    Known(
        "a hook on a view of memory that nobody has seen, written in place: in torch the gradient goes around it",
        r"hooks called: .*instead of",
        r"(?s)register_hook.*(inplace=True|\w_\()",
        "u = torch.einsum('...i,...i->...', f, f)\n"
        "u.register_hook(see('u'))\nF.elu(u, inplace=True)\nu.sum().backward()",
        copied_hidden,
    ),
    Known(
        "the base of a view of a product of letters, which in torch is hidden memory below that product",
        r"told by .*alive\(\).*\[.*True.*instead of",
        r"einsum\(",
        "u = torch.einsum('...i,...i->...', c, c)\nv = u[..., 0]\nwatch(u); del u; alive()",
        copied_products,
    ),
    Known(
        "a result that its own derivative has read and saved: the tensor itself, in torch another of the same memory",
        r"told by .*alive\(\).*\[.*True.*instead of",
        r"create_graph=True(?s:.*)alive\(\)",
        "v = y.prod()\nu, = torch.autograd.grad(v, [y], create_graph=True)\nwatch(v); del v; alive()",
        read_once,
    ),
    Known(
        "a pack hook that returns the tensor itself: in torch a result saved so is never freed",
        r"told by .*alive\(\)",
        r"saved_tensors_hooks\(lambda t: \(?t,|save_on_cpu",
        "with graph.saved_tensors_hooks(lambda t: t, lambda t: t): v = s.prod()\nwatch(v); del v; alive()",
        leaking,
    ),
    Known(
        "a checkpoint around a Function without setup_context, or around draws, in a run inside vmap: torch computes "
        "it again in there and refuses, here it is computed outside",
        r"torch raises .*(must override the setup_context|random operations inside of vmap|called random operation)",
        r"(?s)checkpoint\(.*(vmap\(|is_grads_batched)",
        "v = checkpoint(lambda t: Square.apply(t) * 2, s, use_reentrant=False)\n"
        "u = torch.vmap(lambda g: torch.autograd.grad(v, s, g, retain_graph=True)[0])("
        "torch.ones(3, dtype=torch.float64))",
    ),
    Known(
        "torch adds to a .grad that lies in the memory of the leaf itself, and so writes the leaf",
        r": \w+ is",
        r"detach\(\)",
        "v = torch.view_as_real(z)\n"
        "torch.autograd.backward([v], [v.detach()], retain_graph=True)\n(v.sum() * 2).backward()",
        through_gradient,
    ),
    Known(
        "a Function whose backward, or a checkpoint whose function, sets requires_grad or calls backward, in a run "
        "inside vmap: torch refuses, here it is called outside",
        r"torch raises .*(You are attempting to call Tensor.requires_grad_\(\)|backward\(\) called inside).*"
        r"this library None|variables \[\] instead of",
        r"(?s)(function\('[^']*(within|runs)|checkpoint\([^\n]*(slope|spent)\().*(vmap\(|is_grads_batched=True)",
        "v = function('within').apply(y)\nu = torch.vmap(lambda g: torch.autograd.grad(v, y, g, retain_graph=True)[0])("
        "torch.ones(3, 3, dtype=torch.float64))",
    ),
    Known(
        "`pairwise_distance`, which torch computes by an older norm, has the name of the newer one's node",
        r"told by .*LinalgVectorNormBackward0.*instead of.*NormBackward1",
        r"pairwise_distance\(",
        "v = F.pairwise_distance(w, w * 1)\ntell(v.grad_fn.name())",
    ),
    Known(
        "a gradient of a run that vmap batches, written through a view of it: a leaf in torch, and refused after that",
        r"torch raises RuntimeError\('a leaf Variable that requires grad.*this library None",
        r"(?s)vmap\(lambda v: torch\.autograd\.grad\(.*\.\w+_\(",
        "v = f[None]\nu = torch.vmap(lambda v: torch.autograd.grad(f[None], f, v, create_graph=True)[0])(torch.stack(["
        "torch.ones_like(v), v.detach()]))\nu[None].squeeze(0).sub_(v)\nu[i[:1] % 2] = nan",
    ),
    Known(
        "a sparse gradient of a run that vmap batches: torch has no batched kernel for it, here it is slice by slice",
        r"(?s)torch raises NotImplementedError.*'Sparse.*this library (None|.*has left its transform)",
        r"(?s)sparse.*(vmap\(|is_grads_batched=True)",
        "v = torch.gather(w, 0, i[None] * 0, sparse_grad=True)\nu = torch.vmap(lambda g: torch.autograd.grad(v, w, g, "
        "retain_graph=True)[0])(torch.ones(3, 1, 3, dtype=torch.float64))",
    ),
    Known(
        "a write to the memory of a sparse tensor that requires grad: torch fails in backward, here it is refused",
        r"(?s)(this library InplaceError|refused).*of a sparse tensor that requires grad is being modified",
        r"\.values\(\)",
        "v = (y * 2).to_sparse()\nu = v.values()\nu[0] = s",
    ),
    Known(
        "a matrix of derivatives, which in torch is one of several views, written without a record: torch refuses it",
        r"(?s)torch raises .*a function that returns multiple views.*this library (None|IndexError)",
        r"(?s)(func|functional)\.(hessian|jacrev|jacfwd|jacobian)\(.*no_grad",
        "v = func.hessian(lambda t: (t ** 3).sum() * s)(d)\nwith torch.no_grad(): v.mul_(2)\nv.sum().backward()",
        copied,
    ),
    Known(
        "a leaf with a hook of several leaves that are this one alone: torch never frees it, here it is freed",
        r"told by .*alive\(\).*instead of \[.*True",
        r"register_multi_grad_hook\(\[(\w+)(, \1)*\]",
        "v = torch.zeros(6).requires_grad_()\ngraph.register_multi_grad_hook([v, v], see_all('v'))\n"
        "watch(v); del v; collected(); alive()",
        without_hooks,
    ),
    Known(
        "the first power, as the derivative of a square: torch saves its base and refuses, here no value is read",
        r"(?s)torch raises .*modified by an inplace operation.*this library None",
        r"\*\* 3",
        "v = functional.vhp(lambda t: (t ** 3).sum(), c, torch.ones_like(c.detach()), create_graph=True)[1]\n"
        "c.mul_(2)\nv.sum().backward()",
        multiplied_out,
    ),
    Known(
        "the name of a `_foreach_` write by numbers, which in torch is that of another overload than the method's",
        r"told by .*(printed|name).*Backward0.*instead of.*Backward1",
        r"_foreach_\w+_\(",
        "v = torch.mul(d, s)\ntorch._foreach_mul_([v], 2.0)\ntell(printed(v))",
        by_method,
    ),
    Known(
        "a real view of a complex tensor, turned in place without a record: torch keeps the shape it had, and refuses",
        r"(?s)torch raises .*returned an invalid gradient at index.*this library None",
        r"view_as_real(?s:.*)no_grad\(\): \w+\.(t_|transpose_|swapaxes_|swapdims_|squeeze_|unsqueeze_)\(",
        "v = torch.view_as_real(z)\nwith torch.no_grad(): v.t_()\nv.sum().backward()",
        left_as_it_is,
    ),
    Known(
        "the name of a `linear`, which in torch is another with a bias of another layout, and the bias has gone",
        r"told by .*printed.*ViewBackward0.*instead of.*AddBackward0",
        r"F\.linear\(.*laid\(",
        "v = F.linear(y, w, laid(y, 'expanded'))\ntell(printed(v))",
        as_they_are,
    ),
    Known(
        "the last bit of matrices in an unusual layout times a vector that requires grad, which torch computes as one",
        r": v\d* is",
        r" @ |F\.linear\(",
        "v = laid(ramp(2, 2, 3, 3), 'channels') @ y",
        without_gradient,
        sometimes="the kernels of this processor agree",
    ),
    Known(
        "a .grad of zeros that have no memory in torch: infinity times them is 0",
        r"(?s)(\.grad|v\d+) is.*nan.*instead of",
        r"(?s)inf.*sgn",
        "v = function('runs').apply(x * inf, None, 'text', 3)\nv.sgn().sum().backward()",
        finite,
    ),
    Known(
        "a number that is nothing but rounding: torch eager gives another when its inputs or gradients change by that",
        r"(?s)(v\d+|\w)(\.grad)? is|hook .* saw",
        r"",
        "v1, = torch.autograd.grad(z.abs().sum() * 3, [z], create_graph=True)\n"
        "v2, = torch.autograd.grad(v1.abs().sum() * 3, [z], create_graph=True)\n"
        "v3, = torch.autograd.grad(v2.abs().sum() * 2, [v1], allow_unused=True)",
        rounding,
    ),
)


def reason_of(message: str, program: Program) -> str | None:
    """Why a difference is known, or None."""
    for known in KNOWN:
        if re.search(known.message, message.partition("--- program ---")[0]) and \
                re.search(known.program, str(program)) and known.besides(program, message):
            return known.reason
    return None
