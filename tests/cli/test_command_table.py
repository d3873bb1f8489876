"""The `kohort` command: it lists without importing, says errors in one line, and loads one command only."""

import os
import subprocess
import sys
import types

import pytest

from kohort.cli import main as cli
from kohort.cli.commands import COMMANDS, CommandEntry, available
from kohort.common.errors import KohortError


def run(
    *arguments: str, code: str = "import sys; from kohort.cli.main import main; sys.exit(main())"
) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A command named `probe` whose app a test fills in."""
    module = types.ModuleType("probe_command")
    module.__spec__ = types.SimpleNamespace(name="probe_command")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "probe_command", module)
    monkeypatch.setitem(COMMANDS, "probe", CommandEntry("probe_command", "Probes."))
    return module


def test_help_lists_every_command_that_is_there_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "broker" in available()
    for name, entry in available().items():
        assert f"  {name}" in out
        assert entry.about in out


def test_help_imports_no_command_and_no_extra() -> None:
    code = (
        "import sys; from kohort.cli.commands import COMMANDS; from kohort.cli.main import main; main(['--help']);"
        "commands = {entry.module for entry in COMMANDS.values()};"
        "print(sorted(n for n in sys.modules if n in commands or n.startswith(('typer', 'rich', 'kohort.testing'))))"
    )
    exit_code, out, err = run(code=code)
    assert (exit_code, err) == (0, "")
    assert out.splitlines()[-1] == "[]"


def test_command_without_a_module_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "ghost", CommandEntry("kohort.cli.ghost_of_a_command", "Haunts."))
    assert cli.main([]) == 0
    assert "ghost" not in capsys.readouterr().out
    assert cli.main(["ghost"]) == 2


def test_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["brokr"]) == 2
    assert capsys.readouterr().err == "kohort: error: no command 'brokr'; did you mean 'broker'?\n"


def test_our_errors_are_one_line_and_a_traceback_only_with_debug(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def app(args: list[str], prog_name: str, **settings: object) -> None:
        raise KohortError("it broke", hint="mend it", topic="t")

    command.app = app  # type: ignore[attr-defined]
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "kohort: error: it broke (topic=t); mend it\n"
    with pytest.raises(KohortError, match="it broke"):
        cli.main(["probe", "--debug"])


def test_arguments_and_exit_code_pass_through(command: types.ModuleType) -> None:
    seen: list[tuple[list[str], str]] = []

    def app(args: list[str], prog_name: str, **settings: object) -> None:
        seen.append((args, prog_name))
        sys.exit(5)

    command.app = app  # type: ignore[attr-defined]
    assert cli.main(["probe", "a", "--b"]) == 5
    assert seen == [(["a", "--b"], "kohort probe")]


def test_missing_extra_is_one_clear_error() -> None:
    code = "import sys; sys.modules['typer'] = None; from kohort.cli.main import main; sys.exit(main(['broker']))"
    exit_code, out, err = run(code=code)
    assert exit_code == 1
    assert out == ""
    assert err == "kohort: error: `kohort broker` needs typer, which is not installed; pip install 'kohort[cli]'\n"


def test_no_line_of_the_list_of_commands_is_wider_than_a_terminal() -> None:
    assert [line for line in cli._help().splitlines() if len(line) > 80] == []


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    import kohort

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"kohort {kohort.__version__}\n"


def test_an_error_of_the_system_has_its_file_for_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["region", "status", f"sqlite:///{'x' * 300}"]) == 1
    assert capsys.readouterr().err == f"kohort: error: File name too long (path={'x' * 300})\n"


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"], ["completion", "--help"]])
def test_a_full_disk_is_one_line_and_a_closed_output_none(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "kohort.cli.main", *arguments]

    def ran(redirection: str) -> tuple[int, str]:
        shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
        done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stderr

    assert ran(">/dev/full") == (1, "kohort: error: No space left on device\n")
    assert ran(">&-") == (0, "")
    assert ran(">&- 2>&-") == (0, "")


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]])
def test_a_consumer_that_has_read_enough_gets_no_records(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as gone:
        command = [sys.executable, "-m", "kohort.cli.main", *arguments]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # of most locales, and of C
def test_a_terminal_that_lacks_a_letter_is_shown_its_number(errors: str) -> None:
    code = (
        f"import sys; sys.stdout.reconfigure(encoding='ascii', errors='{errors}'); from kohort.cli import main;"
        "main._run = lambda given: print('caf\\u00e9') or 0; sys.exit(main.main(['any']))"
    )
    assert run(code=code) == (0, "caf\\xe9\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are text there")
@pytest.mark.parametrize(
    ("mode", "name", "cause"),
    [
        ("0", "caf\u00e9".encode(), "the argument 'caf\\udcc3\\udca9' is not ascii; set PYTHONUTF8=1"),
        ("1", b"caf\xe9", "the argument 'caf\\udce9' is not utf-8"),
    ],
)
def test_an_argument_that_was_not_decoded_is_named_with_the_error(mode: str, name: bytes, cause: str) -> None:
    arguments: list[str | bytes] = ["group", "describe", name, "-b", "localhost:1"]
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": mode, "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "kohort.cli.main", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"kohort: {cause}"
