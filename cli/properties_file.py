"""Kafka's properties from a file with profiles, and from the environment."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from kohort.cli.terminal import say
from kohort.common.errors import KohortError
from kohort.common.private_files import is_open_to_others
from kohort.network.settings_table import Setting

PREFIX = "KOHORT_"
SECRETS = ("password", "secret", "jaas.config", "ssl.keystore.key", "oauth.token")


def from_file(path: Path, profile: str | None) -> dict[str, str]:
    """Read lines of NAME=VALUE in UTF-8, as Kafka's own tools do. A backslash continues a line.

    Other backslashes stay, as in librdkafka's files. Java's tools read escapes, such as two of them for one.
    Properties after a line `[NAME]` belong to that profile. Those before the first such line belong to all profiles.
    Raises KohortError for a file that cannot be read, an invalid line, and a missing profile.
    """
    found: dict[str, str] = {}
    profiles: list[str] = []
    for number, line in _lines(path):
        if line.startswith("[") and line.endswith("]"):
            profiles.append(line[1:-1].strip())
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise KohortError("not a property", hint="write NAME=VALUE", path=path, line=number)
        if not profiles or profiles[-1] == profile:
            found[name.strip()] = value.strip()
    secrets = sorted(name for name in found if name.endswith(SECRETS))
    if secrets and is_open_to_others(path):
        say(f"kohort: warning: other users may read {secrets[0]} in {path}: chmod 600 it", file=sys.stderr)
    if profile is not None and profile not in profiles:
        there = ", ".join(profiles) or "none"
        raise KohortError(
            f"no profile {profile!r}", hint=f"[{profile}] on a line begins it; the file has: {there}", path=path
        )
    return found


def from_environment(environment: Mapping[str, str], settings: Iterable[Setting]) -> dict[str, str]:
    """Return the settings of variables, such as sasl.username of KOHORT_SASL_USERNAME."""
    names = {f"{PREFIX}{setting.name.upper()}": setting.kafka for setting in settings}
    return {kafka: environment[name] for name, kafka in names.items() if environment.get(name)}


def usual_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the default file if it exists: kohort/config in XDG_CONFIG_HOME, or in ~/.config."""
    home = environment.get("HOME") or os.path.expanduser("~")  # unlike Path.home(), for a user without one, too
    path = Path(environment.get("XDG_CONFIG_HOME") or Path(home, ".config"), "kohort", "config")
    return path if path.is_file() else None


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return (number of the first line, text) of each logical line, without empty lines and comments."""
    try:
        text = path.read_text("utf-8-sig")  # an editor may begin it with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise KohortError(f"the file cannot be read: {why}", path=path) from None
    found: list[tuple[int, str]] = []
    begun = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not begun and (not bare or bare.startswith(("#", "!"))):
            continue
        first = found.pop()[0] if begun else number
        whole = begun + bare
        begun = whole.removesuffix("\\") if whole.endswith("\\") else ""
        found.append((first, begun or whole))
    return found
