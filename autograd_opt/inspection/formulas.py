"""The gradient formula of an operator as text, read off the table's own source."""

from __future__ import annotations

import ast
import functools
import inspect
from types import CodeType
from typing import Any


@functools.lru_cache(maxsize=64)
def functions_in(file: str) -> dict[int, list[ast.Lambda | ast.FunctionDef]]:
    """Every lambda and function of a source file by its line."""
    found: dict[int, list[ast.Lambda | ast.FunctionDef]] = {}
    with open(file, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.FunctionDef)):
            found.setdefault(node.lineno, []).append(node)
    return found


def source_of(code: CodeType) -> ast.Lambda | ast.FunctionDef | None:
    """The syntax of a function: on its line, of its arguments, around its instructions."""
    try:
        candidates = functions_in(code.co_filename).get(code.co_firstlineno, [])
    except (OSError, SyntaxError):
        return None
    names = list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
    spots = {(line, column) for line, _, column, _ in code.co_positions() if line is not None and column is not None}
    for node in candidates:
        arguments = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        body = node.body if isinstance(node, ast.Lambda) else node.body[0]
        begin, end = (body.lineno, body.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
        if arguments == names and (isinstance(node, ast.FunctionDef) or any(begin <= s < end for s in spots)):
            return node
    return None


def formula(function: Any) -> str:
    """The formula of one rule; for a longer function its name and first line of documentation.

    >>> from autograd_opt.ops.table import OPS
    >>> formula(OPS["mul"].vjps[0].fn)
    'g * H(y)'
    """
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return str(getattr(function, "__name__", function))
    node = source_of(code)
    if isinstance(node, ast.Lambda):
        return ast.unparse(node.body)
    if isinstance(node, ast.FunctionDef) and len(node.body) == 1 and isinstance(node.body[0], ast.Return) \
            and node.body[0].value is not None:
        return ast.unparse(node.body[0].value)
    if function.__name__ == "<lambda>":
        return "(source not at hand)"
    doc = (inspect.getdoc(function) or "").partition("\n")[0]
    return f"{function.__name__}(…)" + (f": {doc}" if doc else "")


def formulas_of(op: Any) -> dict[str, str]:
    """Operand name to the formula of its cotangent; `all` for a joint rule; empty without a rule.

    >>> from autograd_opt.ops.table import OPS
    >>> formulas_of(OPS["sub"])["x"]
    'g'
    """
    if op.joint is not None:
        return {"all": formula(op.joint.fn)}
    return {name: formula(vjp.fn) for name, vjp in zip(op.operands, op.vjps, strict=False) if vjp is not None}
