"""Mutants of a module: places in its syntax tree, each with a replacement."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

SWAPPED_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
SWAPPED_NAMES = {"min": "max", "argmin": "argmax", "minimum": "maximum", "any": "all", "floor": "ceil"}
SWAPPED_NAMES |= {other: name for name, other in SWAPPED_NAMES.items()}
# What a person reads: nobody should have to test how it is put.
UNREAD_FUNCTIONS = {"__repr__", "__str__", "extra_repr"}
TEXT = (ast.JoinedStr, ast.FormattedValue)
# With their first arguments swapped these fail whatever they are given, or give the same: nothing to test.
UNSWAPPED = {"isinstance", "issubclass", "hasattr", "getattr", "setattr", "map", "filter"}
UNSWAPPED |= {"min", "max", "minimum", "maximum", "hypot", "array_equal", "logical_and", "logical_or", "gcd"}
Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One small bug.

    Args:
        file: of the module, as text that names it.
        start, end: the bytes of it that are replaced.
        new: by what.
        line: where that is.
        function: the first line of the function around it, decorators included; None outside of functions.
        before, after: the lines of that place, without and with the bug, white space apart.
    """

    file: str
    start: int
    end: int
    new: str
    line: int
    function: int | None
    before: str
    after: str

    @property
    def key(self) -> str:
        """Return a key that stays the same when the place moves within the file."""
        return f"{self.file}: {self.before} -> {self.after}"

    def planted(self, source: bytes) -> bytes:
        """Return the module with the bug."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def is_one(self, source: bytes) -> bool:
        """Return whether it compiles to other code than the module."""
        try:
            return ast.dump(ast.parse(self.planted(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Return the mutants of a module, in order, no two with the same key."""
    found: dict[str, Mutant] = {}
    lines = source.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    for node, function, new in _changes(ast.parse(source), None):
        if node.end_lineno is None or node.end_col_offset is None:
            continue
        first, last = begins[node.lineno - 1], begins[node.end_lineno]
        start, end = first + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset
        around = source[first:start], source[end:last]
        before, after = (
            " ".join((around[0] + part + around[1]).decode().split()) for part in (source[start:end], new.encode())
        )
        mutant = Mutant(file, start, end, new, node.lineno, function, before, after)
        found.setdefault(mutant.key, mutant)
    return list(found.values())


def function_at(source: bytes, line: int) -> int | None:
    """Return the first line of the innermost function around a line; None outside of functions."""
    around = [node for node in ast.walk(ast.parse(source)) if isinstance(node, Functions)
              and _first_line(node) <= line <= (node.end_lineno or 0)]  # fmt: skip
    return max(map(_first_line, around), default=None)


def _first_line(function: Functions) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


Change = tuple[ast.expr | ast.stmt, int | None, str]


def _changes(node: ast.AST, function: int | None) -> Iterator[Change]:
    """Yield the nodes within `node`, the function each is in, and its replacement."""
    if isinstance(node, Functions):
        if node.name in UNREAD_FUNCTIONS:
            return
        function = _first_line(node)
        yield from ((statement, function, "pass") for statement in _removable(node))
    for child in _children(node):
        yield from ((changed, function, text) for changed, text in _replacements(child))
        yield from _changes(child, function)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children to visit: not docstrings and annotations."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_unread(child):
                yield child


def _is_unread(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "warnings"))):
            return True
        case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "ParamSpec" | "field")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "log")]):
            return True
        case ast.keyword(arg="strict"):  # of zip: a guard against our own mistakes
            return True
    return False


def _replacements(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the replacements of one node, or of a part of it."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                ops = [*node.ops]
                ops[index] = SWAPPED_OPERATORS[type(operator)]()  # type: ignore[call-overload]
                yield node, _text(node, ops=ops)
        case ast.BinOp() if type(node.op) in SWAPPED_OPERATORS and not _joins_text(node):
            yield node, _text(node, op=SWAPPED_OPERATORS[type(node.op)]())
        case ast.BoolOp():
            yield node, _text(node, op=SWAPPED_OPERATORS[type(node.op)]())
        case ast.AugAssign() if type(node.op) in SWAPPED_OPERATORS:
            yield node, ast.unparse(_with(node, op=SWAPPED_OPERATORS[type(node.op)]()))
        case ast.UnaryOp(op=ast.Not()):
            yield node, f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool()):
            yield node, repr(not node.value)
        case ast.Constant(value=int()):
            yield node, repr(int(node.value) + 1)  # type: ignore[arg-type]
        case ast.Constant(value=float()):
            yield node, repr(2 * float(node.value) or 1.0)  # type: ignore[arg-type]
        case ast.Name(id=name) if name in SWAPPED_NAMES and isinstance(node.ctx, ast.Load):
            yield node, SWAPPED_NAMES[name]
        case ast.Attribute(attr=name) if name in SWAPPED_NAMES and isinstance(node.ctx, ast.Load):
            yield node, ast.unparse(_with(node, attr=SWAPPED_NAMES[name]))
        case ast.Return() if not (node.value is None or isinstance(node.value, ast.Constant)):
            yield node, "return None"
        case ast.Call(args=[first, second, *rest], func=called) if _name(called) not in UNSWAPPED:
            if not any(isinstance(argument, ast.Starred | ast.JoinedStr) for argument in (first, second)):
                yield node, ast.unparse(_with(node, args=[second, first, *rest]))
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper, step=None)):
            further = ast.BinOp(lower, ast.Add(), ast.Constant(1)) if lower else ast.Constant(1)
            yield node, ast.unparse(_with(node, slice=ast.Slice(further, upper)))
            if upper:
                yield (
                    node,
                    ast.unparse(_with(node, slice=ast.Slice(lower, ast.BinOp(upper, ast.Sub(), ast.Constant(1))))),
                )


def _removable(function: Functions) -> Iterator[ast.stmt]:
    """Yield calls, and assignments to names that have a value before: without one, every later use would fail."""
    arguments = function.args
    known = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for statement in sorted(_own_statements(function), key=lambda found: found.lineno):
        match statement:
            case ast.Expr(value=ast.Call()) if not _is_unread(statement.value):
                yield statement
            case ast.AugAssign():
                yield statement
            case ast.Assign(targets=targets):
                names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
                stored = {name for name in names if any(_stores(target, name) for target in targets)}
                if not stored or stored <= known:
                    yield statement
                known |= stored


def _own_statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, Functions | ast.ClassDef | ast.expr):
            yield from _own_statements(child)


def _stores(target: ast.expr, name: str) -> bool:
    nodes = [node for node in ast.walk(target) if isinstance(node, ast.Name) and node.id == name]
    return any(isinstance(node.ctx, ast.Store) for node in nodes)


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _joins_text(node: ast.BinOp) -> bool:
    """Return whether texts or paths may be joined."""
    sides = [side for side in ast.walk(node) if isinstance(side, ast.expr)]
    return any(isinstance(side, TEXT) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
               for side in sides)  # fmt: skip


def _text(node: ast.expr, **changes: object) -> str:
    """Return an expression, changed, as source that can stand wherever it stood."""
    return f"({ast.unparse(_with(node, **changes))})"


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
