"""Deletes groups or topics by name, and prints which ones are gone."""

import json
from collections.abc import Callable, Sequence

from kohort.cli.terminal import say
from kohort.common.errors import KohortError


def delete_each(delete: Callable[[str], None], names: Sequence[str], *, as_json: bool) -> None:
    """Delete each by its name, and print those that are deleted. Then raise the first error, if there is one."""
    deleted: list[str] = []
    error: KohortError | ValueError | None = None
    for name in dict.fromkeys(names):
        try:
            delete(name)
            deleted.append(name)
        except (KohortError, ValueError) as problem:  # ValueError: the library refuses the name
            error = error or problem
    if as_json and deleted:
        print(json.dumps({"deleted": deleted}))
    elif deleted:
        say(f"deleted {', '.join(deleted)}")
    if error is not None:
        raise error
