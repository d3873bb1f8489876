"""State in files: wherever the process dies, a checkpoint comes back as it was, or it is said that it cannot."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from kohort.consistent_region import FileState
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError
from kohort.consistent_region.file_state import MAGIC, listed
from kohort.consistent_region.store import Key, SqliteStore


class Killed(BaseException):
    """kill -9, at this very line."""


def write(state: FileState, **files: str) -> None:
    for name, text in files.items():
        path = state.files / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(state: FileState) -> dict[str, str]:
    return {path.relative_to(state.files).as_posix(): path.read_text() for path in state.files.rglob("*.txt")}


def named(snapshot: bytes) -> str:
    return str(json.loads(snapshot.removeprefix(MAGIC))["name"])


def fill(state: FileState, number: int) -> dict[str, str]:
    files = {"totals.txt": f"totals {number}", "days/monday.txt": "m" * number, f"only/{number}.txt": ""}
    shutil.rmtree(state.files / "only", ignore_errors=True)
    write(state, **{name.replace("/", "__"): text for name, text in files.items()})
    return files


def test_files_come_back_as_they_were_in_another_process(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    first = fill(state, 1)
    one = state.snapshot({})
    second = fill(state, 2)
    two = state.snapshot({})
    write(state, stray="not in any checkpoint")
    again = FileState(tmp_path)
    again.restore(two, {})
    assert read(again) == second
    assert not (again.files / "stray").exists()
    again.restore(one, {})
    assert read(again) == first
    again.reset_initial()
    assert read(again) == {}
    assert again.snapshot({}) == FileState(tmp_path).snapshot({})


def test_a_snapshot_from_before_they_were_marked_is_restored(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    files = fill(state, 1)
    snapshot = state.snapshot({})
    fill(state, 2)
    state.restore(snapshot.removeprefix(MAGIC), {})
    assert read(state) == files


def test_empty_folders_come_back_as_they_were(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    write(state, a="equal")
    for name in ("first", "second"):
        (state.files / name).mkdir()
        snapshot = state.snapshot({})
        (state.files / name).rmdir()
    state.restore(snapshot, {})
    assert sorted(path.name for path in state.files.iterdir()) == ["a", "second"]
    (tmp_path / "snapshots" / named(snapshot) / "second").rmdir()
    with pytest.raises(ResetFailedError, match="not what it was"):
        state.restore(snapshot, {})


def test_a_snapshot_from_before_empty_folders_were_listed_is_restored(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    write(state, **{"a.txt": "text"})
    snapshot = state.snapshot({})
    (tmp_path / "snapshots" / named(snapshot) / "empty").mkdir()
    state.restore(snapshot, {})
    assert sorted(path.name for path in state.files.iterdir()) == ["a.txt", "empty"]


def test_a_former_owner_that_goes_on_changes_no_file_of_the_next_one(tmp_path: Path) -> None:
    former = FileState(tmp_path)
    wanted = fill(former, 1)
    snapshot = former.snapshot({})
    owner = FileState(tmp_path)
    owner.restore(snapshot, {})
    with pytest.raises(FileNotFoundError):
        (former.files / "totals.txt").write_text("late")
    former.restore(snapshot, {})  # it goes back once more, since it has not learned of its loss
    shutil.rmtree(former.files.parent)
    former.reset_initial()
    fill(former, 2)
    former.completed()
    assert read(owner) == wanted
    assert owner.snapshot({}) == snapshot


@pytest.mark.parametrize("restored", [True, False])
def test_the_next_owner_removes_what_former_ones_left(tmp_path: Path, restored: bool) -> None:
    of_others = {"files", "old", "owner-of-another-program"}
    for name in of_others:
        (tmp_path / name).mkdir()
    former = FileState(tmp_path)
    fill(former, 1)
    snapshot = former.snapshot({})
    owner = FileState(tmp_path)
    owner.restore(snapshot, {}) if restored else owner.reset_initial()
    left = {"snapshots", *of_others, owner.files.parent.name}
    assert {path.name for path in tmp_path.iterdir()} == left


def test_files_that_were_removed_under_their_owner_are_no_empty_snapshot(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    fill(state, 1)
    shutil.rmtree(state.files)
    with pytest.raises(FileNotFoundError):
        state.snapshot({})


@pytest.mark.proves("B-45")
def test_wherever_a_snapshot_or_a_reset_dies_the_complete_checkpoint_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = -1

    def burning(real: Callable[..., object]) -> Callable[..., object]:
        def burn(*arguments: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return real(*arguments, **named)

        return burn

    # Every call that changes what is on the disk.
    for module, name in ((os, "replace"), (os, "fsync"), (os, "utime"), (shutil, "copyfile"), (shutil, "rmtree")):
        monkeypatch.setattr(module, name, burning(getattr(module, name)))

    died = 0
    for place in range(1, 200):
        left, folder = -1, tmp_path / str(place)
        state = FileState(folder, kept=2)
        wanted = fill(state, 1)
        complete = state.snapshot({})
        state.completed()
        left = place
        try:
            fill(state, 2)
            state.snapshot({})  # no checkpoint has this one
            state.restore(complete, {})
            wanted_then = fill(state, 3)
            third = state.snapshot({})
            complete, wanted = third, wanted_then
            state.completed()
        except Killed:
            died += 1
        left = -1
        again = FileState(folder, kept=2)
        again.restore(complete, {})
        assert read(again) == wanted, place
        if died < place:
            break
    assert died > 15


def test_copies_that_nothing_needs_go_and_those_of_complete_checkpoints_stay(tmp_path: Path) -> None:
    state = FileState(tmp_path, kept=2)
    kept = []
    for number in range(1, 6):
        write(state, a=f"{number}")
        kept.append(state.snapshot({}))
        os.utime(tmp_path / "snapshots" / named(kept[-1]), ns=(number, number))
        if number != 4:  # given up
            state.completed()
    names = {path.name for path in (tmp_path / "snapshots").iterdir()}
    assert names == {named(kept[place]) for place in (2, 3, 4)}
    state.restore(kept[2], {})
    assert (state.files / "a").read_text() == "3"
    with pytest.raises(ResetFailedError, match="not in this folder"):
        state.restore(kept[0], {})


@pytest.mark.proves("CR-72")
def test_copies_from_after_the_clock_went_back_are_the_newest(tmp_path: Path) -> None:
    """A former owner that goes on would remove them as older ones."""
    former = FileState(tmp_path, kept=2)
    for number in range(3):
        fill(former, number)
        snapshot = former.snapshot({})
        former.completed()
    for copy in (tmp_path / "snapshots").iterdir():
        later_s = copy.stat().st_mtime + 7_200
        os.utime(copy, (later_s, later_s))
    owner = FileState(tmp_path, kept=2)
    owner.restore(snapshot, {})
    wanted = fill(owner, 3)
    snapshot = owner.snapshot({})
    former.completed()
    owner.restore(snapshot, {})
    assert read(owner) == wanted


def test_a_copy_that_is_not_what_it_was_is_refused_and_nothing_is_put_in_place(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    write(state, a="good", b="good")
    snapshot = state.snapshot({})
    (copy,) = (tmp_path / "snapshots").iterdir()
    write(state, a="newer")
    for harm in (lambda: (copy / "a").write_text("evil"), lambda: (copy / "b").unlink()):
        harm()
        with pytest.raises(ResetFailedError, match="not what it was"):
            state.restore(snapshot, {})
    assert (state.files / "a").read_text() == "newer"
    for damaged in (b"", b"[]", b"{}", b'{"name": 1, "files": 2}'):
        with pytest.raises(ResetFailedError):
            state.restore(damaged, {})


@pytest.mark.parametrize("name", ["../../outside", "/etc", "0" * 64, ""])
def test_a_snapshot_cannot_name_a_folder_elsewhere(tmp_path: Path, name: str) -> None:
    """Its name is the hash of its listing."""
    state = FileState(tmp_path / "member")
    write(state, **{"a.txt": "ours"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("theirs")
    lying = MAGIC + json.dumps({"name": name, "files": listed(outside)}).encode()
    with pytest.raises(ResetFailedError, match="names no files"):
        state.restore(lying, {})
    assert read(state) == {"a.txt": "ours"}


def test_a_link_to_a_folder_is_refused_and_files_behind_other_links_are_copied(tmp_path: Path) -> None:
    state = FileState(tmp_path / "member")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("theirs")
    (state.files / "b.txt").symlink_to(outside / "a.txt")
    state.restore(state.snapshot({}), {})
    assert read(state) == {"b.txt": "theirs"}
    (state.files / "link").symlink_to(outside)
    with pytest.raises(ConfigurationError, match="link to a folder") as raised:
        state.snapshot({})
    assert raised.value.place["path"] == state.files / "link"


def test_a_name_that_no_checkpoint_can_hold_is_refused(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    (state.files / os.fsdecode(b"caf\xe9.txt")).write_text("of a program with another encoding")
    with pytest.raises(ConfigurationError, match="a name of a file is UTF-8"):
        state.snapshot({})


def test_copies_are_their_owners_alone(tmp_path: Path) -> None:
    state = FileState(tmp_path)
    write(state, a="secret")
    state.snapshot({})
    (copy,) = (tmp_path / "snapshots").iterdir()
    assert (tmp_path / "snapshots").stat().st_mode & 0o777 == 0o700
    assert (copy / "a").stat().st_mode & 0o777 == 0o600


def test_a_part_of_a_copy_whose_removal_was_cut_off_is_not_taken_for_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = FileState(tmp_path, kept=1)
    files = {"a.txt": "first", "b.txt": "first"}
    write(state, **files)
    old = state.snapshot({})
    state.completed()
    os.utime(tmp_path / "snapshots" / named(old), ns=(1, 1))
    write(state, **{"a.txt": "second"})
    state.snapshot({})

    def cut_off(folder: Path) -> None:
        (folder / "a.txt").unlink()
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", cut_off)
    with pytest.raises(Killed):
        state.completed()
    monkeypatch.undo()
    again = FileState(tmp_path, kept=1)
    again.reset_initial()
    write(again, **files)
    snapshot = again.snapshot({})
    again.restore(snapshot, {})
    assert read(again) == files
    write(again, **{"a.txt": "third"})
    again.snapshot({})
    again.completed()
    assert len(list((tmp_path / "snapshots").iterdir())) == 1  # the part is gone as well


def test_on_a_full_disk_no_part_of_a_copy_stays_and_files_of_former_owners_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = FileState(tmp_path)
    files = fill(former, 1)
    complete = former.snapshot({})

    def full(_read: object, written: IO[bytes], _length: int) -> None:
        assert not list(tmp_path.glob("owner-*/files/**/*.txt"))
        written.write(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = FileState(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)
        with pytest.raises(OSError, match="No space left"):
            owner.restore(complete, {})
    assert sorted(path.name for path in owner.files.parent.iterdir()) == ["files", "owned"]
    owner.restore(complete, {})
    assert read(owner) == files


def test_two_owners_that_make_the_same_copy_at_the_same_time_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, owner = FileState(tmp_path), FileState(tmp_path)
    for state in (former, owner):
        wanted = fill(state, 1)
    made: list[bytes] = []
    replace = os.replace

    def late(source: Path, target: Path) -> None:
        if not made:
            made.append(b"")
            made[0] = former.snapshot({})
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", late)
        assert owner.snapshot({}) == made[0]
    owner.restore(made[0], {})
    assert read(owner) == wanted


@pytest.mark.parametrize("is_over", [True, False])
def test_files_that_a_late_former_owner_removes_are_missing_in_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """A process that was stopped before it made its state takes the next owner for a former one."""
    owner = FileState(tmp_path)
    fill(owner, 1)
    complete = owner.snapshot({})
    former = FileState(tmp_path)

    def begins(folder: Path, *, ignore_errors: bool = False) -> None:
        (owner.files / "totals.txt").unlink(missing_ok=True)

    with monkeypatch.context() as patched:
        if not is_over:
            patched.setattr(shutil, "rmtree", begins)
        former.reset_initial()
    write(owner, days__tuesday="of a handler that makes its folders")
    with pytest.raises(FileNotFoundError):
        owner.snapshot({})
    owner.restore(complete, {})
    assert owner.snapshot({}) == complete


def with_an_old_copy(folder: Path) -> tuple[FileState, Path, bytes]:
    """The former owner of a task, whose next `completed` removes a copy, and that copy with its snapshot."""
    former = FileState(folder, kept=1)
    fill(former, 1)
    snapshot = former.snapshot({})
    copy = folder / "snapshots" / named(snapshot)
    os.utime(copy, ns=(1, 1))
    fill(former, 2)
    former.snapshot({})
    return former, copy, snapshot


@pytest.mark.parametrize("step", ["rename", "stat"])
def test_a_copy_that_becomes_the_newest_of_one_owner_is_not_removed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The owner makes it while the former one removes it as an old one, before and after it has another name."""
    former, copy, snapshot = with_an_old_copy(tmp_path)
    owner = FileState(tmp_path)
    wanted = fill(owner, 1)
    real = getattr(Path, step)
    made: list[bytes] = []

    def late(path: Path, *arguments: Any, **named: Any) -> object:
        is_next = path == copy if step == "rename" else path.name.startswith("removed-")
        if is_next and not made:
            made.append(b"")
            made[0] = owner.snapshot({})
        return real(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, step, late)
        former.completed()
    assert made == [snapshot]
    owner.restore(snapshot, {})
    assert read(owner) == wanted


def test_a_copy_that_another_owner_removes_before_it_is_the_newest_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, copy, snapshot = with_an_old_copy(tmp_path)
    owner = FileState(tmp_path)
    wanted = fill(owner, 1)
    utime, seen = os.utime, list[Path]()

    def late(path: Path, **named: Any) -> None:
        if not seen:
            seen.append(path)
            former.completed()
            assert not copy.exists()
        utime(path, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "utime", late)
        assert owner.snapshot({}) == snapshot
    assert seen == [copy]
    owner.restore(snapshot, {})
    assert read(owner) == wanted


def test_of_two_owners_that_remove_the_same_copy_neither_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former, copy, _snapshot = with_an_old_copy(tmp_path)
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        shutil.rmtree(path)
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", late)
        former.completed()
    assert not copy.exists()


@pytest.mark.parametrize("kind", ["pipe", "broken link"])
def test_what_is_no_file_and_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    """A snapshot would wait for the other end of a pipe for ever."""
    state = FileState(tmp_path)
    path = state.files / "strange"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("nowhere")
    with pytest.raises(ConfigurationError, match="only files and folders") as raised:
        state.snapshot({})
    assert raised.value.place["path"] == path


def test_a_change_of_the_working_directory_moves_no_state_and_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a store that was unlinked, and files that were not there."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    state, store = FileState("state"), SqliteStore("region.db")
    with store.transaction() as books:
        books.put(Key("region", "g"), b"here")
    monkeypatch.chdir(other)
    with store.read() as books:
        assert books.get(Key("region", "g")) == b"here"
    store.close()
    files = fill(state, 1)
    state.restore(state.snapshot({}), {})
    assert read(state) == files
    assert list(other.iterdir()) == []
