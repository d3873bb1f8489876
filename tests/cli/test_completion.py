"""The suggestions of TAB: the script is loaded into a real bash and called as bash calls it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli.commands import available
from kohort.cli.completion import SHELLS, complete
from kohort.cli.main import main

QUERY = """
source "$1"
read -ra COMP_WORDS <<< "$2"
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_kohort_completion kohort
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, and a `kohort` beside it that is this checkout's."""
    folder = tmp_path_factory.mktemp("completion")
    kohort = folder / "kohort"
    kohort.write_text(f"#!{sys.executable}\nimport sys\nfrom kohort.cli.main import main\nsys.exit(main())\n")
    kohort.chmod(0o755)
    path = folder / "completion.bash"
    printed = subprocess.run([str(kohort), "completion", "bash"], capture_output=True, text=True, check=True)
    path.write_text(printed.stdout)
    return path


def tab(script: Path, line: str) -> list[str]:
    """The suggestions of bash behind `line`."""
    environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", QUERY, "bash", str(script), line]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=300)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_commands_options_and_their_words_are_completed(script: Path) -> None:
    assert sorted(tab(script, "kohort ")) == sorted(available())
    assert tab(script, "kohort gr") == ["group"]
    assert tab(script, "kohort group off") == ["offsets"]
    assert tab(script, "kohort group offsets re") == ["reset"]
    assert tab(script, "kohort group lag billing --wa") == ["--watch"]
    assert tab(script, "kohort consume payments --format j") == ["json"]
    assert {"--bootstrap", "--profile", "--ms-per-record"} <= set(tab(script, "kohort doctor --"))


def test_every_command_with_all_it_has_can_be_completed(capsys: pytest.CaptureFixture[str]) -> None:
    for name in available():
        words = {"_KOHORT_COMPLETE": "complete_bash", "COMP_WORDS": f"kohort {name} --", "COMP_CWORD": "2"}
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in words.items():
                patch.setenv(variable, value)
            assert complete() == 0
        assert "--help" in capsys.readouterr().out.split(), name


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_that_names_us(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "_KOHORT_COMPLETE" in out
    assert "kohort" in out


def test_a_shell_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "not one of bash, zsh, fish, powershell" in " ".join(capsys.readouterr().err.replace("│", " ").split())
