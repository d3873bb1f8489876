"""Small faults in sources, by cosmic-ray's operators; each is a function of the source and of four fields.

A *site* is one place in a source. An operator may change a site in several ways. A draw takes one way of each site, so
that an operator with many ways has no more weight than another.
"""

import ast
import difflib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cosmic_ray.plugins
import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.boolean_replacer import AddNot
from cosmic_ray.operators.operator import Example, Operator

from tests.mutation.scope import SOURCES

LARGEST_NUMBER = 16
_COMPARISONS = (
    "Lt_LtE",
    "Lt_GtE",
    "LtE_Lt",
    "LtE_Gt",
    "Gt_GtE",
    "Gt_LtE",
    "GtE_Gt",
    "GtE_Lt",
    "Eq_NotEq",
    "NotEq_Eq",
    "Is_IsNot",
    "IsNot_Is",
)
_BINARIES = (
    "Add_Sub",
    "Sub_Add",
    "Mul_FloorDiv",
    "FloorDiv_Mul",
    "Div_Mul",
    "Mod_FloorDiv",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
    "BitXor_BitOr",
    "LShift_RShift",
    "RShift_LShift",
)
_OTHERS = (
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "NumberReplacer",
    "ExceptionReplacer",
    "ZeroIterationForLoop",
)
_LOGGERS = frozenset({"log", "_log", "logger"})
_SHOWN_ONLY = frozenset({"__repr__", "__str__"})


class DropStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Leaves out a call whose value is not used, an assignment to an attribute or an item, or a `del`.

    cosmic-ray has no such operator, and a forgotten step is the fault that state machines suffer most.
    """

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if node.type == "simple_stmt" and self._has_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        dropped = node.children[0]
        node.children[0] = parso.python.tree.Keyword("pass", dropped.start_pos, dropped.get_first_leaf().prefix)
        return node

    @staticmethod
    def _has_effect(statement: Any) -> bool:
        if statement.type == "expr_stmt":
            target = statement.children[0]
            return bool(target.type == "atom_expr" and target.children[-1].type == "trailer")
        if statement.type == "atom_expr":
            last = statement.children[-1]
            return bool(last.type == "trailer" and last.children[0].value == "(")
        return bool(statement.type == "del_stmt")

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (
            Example("f(x)\n", "pass\n"),
            Example("a.b = 1\n", "pass\n"),
            Example("a[0] += 1\n", "pass\n"),
            Example("del a[0]\n", "pass\n"),
        )


class Negate(AddNot):  # type: ignore[misc]  # cosmic-ray has no types
    """cosmic-ray's AddNot with parentheses: without them it negates the first operand of `a and b` only."""

    def mutate(self, node: Any, index: int) -> Any:
        at = 2 if node.type == "test" else 1
        node.children[at] = get_ast(f" not ({node.children[at].get_code().strip()})")
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (
            Example("if a and b: pass", "if not (a and b): pass"),
            Example("if a := b: pass", "if not (a := b): pass"),
            Example("while a: pass", "while not (a): pass"),
            Example("x = a if b else c", "x = a if not (b) else c"),
        )


def operators() -> dict[str, Operator]:
    """By name, in a fixed order."""
    names = [f"ReplaceComparisonOperator_{each}" for each in _COMPARISONS]
    names += [f"ReplaceBinaryOperator_{each}" for each in _BINARIES]
    names += _OTHERS
    found: dict[str, Operator] = {name: cosmic_ray.plugins.get_operator(f"core/{name}")() for name in names}
    return {**found, "Negate": Negate(), "DropStatement": DropStatement()}


class Mutant(NamedTuple):
    """One fault: the `occurrence`-th place, in the order of the source, where `operator` can change `path`.

    `line`, `column`: the site, from 1 and from 0. `lines`: first and last line of the statement, of a compound
    statement's head. `at_import`: the code runs when its module is imported.
    """

    path: str
    operator: str
    occurrence: int
    line: int
    column: int
    lines: tuple[int, int]
    at_import: bool

    def of(self, source: str) -> str:
        """The mutated source."""
        mutated = mutate_code(source, OPERATORS[self.operator], self.occurrence)
        assert isinstance(mutated, str)
        return mutated


OPERATORS = operators()


def sources(root: Path) -> list[str]:
    """Paths below `root`, sorted."""
    return sorted(str(path.relative_to(root)) for pattern in SOURCES for path in root.glob(pattern))


@cache
def mutants_of(path: str, source: str) -> tuple[Sequence[Mutant], Counter[str]]:
    """All mutants of a source, and how many are not drawn by rule: equivalent, or of text and types only."""
    places = _Places(source)
    nodes = list(ast_nodes(get_ast(source)))
    found: list[Mutant] = []
    left_out: Counter[str] = Counter()
    for name, operator in OPERATORS.items():
        positions = [at for node in nodes for at in operator.mutation_positions(node)]
        for occurrence, ((line, column), end) in enumerate(positions):
            rule = places.rule(name, (line, column), end)
            if rule:
                left_out[rule] += 1
            else:
                lines, at_import = places.statement((line, column))
                found.append(Mutant(path, name, occurrence, line, column, lines, at_import))
    return found, left_out


def draw(root: Path, seed: int, count: int) -> tuple[list[Mutant], int, Counter[str]]:
    """`count` mutants of different sites, how many sites there are, and what is left out by rule."""
    sites: dict[tuple[str, int, int], list[Mutant]] = {}
    left_out: Counter[str] = Counter()
    for path in sources(root):
        found, without = mutants_of(path, (root / path).read_text())
        left_out += without
        for mutant in found:
            sites.setdefault((mutant.path, mutant.line, mutant.column), []).append(mutant)
    chance = random.Random(seed)
    places = sorted(sites)
    chance.shuffle(places)
    return [chance.choice(sites[place]) for place in places[:count]], len(places), left_out


def diff(path: str, before: str, after: str) -> str:
    """The unified diff with two lines around."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="", n=2)
    return "\n".join(lines)


def changed(before: str, after: str) -> tuple[str, str]:
    """The changed lines as they were and as they are, stripped: a name for a mutant that outlives moved lines."""
    pieces: tuple[list[str], list[str]] = [], []
    for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]:
        if line[0] in "-+":
            pieces[line[0] == "+"].append(line[1:].strip())
    return "\n".join(pieces[0]), "\n".join(pieces[1])


def within(source: str, line: int) -> str:
    """The dotted name of the innermost function or class that has the line; empty for a module's own."""
    found, body = [], ast.parse(source).body
    while inner := next((node for node in body if node.lineno <= line <= (node.end_lineno or 0)), None):
        if isinstance(node := inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        body = [each for each in ast.iter_child_nodes(inner) if isinstance(each, ast.stmt)]
    return ".".join(found)


_Spot = tuple[int, int]
"""Line from 1 and column from 0."""


class _Places:
    """The positions in a source, from Python's own parser."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._statements: list[tuple[_Spot, _Spot, int]] = []  # where it starts and ends, and its head's last line
        self._bodies: list[tuple[_Spot, _Spot]] = []
        self._rules: list[tuple[str, _Spot, _Spot]] = []
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                head = max(node.lineno, body[0].lineno - 1) if body else _end(node)[0]
                self._statements.append((_start(node), _end(node), head))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._bodies.append((_start(node.body[0]), _end(node)))
            self._rules += [(rule, _start(part), _end(part)) for rule, part in _by_rule(node)]

    def rule(self, operator: str, start: _Spot, end: _Spot) -> str:
        """The rule by which a place is not drawn, or nothing."""
        for rule, first, last in self._rules:
            if first <= start < last:
                return rule
        if self._lines[start[0] - 1][start[1] : end[1] + 1] == "*,":  # of a signature
            return "types"
        if operator == "NumberReplacer":
            number = ast.literal_eval(self._lines[start[0] - 1][start[1] : end[1]])
            if abs(number) > LARGEST_NUMBER:
                return f"a number above {LARGEST_NUMBER}, which 1 more or less does not make wrong"
        return ""

    def statement(self, spot: _Spot) -> tuple[tuple[int, int], bool]:
        """The lines of the innermost statement (of a compound one its head), and whether it runs on import."""
        start, _, head = max(each for each in self._statements if each[0] <= spot < each[1])
        lines = (start[0], head) if spot[0] <= head else (spot[0], spot[0])  # an `except` or a `case` has its own
        return lines, not any(first <= spot < end for first, end in self._bodies)


def _start(node: Any) -> _Spot:
    decorators = getattr(node, "decorator_list", None)
    return (decorators[0].lineno, 0) if decorators else (node.lineno, node.col_offset)


def _end(node: Any) -> _Spot:
    return node.end_lineno, node.end_col_offset


def _by_rule(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Parts of a node that are not drawn, each with its rule."""
    match node:
        case ast.arg(annotation=ast.expr() as part) | ast.AnnAssign(annotation=part):
            yield "types", part
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if node.returns:
                yield "types", node.returns
            if node.name in _SHOWN_ONLY:
                yield "text", node
        case ast.BinOp(op=ast.BitOr()) if _is_type(node.left) and _is_type(node.right):
            yield "types", node
        case ast.MatchOr():
            yield "patterns, which take no other operator", node
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            yield "types", node
        case ast.Call(func=ast.Name(id="cast" | "TypeVar")):
            yield "types", node
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in _LOGGERS:
            yield "log lines", node
        case ast.JoinedStr():
            yield "text", node
        case ast.keyword(arg="hint"):
            yield "text", node.value


def _is_type(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=None):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name[0].isupper() or name in ("int", "str", "bytes", "float", "bool", "object")
        case ast.Subscript(value=ast.Name(id=name)):
            return name[0].isupper() or name in ("list", "dict", "set", "frozenset", "tuple", "type")
        case ast.BinOp(op=ast.BitOr()):
            return _is_type(node.left) and _is_type(node.right)
    return False
