"""The site builds strictly: a dead link, a missing page or a missing name of the reference fails."""

import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.make import PAGES, cause_and_cure, errors_page, public_errors
from kohort.common import KohortError
from tests.house.test_public_docstrings import calls

ROOT = Path(__file__).parents[2]
OF_RUNS = frozenset({"behaviours.md", "benchmarks.md", "gallery.md", "reliability.md"})
"""Pages about runs and tests, which name inner parts too."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's sources in a folder of their own."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "CHANGELOG.md", folder)
    config = (ROOT / "zensical.toml").read_text().replace('paths = ["src"]', f'paths = ["{ROOT / "src"}"]')
    (folder / "zensical.toml").write_text(config)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    zensical = Path(sys.executable).with_name("zensical")
    return subprocess.run(
        [zensical, "build", "--strict"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_site_builds_strictly(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (copy / "out/site/reference/consumer/index.html").read_text()
    assert "enforce_rebalance" in reference
    assert "max_poll_interval_ms" in (copy / "out/site/reference/settings/index.html").read_text()
    assert "OffsetOutOfRange" in (copy / "out/site/reference/errors/index.html").read_text()
    site = copy / "out/site"
    assert links_without_a_target(site) == []
    assert [path for path in site.rglob("*") if path.suffix in {".py", ".pyc"}] == []


def links_without_a_target(site: Path) -> list[str]:
    """The relative links of all pages that lead to no file of the site, which the strict build does not find."""
    found = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'<a [^>]*?href="?([^"#?>\s]+)', page.read_text()):
            base = site if link.startswith("/") else page.parent
            target = Path(os.path.normpath(base / unquote(link).lstrip("/")))
            if not urlsplit(link).scheme and not (target.is_relative_to(site) and target.exists()):
                found.append(f"{page.relative_to(site)}: {link}")
    return found


def test_a_link_that_leaves_the_site_is_found(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "sub").mkdir(parents=True)
    (tmp_path / "outside.py").touch()
    for name in ("sub/index.html", "good.html"):
        (site / name).write_text(
            '<a href="../outside.py">1</a> <a class="x" href="../good.html#part">2</a> <a href="https://x.y/z">3</a>'
        )
    assert links_without_a_target(site) == [
        "good.html: ../outside.py",
        "good.html: ../good.html",
        "sub/index.html: ../outside.py",
    ]


def links_of(page: Path) -> dict[str, Path]:
    """The relative links of a page in Markdown, and the files to which they lead."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!\w+:)([^)#\s]+)", text)
    return {link: Path(os.path.normpath(page.parent / link)) for link in links}


def links_to_no_file(page: Path, files: Collection[Path]) -> list[str]:
    """The relative links of a page in Markdown that lead to none of the files."""
    return [link for link, target in links_of(page).items() if target not in files]


def pages_without_a_way(start: Path, pages: Collection[Path]) -> set[Path]:
    """The pages to which no chain of links leads from `start`."""
    left, open_pages = set(pages) - {start}, [start]
    while open_pages:
        found = left & set(links_of(open_pages.pop()).values())
        left -= found
        open_pages += found
    return left


def test_links_of_pages_lead_to_files_that_git_has() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = {ROOT / name for name in listed.stdout.splitlines()}
    if not files:
        pytest.skip("no checkout of git")
    pages = {ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} & files
    assert len(pages) > 40
    assert {page: links for page in pages if (links := links_to_no_file(page, files))} == {}
    assert pages_without_a_way(ROOT / "README.md", pages) == set()


def test_a_link_to_no_file_is_found(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("[1](#here) [2](https://x.y/z) [3](../good.md#part) [4](bad.md#part)\n```\n[5](bad.md)\n```\n")
    assert links_to_no_file(page, {tmp_path / "good.md"}) == ["bad.md"]


def test_a_page_without_a_link_is_found(tmp_path: Path) -> None:
    texts = {"start.md": "[1](one.md)", "one.md": "[2](two.md) [0](start.md)", "two.md": "", "alone.md": "[1](one.md)"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert pages_without_a_way(tmp_path / "start.md", {tmp_path / name for name in texts}) == {tmp_path / "alone.md"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_made_from_code_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make docs`"


@pytest.mark.full
@pytest.mark.parametrize(
    ("page", "text"),
    [("glossary.md", "\n[gone](nowhere.md)\n"), ("reference/admin.md", "\n::: kohort.admin.NoSuchName\n")],
)
def test_a_dead_link_and_a_missing_name_fail(copy: Path, page: str, text: str) -> None:
    path = copy / "docs" / page
    sound = path.read_text()
    path.write_text(sound + text)
    try:
        assert build(copy).returncode != 0
    finally:
        path.write_text(sound)


def pages_of(entry: object) -> list[str]:
    """The pages of a part of the navigation: a page, a list of parts, or a part with a title."""
    match entry:
        case str():
            return [entry]
        case list():
            return [page for one in entry for page in pages_of(one)]
        case dict():
            return [page for one in entry.values() for page in pages_of(one)]
    raise TypeError(entry)


def test_every_page_is_in_the_navigation() -> None:
    """Kept reports aside, which docs/conformance/README.md links to."""
    named = pages_of(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    docs = ROOT / "docs"
    there = {
        str(path.relative_to(docs))
        for path in docs.rglob("*.md")
        if path.parent.name != "conformance" or path.name == "README.md"
    }
    assert sorted(named) == sorted(there)


def test_every_public_error_has_a_cause_and_a_cure_unless_it_is_a_base_of_others() -> None:
    classes = [one for found in public_errors().values() for one in found]
    bases = {base for one in classes for base in one.__bases__}
    incomplete = [one for one in classes if not all(cause_and_cure(one))]
    assert {one.__name__ for one in incomplete} == {"KohortError", "TransactionError", "AssignorError", "RegionError"}
    assert set(incomplete) <= bases
    assert "**Cure.** Create the topic" in errors_page()


def public_docstrings() -> Iterator[tuple[str, str]]:
    """(name, docstring) of each public call with arguments."""
    for name, function, _ in calls():
        yield name, inspect.getdoc(function) or ""


def derived(kind: type[object]) -> Iterator[type[object]]:
    for one in kind.__subclasses__():
        yield one
        yield from derived(one)


def test_errors_that_pages_and_public_docstrings_name_are_public() -> None:
    """A user can import each error that is named, and finds its cause and cure."""
    public = {one.__name__ for found in public_errors().values() for one in found}
    hidden = {one.__name__ for one in derived(KohortError) if one.__module__.startswith("kohort.")} - public
    docs = ROOT / "docs"
    pages = [page for page in docs.rglob("*.md") if page.parent.name != "conformance" and page.name not in OF_RUNS]
    named = {page.name: hidden & set(re.findall(r"\b[A-Z]\w+\b", page.read_text())) for page in pages}
    named |= {name: hidden & set(re.findall(r"\b[A-Z]\w+\b", text)) for name, text in public_docstrings()}
    assert {place: names for place, names in named.items() if names} == {}
