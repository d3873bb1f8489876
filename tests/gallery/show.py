"""docs/gallery.md: every story on kohort and on other clients, each in a separate process.

python -m tests.gallery.show
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from tests.gallery.readers import OURS, READERS
from tests.gallery.stories import STORIES, Seen, Story, stage

PAGE = Path(__file__).parent.parent.parent / "docs" / "gallery.md"
LIMIT_S = 90
CEILING_BYTES = 4 << 30  # of address space, for clients without a limit
_ANSWER = "STORY "
SIGNS = {True: "yes", False: "**no**", None: "?"}


def told(story: Story, who: str) -> Seen:
    """Run one story in a fresh process, which may hang, crash, or use much memory."""
    command = [sys.executable, "-m", "tests.gallery.show", story.name, who]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=PAGE.parent.parent
        )
    except subprocess.TimeoutExpired:
        return Seen(None, f"no end after {LIMIT_S} s")
    answers = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    if answers:
        return Seen(*json.loads(answers[-1].removeprefix(_ANSWER)))
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode > 0:
        return Seen(None, f"ended before the story: {last[:120]}")
    return Seen(False, f"the process was ended by signal {-done.returncode}: {last[:120]}")


def page(found: dict[tuple[str, str], Seen]) -> str:
    """The page's Markdown: a story, the reports about clients, and the behaviour of each client today."""
    clients = ", ".join(f"{who} {version(who)}" for who in READERS)
    parts = [
        "# The gallery: published bugs of other clients",
        "Users of other clients reported these bugs. Each bug is a story that runs on any client, against a broker in "
        "memory (`kohort.testing.FakeBroker`) that behaves as in the report. `make test` runs the stories on kohort, "
        "`make gallery` on every client, each in a fresh process. A client that has fixed the bug since passes. Every "
        "story runs on all clients, also if its report is about one of them.",
        f"Made by `make gallery` on {time.strftime('%Y-%m-%d')}: {clients}.",
        "| bug | report | "
        + " | ".join(READERS)
        + " |\n| --- | --- |"
        + " :-: |" * len(READERS)
        + "\n"
        + "\n".join(
            f"| {story.name} | {story.since} | "
            + " | ".join(SIGNS[found[story.name, who].holds] for who in READERS)
            + " |"
            for story in STORIES
        ),
        "*yes*: the rule holds; *no*: it does not, or the client has no way to; *?*: the story could not run.",
    ]
    for story in STORIES:
        parts += [
            f"## {story.name[0].upper()}{story.name[1:]}",
            f"{story.since}. The rule: {story.rule}.",
            "\n".join(f"- {who}: {found[story.name, who].said}" for who in READERS),
        ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    if len(sys.argv) == 3:
        resource.setrlimit(resource.RLIMIT_AS, (CEILING_BYTES, CEILING_BYTES))
        story = next(each for each in STORIES if each.name == sys.argv[1])
        with stage(story) as broker:
            seen = story.tell(broker, READERS[sys.argv[2]])
        print(_ANSWER + json.dumps(seen), flush=True)
        os._exit(0)  # threads of a client may not end
    found = {}
    for story in STORIES:
        for who in READERS:
            found[story.name, who] = seen = told(story, who)
            print(f"{SIGNS[seen.holds]:6} {who:16} {story.name}: {seen.said}", flush=True)
    PAGE.write_text(page(found))
    print(f"wrote {PAGE.name}")
    if not all(found[story.name, OURS].holds for story in STORIES):
        sys.exit(1)


if __name__ == "__main__":
    main()
