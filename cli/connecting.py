"""How commands are told where the brokers are and who we are: options, a properties file, the environment."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kohort.coordinator_client.config import SETTINGS
from kohort.fastpath.errors import KohortError

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="KOHORT_BOOTSTRAP", help="HOST:PORT of a broker, several with commas."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-F", envvar="KOHORT_CONFIG", help="A file of Kafka's own properties, NAME=VALUE a line."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-X", help="One of Kafka's own properties, NAME=VALUE; repeatable, wins over the file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

KNOWN = frozenset(setting.kafka for setting in SETTINGS.values())


PIPE_WIDTH = 500


def console() -> Console:
    """Where tables go: as wide as the terminal, and into a pipe as wide as they are, so that no name is cut."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


def properties(bootstrap: str, config: Path | None, settings: list[str] | None) -> dict[str, Any]:
    """What they say together. Properties of a file that are no consumer's (serializers, ...) are left out; of `-X` they
    are errors. Raises KohortError for a line that is no property, and if no broker is named."""
    found: dict[str, str] = {}
    if config is not None:
        found |= {name: value for name, value in _lines(config).items() if name in KNOWN}
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise KohortError(f"not a property: {text!r}", hint="-X NAME=VALUE")
        found[name.strip()] = value.strip()
    if bootstrap:
        found["bootstrap.servers"] = bootstrap
    if not found.get("bootstrap.servers"):
        raise KohortError("no broker is named", hint="--bootstrap HOST:PORT, or KOHORT_BOOTSTRAP")
    return found


def _lines(path: Path) -> dict[str, str]:
    try:
        text = path.read_text()
    except OSError as error:
        raise KohortError(f"the file cannot be read: {error.strerror}", path=path) from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", "!")):
            continue
        name, equals, value = bare.partition("=")
        if not equals:
            raise KohortError("not a property", hint="NAME=VALUE", path=path, line=number)
        found[name.strip()] = value.strip()
    return found
