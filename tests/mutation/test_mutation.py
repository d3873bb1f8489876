"""The harness of `make mutation`: what it draws, which tests it runs, and what it makes of their end."""

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="make dev brings cosmic-ray")

from tests.mutation import __main__ as program
from tests.mutation.mutants import OPERATORS, DropStatement, Mutant, Negate, changed, draw, mutants_of, sources, within
from tests.mutation.picking import KillerMap, environment, killer_map
from tests.mutation.running import HarnessBroke, Verdict, _verdict, judge
from tests.mutation.warm import Unfit, Warm

ROOT = Path(__file__).parents[2]
UNDRAWN = '''
"""Text of a module."""
from typing import TYPE_CHECKING, cast
if TYPE_CHECKING:
    x.y = 1
    from a import b
Alias = int | None
BIG = 30_000
MASK = 0x7FFF
def f(a: int | None, *, b: list[int] | None) -> str | None:
    """Text of a function: 1 + 1."""
    log.warning("%s", 1 + 1)
    c: int | None
    d = f"{1 + 1}"
    e = isinstance(a, int | Name)
    raise Error("m", hint=1 + 1)
def __repr__(self):
    return 1 + 1
'''


@pytest.mark.parametrize("operator", [DropStatement, Negate])
def test_our_operators_do_what_their_examples_say(operator: type[DropStatement | Negate]) -> None:
    for number, example in enumerate(operator.examples()):
        mutant = Mutant("p", operator.__name__, 0, 1, 0, (1, 1), False)
        assert mutant.of(example.pre_mutation_code) == example.post_mutation_code, number


def test_types_texts_and_log_lines_are_not_drawn() -> None:
    found, left_out = mutants_of("p", UNDRAWN)
    assert found == []
    assert left_out.total() > 0
    assert {"types", "text", "log lines"} < set(left_out)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("a.b = c", {"pass"}),
        ("a.b(c)", {"pass"}),
        ("await a.b(c)", {"pass"}),
        ("a = b", set()),
        ("a = b < c", {"a = b <= c", "a = b >= c"}),
        ("a = b is None", {"a = b is not None"}),
        ("a = 3", {"a = 4", "a = 2"}),
        ("a = b | c", {"a = b & c"}),
        ("if a and b: c = d", {"if not (a and b): c = d", "if a or b: c = d"}),
    ],
)
def test_a_line_has_these_mutants(line: str, wanted: set[str]) -> None:
    found, _ = mutants_of("p", f"{line}\n")
    got = {" ".join(mutant.of(f"{line}\n").split()) for mutant in found}
    assert got == wanted


@pytest.mark.full
def test_what_is_drawn_compiles_and_differs_and_is_drawn_again_by_the_same_seed() -> None:
    drawn, sites, _ = draw(ROOT, 5, 12)
    assert sites > 1000
    assert len({(mutant.path, mutant.line, mutant.column) for mutant in drawn}) == 12
    for mutant in drawn:
        source = (ROOT / mutant.path).read_text()
        mutated = mutant.of(source)
        compile(mutated, mutant.path, "exec")
        before, after = changed(source, mutated)
        assert before != after
        assert mutant.lines[0] <= mutant.line <= mutant.lines[1]
    assert draw(ROOT, 5, 6)[0] == drawn[:6]
    assert draw(ROOT, 6, 12)[0] != drawn


def test_the_list_of_sources_has_the_balance_core_and_no_exporters() -> None:
    found = sources(ROOT)
    assert "assignors/balance_py.py" in found
    assert "coordinator_client/consumer_core.py" in found
    assert not any(path.startswith("coordinator_client/exporting/") for path in found)


def mutant(line: int, *, at_import: bool = False) -> Mutant:
    return Mutant("coordinator_client/x.py", "Negate", 0, line, 0, (line, line), at_import)


SECONDS = {
    "t/test_a.py::slow": 5.0,
    "t/test_a.py::p[1]": 0.1,
    "t/test_a.py::p[2]": 0.1,
    "t/test_x.py::b": 0.2,
    "t/test_p.py::starts": 0.3,
    "t/test_q.py::other": 0.1,
}
MAP = KillerMap(
    {
        "coordinator_client/x.py": {
            3: ["t/test_a.py::p[1]", "t/test_a.py::p[2]", "t/test_a.py::slow", "t/test_x.py::b"],
            4: ["", "t/test_a.py::p[1]"],
            5: [],
            6: ["t/test_x.py::b"],
        }
    },
    SECONDS,
    frozenset({"t/test_p.py"}),
)


def test_tests_that_run_the_line_come_first_those_of_its_name_before_others() -> None:
    first, then = MAP.order(mutant(3), everything=False)
    assert first == ["t/test_x.py::b", "t/test_a.py::p[2]", "t/test_a.py::slow", "t/test_a.py::p[1]"]
    assert then == ["t/test_p.py::starts"]


@pytest.mark.parametrize(("line", "at_import", "everything"), [(3, True, False), (4, False, False), (3, False, True)])
def test_any_test_may_kill_what_runs_on_import(line: int, at_import: bool, everything: bool) -> None:
    first, then = MAP.order(mutant(line, at_import=at_import), everything=everything)
    assert sorted([*first, *then]) == sorted(SECONDS)


def test_no_test_is_left_for_a_line_that_none_runs_but_those_that_start_processes() -> None:
    first, then = MAP.order(mutant(5), everything=False)
    assert "t/test_p.py::starts" in then
    assert "t/test_q.py::other" not in [*first, *then]


@pytest.mark.parametrize(
    ("code", "output", "wanted"),
    [
        (0, "", Verdict("survived")),
        (1, "FAILED tests/a/test_b.py::test_c[x y] - Error", Verdict("killed", "tests/a/test_b.py::test_c[x y]")),
        (2, "ERROR tests/a/test_b.py", Verdict("killed", "tests/a/test_b.py")),
        (1, "+++++ Timeout +++++", Verdict("timed out", "a test")),
        (1, "MemoryError", Verdict("timed out", "memory of 6 GiB")),
        (-11, "", Verdict("killed", "the interpreter or the import of conftest")),
        (4, "ImportError while loading conftest", Verdict("killed", "the interpreter or the import of conftest")),
    ],
)
def test_what_the_end_of_pytest_says(code: int, output: str, wanted: Verdict) -> None:
    assert _verdict(code, output) == wanted


@pytest.mark.parametrize(("code", "output"), [(4, "unrecognized arguments"), (5, "no tests ran"), (3, "INTERNALERROR")])
def test_a_harness_that_broke_kills_nothing(code: int, output: str) -> None:
    with pytest.raises(HarnessBroke):
        _verdict(code, output)


SOURCE = "def least(a, b):\n    return a if a < b else b\n"
TEST = """
from coordinator_client.x import least

def test_least():
    assert least(1, 2) == 1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one source, one test and the plugin."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\nmarkers = ['broker']\n")
    for path, text in {"coordinator_client/x.py": SOURCE, "tests/coordinator_client/test_x.py": TEST}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "tests/mutation").mkdir()
    for name in ("plugin.py", "warm.py", "scope.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path / "tests/mutation")
    return tmp_path


@pytest.fixture
def warm(tree: Path) -> Iterator[Warm]:
    with contextlib.closing(Warm(tree, environment(tree), ["tests"])) as started:
        yield started


@pytest.mark.parametrize(
    "is_warm", [pytest.param(False, marks=pytest.mark.full, id="cold"), pytest.param(True, id="warm")]
)
def test_mutants_are_killed_or_survive_and_the_source_is_as_it_was(
    is_warm: bool, tree: Path, request: pytest.FixtureRequest
) -> None:
    warm = request.getfixturevalue("warm") if is_warm else None
    test = "tests/coordinator_client/test_x.py::test_least"
    tests = KillerMap({"coordinator_client/x.py": {2: [test]}}, {test: 0.1}, frozenset())
    found, _ = mutants_of("coordinator_client/x.py", SOURCE)
    verdicts = {}
    for each in found:
        after = changed(SOURCE, each.of(SOURCE))[1]
        verdicts[after] = judge(tree, each, tests, everything=False, warm=warm)._replace(seconds=0)
        assert (tree / "coordinator_client/x.py").read_text() == SOURCE
    assert verdicts == {
        "return a if a <= b else b": Verdict("survived"),
        "return a if a >= b else b": Verdict("killed", test),
        "return a if not (a < b) else b": Verdict("killed", test),
    }
    assert judge(tree, found[-1], tests, everything=False, mutated=False, warm=warm).outcome == "survived"


NESTED = """
def outer(a):
    class Inner:
        def twice(self):
            return [each * 2 for each in a]
    return Inner().twice()


class Odd:
    size = property(lambda self: 1 + 1)

    def drop(self, log):
        log.append(
            1
        )

    def after(self):
        return 4 + 4
"""
NESTED_TEST = """
from coordinator_client.x import Odd, outer

def test_outer():
    assert outer([3]) == [6]

def test_size():
    assert Odd().size == 2

def test_drop():
    log = []
    Odd().drop(log)
    assert log == [1]

def test_after():
    assert Odd().after() == 8
"""


@pytest.mark.parametrize(
    ("before", "after", "killer"),
    [
        ("each * 2", "each * 3", "outer"),
        ("1 + 1", "1 - 1", "size"),
        ("log.append(\n            1\n        )", "pass", "drop"),
        ("4 + 4", "4 - 4", "after"),
    ],
)
def test_a_warm_process_mutates_functions_wherever_they_are(before: str, after: str, killer: str, tree: Path) -> None:
    (tree / "coordinator_client/x.py").write_text(NESTED)
    (tree / "tests/coordinator_client/test_x.py").write_text(NESTED_TEST)
    tests = [f"tests/coordinator_client/test_x.py::test_{name}" for name in ("outer", "size", "drop", "after")]
    with contextlib.closing(Warm(tree, environment(tree), ["tests"])) as warm:
        mutated = NESTED.replace(before, after)
        assert mutated != NESTED
        found = warm.run(tree / "coordinator_client/x.py", NESTED, mutated, tests, [30.0] * 4)
        assert found == ("killed", f"tests/coordinator_client/test_x.py::test_{killer}")
        assert warm.run(tree / "coordinator_client/x.py", NESTED, NESTED, tests, [30.0] * 4) == ("survived", "")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("import os\n    os._exit(0)", "killed"),
        ("import time\n    time.sleep(60)", "timed out"),
        ("raise MemoryError", "timed out"),
        ("raise KeyboardInterrupt", "killed"),
    ],
)
def test_a_warm_process_outlives_what_a_mutant_does(body: str, wanted: str, tree: Path, warm: Warm) -> None:
    path, test = tree / "coordinator_client/x.py", "tests/coordinator_client/test_x.py::test_least"
    mutated = f"def least(a, b):\n    {body}\n"
    assert warm.run(path, SOURCE, mutated, [test], [1.0])[0] == wanted
    assert warm.run(path, SOURCE, SOURCE, [test], [30.0]) == ("survived", "")


def test_code_that_no_function_runs_needs_a_process_of_its_own(tree: Path, warm: Warm) -> None:
    with pytest.raises(Unfit):
        warm.run(tree / "coordinator_client/x.py", SOURCE, f"{SOURCE}x = 1\n", [], [])


@pytest.mark.full
def test_the_map_is_made_again_for_changed_tests_only(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    first = killer_map(tree, out)
    test = "tests/coordinator_client/test_x.py::test_least"
    assert first.lines["coordinator_client/x.py"][2] == [test]
    other = tree / "tests/coordinator_client/test_y.py"
    other.write_text("from coordinator_client.x import least\n\ndef test_y():\n    assert least(2, 1) == 1\n")
    (out / "durations.json").unlink()
    second = killer_map(tree, out)
    assert second.lines["coordinator_client/x.py"][2] == [test, "tests/coordinator_client/test_y.py::test_y"]
    assert second.seconds[test] == first.seconds[test]
    assert test not in json.loads((out / "durations.json").read_text())
    other.unlink()
    assert killer_map(tree, out).lines["coordinator_client/x.py"][2] == [test]


def test_a_test_that_fails_once_is_no_killer(tree: Path) -> None:
    test = tree / "tests/coordinator_client/test_x.py"
    test.write_text(
        "from pathlib import Path\n\ndef test_once():\n    seen = Path('seen')\n"
        "    had, _ = seen.exists(), seen.touch()\n    assert had\n"
    )
    name = "tests/coordinator_client/test_x.py::test_once"
    tests = KillerMap({"coordinator_client/x.py": {2: [name]}}, {name: 0.1}, frozenset())
    found, _ = mutants_of("coordinator_client/x.py", SOURCE)
    assert judge(tree, found[0], tests, everything=False).outcome == "survived"
    assert (tree / "seen").exists()


def test_a_session_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def knows(session: program._Session, one: Mutant, everything: bool, *, explained: bool = False) -> bool:
        return session.knows(one, everything, lambda _one: explained)

    killed, survived = mutant(3), mutant(6)._replace(occurrence=1)
    session = program._Session(tmp_path / "s", "tests")
    session.add(killed, Verdict("killed", "t"), False)
    session.add(survived, Verdict("survived"), False)
    again = program._Session(tmp_path / "s", "tests")
    assert knows(again, killed, True)
    assert knows(again, survived, False)
    assert not knows(again, survived, True)
    assert not knows(again, mutant(6)._replace(occurrence=2), False)
    with_other_tests = program._Session(tmp_path / "s", "other tests")
    assert knows(with_other_tests, killed, False)
    assert not knows(with_other_tests, survived, False)
    assert knows(with_other_tests, survived, False, explained=True)
    assert not knows(with_other_tests, survived, True, explained=True)


@pytest.mark.parametrize(
    ("killed", "explained", "code"), [(24, True, 0), (24, False, 1), (22, True, 1)], ids=["good", "unexplained", "few"]
)
def test_a_survivor_without_an_explanation_fails_and_so_does_a_low_rate(
    killed: int,
    explained: bool,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = "network/backoff.py"
    drawn = [*mutants_of(path, (ROOT / path).read_text())[0][:25]]
    session = program._Session(tmp_path / "s", "tests")
    rows = []
    for number, each in enumerate(drawn):
        session.add(each, Verdict("killed" if number < killed else "survived"), False)
        if number >= killed and explained:
            path, place, before, after = program._name(each)
            rows.append(
                f"[[survivor]]\npath = {path!r}\nwithin = {place!r}\nbefore = {json.dumps(before)}\n"
                f"after = {json.dumps(after)}\n"
                "why = 'equal'\n"
            )
    (tmp_path / "survivors.toml").write_text("\n".join(rows))
    monkeypatch.setattr(program, "EXPLAINED", tmp_path / "survivors.toml")
    assert program._report(drawn, session, Counter()) == code
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"25 mutants, {killed} killed ({killed / 25:.1%}), 0 of")


def test_explanations_are_of_one_line_and_name_what_is_there() -> None:
    for (path, _, before, _), why in program.explanations().items():
        assert why
        assert "\n" not in why
        assert before.splitlines()[0] in [line.strip() for line in (ROOT / path).read_text().splitlines()], before


def test_a_line_is_known_by_the_function_that_it_is_in() -> None:
    lines = (
        "a = 1",
        "",
        "class B:",
        "    c = 2",
        "    def d(self):",
        "        if c:",
        "            def e():",
        "                return 1",
    )
    source = "\n".join(lines)
    assert [within(source, line) for line in (1, 4, 6, 8)] == ["", "B", "B.d", "B.d.e"]


def test_operators_have_one_name_each() -> None:
    assert len(OPERATORS) == len({type(operator).__name__ for operator in OPERATORS.values()})
