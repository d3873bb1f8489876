"""Error codes are written by name (`ErrorCode`), wherever the syntax tree shows that a number is one."""

import ast
from collections.abc import Iterator, Mapping

import pytest

from kohort.protocol.errors import ErrorCode
from tests.house.test_house import ROOT
from tests.house.test_names_and_prose import modules

OTHER_CODES = {
    "common/foreign_text.py": "characters",
    "network/auth/oauth_tokens.py": "HTTP",
    "network/transport.py": "the system's errors",
    "protocol/errors.py": "the table itself",
}
"""Files with numbers by such names that are no codes of Kafka's."""


def is_number(node: ast.AST | None) -> bool:
    """A bare number that is an error code; 0 is no error."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0


def numbers(node: ast.AST | None) -> bool:
    """A bare number, or a collection or a table with one for a member or a key."""
    match node:
        case ast.Tuple(elts=members) | ast.Set(elts=members) | ast.List(elts=members):
            return any(map(is_number, members))
        case ast.Dict(keys=keys):
            return any(map(is_number, keys))
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "MappingProxyType"), args=[inner, *_]):
            return numbers(inner)
        case _:
            return is_number(node)


def is_code(node: ast.AST) -> bool:
    """An expression that by its name is an error code."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "code" or name.endswith(("error_code", "_code"))
        case ast.Call(func=func):
            return is_code(func)
        case _:
            return False


def constants(tree: ast.Module) -> Mapping[str, ast.AST]:
    """The values of a module's constants by name."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is not None:
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                found[name] = value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                found |= {one.id: each for one, each in zip(names, values, strict=True) if isinstance(one, ast.Name)}
    return found


def bare_codes(tree: ast.Module) -> Iterator[int]:
    """The lines with an error code as a number."""
    known = constants(tree)

    def bare(node: ast.AST | None) -> bool:
        return numbers(known.get(node.id) if isinstance(node, ast.Name) else node)

    for name, value in known.items():
        if name in ErrorCode.__members__ and is_number(value):
            yield value.lineno  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(map(is_code, sides)) and any(map(bare, sides)):
                    yield node.lineno
            case ast.Call(func=ast.Name(id="BrokerError"), args=[first, *_]) if bare(first):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=table, attr="get" | "intersection"), args=[key, *_]):
                if is_code(key) and bare(table):
                    yield node.lineno
            case ast.Subscript(value=table, slice=key) if is_code(key) and bare(table):
                yield node.lineno
            case ast.keyword(arg=str(name), value=value) if name.endswith("error_code") and bare(value):
                yield value.lineno
            case ast.MatchValue(value=value) if is_number(value):
                yield value.lineno


def test_error_codes_have_names() -> None:
    found = {
        f"{place}:{line}"
        for path in modules()
        if (place := path.relative_to(ROOT).as_posix()) not in OTHER_CODES
        for line in bare_codes(ast.parse(path.read_text()))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        "if answer.error_code == 16: pass",
        "if code in (22, 25): pass",
        "GONE = frozenset({22, 25})\nif one.error_code in GONE: pass",
        "TABLE = {-1: 'a', 16: 'b'}\nTABLE.get(code)",
        "TABLE: dict[int, str] = {16: 'b'}\nTABLE[found.error_code]",
        "NOT_COORDINATOR = 16",
        "NOT_COORDINATOR, NONE = 16, 0",
        "Response(error_code=16)",
        "raise BrokerError(16, api='x')",
    ],
)
def test_a_number_is_seen(text: str) -> None:
    assert list(bare_codes(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["if answer.error_code == 0: pass", "if code in (ErrorCode.NOT_COORDINATOR, 0): pass", "Response(error_code=0)"],
)
def test_a_name_and_no_error_pass(text: str) -> None:
    assert not list(bare_codes(ast.parse(text)))
