"""How commands are told where the brokers are and who we are: options, a file of properties, the environment."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer
from rich.console import Console

from kohort.admin import Admin
from kohort.cli.properties_file import from_environment, from_file, usual_file
from kohort.common.errors import KohortError
from kohort.coordinator_client.consumer_config import BY_KAFKA_NAME
from kohort.network.settings_table import by_our_names

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", help="HOST:PORT of a broker, several with commas; or KOHORT_BOOTSTRAP."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-F",
        help="A file of Kafka's own properties, NAME=VALUE a line; or KOHORT_CONFIG.",
    ),
]
Profile = Annotated[str | None, typer.Option("--profile", "-P", help="A [NAME] of that file; or KOHORT_PROFILE.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("-X", help="One of Kafka's own properties, NAME=VALUE; repeatable, wins over file and environment."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

# What only Java clients know, and what we make of it.
OF_JAVA = ("sasl.jaas.config", "ssl.truststore.", "ssl.keystore.", "ssl.endpoint.identification.algorithm")
# What makes a client a member of a group that commits, and what it keeps; who looks from outside is none.
OF_A_MEMBER = ("group.id", "group.instance.id", "enable.auto.commit", "kohort.tape")
PIPE_WIDTH = 500
P = ParamSpec("P")


class NoBrokerNamed(KohortError):
    """Neither options nor the environment nor a file name a broker."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What a command is told about the cluster; read when it is asked for, since not every command needs one."""

    bootstrap: str = ""
    config: Path | None = None
    profile: str | None = None
    x: Sequence[str] = field(default=(), repr=False)  # passwords may be among them

    @property
    def properties(self) -> dict[str, str]:
        """By Kafka's names. Raises KohortError as `properties()` does."""
        return properties(self.bootstrap, self.config, self.x, self.profile)

    @property
    def named(self) -> bool:
        """Whether anything names a broker."""
        try:
            return bool(self.properties)
        except NoBrokerNamed:
            return False

    def keywords(self) -> dict[str, Any]:
        """`outside()` by our own names, with the values' own types: what `Consumer(...)` takes."""
        return by_our_names(self.outside(), BY_KAFKA_NAME)

    def admin(self) -> Admin:
        """Raises ConfigError for a property that is none, or whose value is wrong."""
        return Admin.from_config(self.outside())

    def outside(self) -> dict[str, Any]:
        """The properties for a client that joins no group and commits nothing."""
        return {name: value for name, value in self.properties.items() if name not in OF_A_MEMBER}


def connected(command: Callable[Concatenate[ConnectionOptions, P], None]) -> Callable[..., None]:
    """The command with the options that make its first argument: --bootstrap, --config, --profile, -X."""

    @wraps(command)
    def with_options(**given: Any) -> None:
        told = {name: given.pop(name) for name in ("bootstrap", "config", "profile")}
        command(ConnectionOptions(**told, x=given.pop("x") or ()), **given)  # type: ignore[call-arg]  # typer gives all by keyword

    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    options = {"bootstrap": (Bootstrap, ""), "config": (ConfigFile, None), "profile": (Profile, None)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in ({**options, "x": (Settings, None)}).items()
    ]
    kept = [one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    with_options.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in (*kept, *added)}
    return with_options


def console() -> Console:
    """Where tables go: as wide as the terminal, and into a pipe as wide as they are, so that no name is cut."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


def properties(
    bootstrap: str,
    config: Path | None,
    settings: Sequence[str],
    profile: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """What they say together: -b over -X over a file or profile that was typed over KOHORT_ variables over a file that
    was not.

    Properties of a file that are no consumer's (serializers, ...) are left out; of `-X` they are errors. Raises
    KohortError for what is no property, a profile without a file, and if no broker is named.
    """
    named = config or _path(environment.get("KOHORT_CONFIG"))
    path = named or usual_file(environment)
    chosen = profile or environment.get("KOHORT_PROFILE") or None
    if chosen is not None and path is None:
        raise KohortError(f"profile {chosen!r} of no file", hint="--config FILE, or ~/.config/kohort/config")
    of_file = {} if path is None else _ours(from_file(path, chosen))
    of_environment = from_environment(environment)
    typed = config is not None or profile is not None
    found = of_environment | of_file if typed else of_file | of_environment
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            shown = re.split(r"[:\s]", name, maxsplit=1)[0]  # what follows may be a password
            raise KohortError(f"not a property: {shown!r}", hint="-X NAME=VALUE")
        found[_kafkas(name.strip())] = value.strip()
    found = _translated(found)
    if bootstrap:
        found["bootstrap.servers"] = bootstrap
    if not found.get("bootstrap.servers"):
        raise NoBrokerNamed(
            "no broker is named", hint="--bootstrap HOST:PORT, or KOHORT_BOOTSTRAP, or bootstrap.servers in a file"
        )
    return found


def _kafkas(name: str) -> str:
    """Kafka's own name of a property that librdkafka calls otherwise."""
    return BY_KAFKA_NAME[name].kafka if name in BY_KAFKA_NAME else name


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _ours(found: Mapping[str, str]) -> dict[str, str]:
    known = {name: value for name, value in found.items() if name in BY_KAFKA_NAME or name.startswith(OF_JAVA)}
    return {_kafkas(name): value for name, value in _translated(known).items()}


def _translated(found: dict[str, str]) -> dict[str, str]:
    """Java's security settings in our words; read only where there are any, since most files have none."""
    if not any(name.startswith(OF_JAVA) for name in found):
        return found
    from kohort.spark.java_settings import in_our_words

    return in_our_words(found)
