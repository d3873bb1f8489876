"""Files with secrets are their owner's alone, and no link of another user decides where they are written."""

import os
import stat
from pathlib import Path

import pytest

from kohort.common.private_files import UnsafeFolder, create, opener, private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def permissive_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_folder_is_made_for_its_owner_and_found_again(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "ours", hint="remove it")
    assert mode(made) == 0o700
    assert private_folder(made, hint="remove it") == made


@pytest.mark.parametrize("kind", ["link", "file", "open to others"])
def test_a_folder_that_others_may_decide_about_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "theirs"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        path.write_text("")
    else:
        path.mkdir(mode=0o777)
    with pytest.raises(UnsafeFolder, match="private files") as raised:
        private_folder(path, hint="remove it")
    assert raised.value.hint == "remove it"
    assert raised.value.place["path"] == path


def test_a_file_is_created_and_never_written_through_a_link(tmp_path: Path) -> None:
    create(tmp_path / "file", b"content")
    assert (mode(tmp_path / "file"), (tmp_path / "file").read_bytes()) == (0o600, b"content")
    target = tmp_path / "target"
    target.write_text("before")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link", "dangling"):
        with pytest.raises(FileExistsError):
            create(tmp_path / name, b"content")
    assert target.read_text() == "before"
    assert not (tmp_path / "nowhere").exists()


def test_an_opened_file_that_is_new_is_its_owners(tmp_path: Path) -> None:
    with open(tmp_path / "tape", "a", opener=opener) as file:
        file.write("line\n")
    assert mode(tmp_path / "tape") == 0o600
