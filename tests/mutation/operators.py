"""Small changes of a Python module, each at one place: what a slip of the pen, or a thoughtless edit, would make of it.

Words are left alone: docstrings, annotations, log lines, the text of errors, `__repr__`. So are the bodies of classes,
whose defaults are configuration and not decisions.
"""

import ast
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

COMPARE = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGS = ("log", "_log", "logger")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Node = ast.expr | ast.stmt


class Mutant(NamedTuple):
    """One change. `function`: dotted name of where it is, empty at the top of the module; `source`: of the module."""

    function: str
    operator: str
    before: str
    after: str
    nth: int
    line: int
    source: str

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What it is, wherever it stands: neither the line nor the module, so that both may move."""
        return self.function, self.operator, self.before, self.after, self.nth

    @property
    def rank(self) -> str:
        """A fixed order without order."""
        return sha256("\0".join(map(str, self.key)).encode()).hexdigest()


class _Place(NamedTuple):
    function: str
    statement: ast.stmt
    node: Node
    instead: str
    operator: str


def mutants(source: str) -> list[Mutant]:
    """All, in the order of their ranks."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found, known = [], dict[tuple[str, ...], int]()
    for place in _places(ast.parse(source)):
        changed = _replaced(source.encode(), starts, place)
        before, after = _shown(source, place), _shown(changed, place)
        same = (place.function, place.operator, before, after)
        known[same] = known.get(same, 0) + 1
        found.append(Mutant(*same, known[same], place.node.lineno, changed))
    return sorted(found, key=lambda mutant: mutant.rank)


def _replaced(source: bytes, starts: list[int], place: _Place) -> str:
    node = place.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    lines_lost = node.end_lineno - node.lineno  # kept, so that every function begins where it did
    text = place.instead if isinstance(node, ast.stmt) else f"({place.instead}{chr(10) * lines_lost})"
    after = source[end:]
    if isinstance(node, ast.stmt) and lines_lost:
        rest, _, below = after.partition(b"\n")
        after = rest + b"\n" * (lines_lost + 1) + below
    return (source[:begin] + text.encode() + after).decode()


def _shown(source: str, place: _Place) -> str:
    """The line of the change, spaces aside."""
    return " ".join(source.splitlines()[place.node.lineno - 1].split())


def _places(tree: ast.Module) -> Iterator[_Place]:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _in_function(inner, f"{statement.name}.")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_function(statement, "")
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            yield from _in_expression(statement.value, "", statement)


def _in_function(function: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> Iterator[_Place]:
    if function.name in ("__repr__", "__str__"):
        return
    name = prefix + function.name
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    for statement in body:
        yield from _in_statement(statement, name)


def _in_statement(statement: ast.stmt, name: str) -> Iterator[_Place]:
    if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
        return
    yield from _on_statement(statement, name)
    for child in ast.iter_child_nodes(statement):
        match child:
            case ast.stmt():
                yield from _in_statement(child, name)
            case ast.match_case():
                if child.guard is not None:
                    yield from _in_expression(child.guard, name, statement)
                for inner in child.body:
                    yield from _in_statement(inner, name)
            case ast.ExceptHandler():
                for inner in child.body:
                    yield from _in_statement(inner, name)
            case ast.expr() if not (isinstance(statement, ast.AnnAssign) and child is statement.annotation):
                yield from _in_expression(child, name, statement)


def _on_statement(statement: ast.stmt, name: str) -> Iterator[_Place]:
    match statement:
        case ast.Expr(value=ast.Call()) if not _is_log(statement.value):
            yield _Place(name, statement, statement, "pass", "remove call")
        case ast.AugAssign():
            yield _Place(name, statement, statement, "pass", "remove assignment")
        case ast.Continue() | ast.Break():
            yield _Place(name, statement, statement, "pass", "remove jump")
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _Place(name, statement, statement, "return None", "return nothing")
        case ast.If(test=test) | ast.While(test=test):
            yield from _forced(test, name, statement)


def _forced(test: ast.expr, name: str, statement: ast.stmt) -> Iterator[_Place]:
    for instead in ("True", "False"):
        if not (isinstance(statement, ast.While) and instead == "True"):
            yield _Place(name, statement, test, instead, f"condition {instead}")


def _in_expression(node: ast.AST, name: str, statement: ast.stmt) -> Iterator[_Place]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _is_log(node)):
        return
    if isinstance(node, ast.expr):
        yield from ((_Place(name, statement, node, instead, operator)) for operator, instead in _on(node))
    if isinstance(node, ast.IfExp):
        yield from _forced(node.test, name, statement)
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield _Place(name, statement, test, "True", "condition True")
    for child in ast.iter_child_nodes(node):
        yield from _in_expression(child, name, statement)


def _on(node: ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            for instead in COMPARE[type(operator)]:
                yield "compare", ast.unparse(ast.Compare(left, [instead()], [right]))
        case ast.Compare(left=left, ops=[first, *others], comparators=comparators):
            for instead in COMPARE[type(first)][:1]:
                yield "compare", ast.unparse(ast.Compare(left, [instead(), *others], comparators))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and, or", ast.unparse(ast.BoolOp(other, values))
            for dropped in range(len(values)):
                left = [value for place, value in enumerate(values) if place != dropped]
                yield "drop operand", ast.unparse(ast.BoolOp(op, left) if len(left) > 1 else left[0])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "drop not", ast.unparse(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "drop minus", ast.unparse(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and not _is_text(left, right):
            yield "arithmetic", ast.unparse(ast.BinOp(left, ARITHMETIC[type(op)](), right))
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int(value)):
            yield "constant", str(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", str(value * 2 or 1.0)
        case ast.Call(func=ast.Name(id=called)) if called in OPPOSITE:
            yield "opposite", ast.unparse(ast.Call(ast.Name(OPPOSITE[called]), node.args, node.keywords))


def _is_log(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in LOGS


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in operands
    )
