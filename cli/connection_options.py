"""Connection settings of commands: options, a properties file, the environment."""

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
from kohort.admin.admin_config import AdminConfig
from kohort.cli.properties_file import from_environment, from_file, usual_file
from kohort.common.errors import KohortError
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.client_config import ClientConfig
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
        help="A properties file of Kafka, one NAME=VALUE a line; or KOHORT_CONFIG.",
    ),
]
Profile = Annotated[
    str | None, typer.Option("--profile", "-P", help="A section [NAME] of that file; or KOHORT_PROFILE.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-X", help="A property of Kafka as NAME=VALUE; repeatable. Wins over file and environment."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not prompt.")]

# Settings of Java clients that are translated.
OF_JAVA = ("sasl.jaas.config", "ssl.truststore.", "ssl.keystore.", "ssl.endpoint.identification.algorithm")
# Settings of a group member, which other clients must not have.
OF_A_MEMBER = ("group.id", "group.instance.id", "enable.auto.commit", "kohort.tape")
PIPE_WIDTH = 500
# A mistyped address is reported soon. A program waits longer, because its brokers may start beside it.
FIRST_BROKER = {"kohort.bootstrap.timeout.ms": "3000"}
P = ParamSpec("P")


class NoBrokerNamed(KohortError):
    """No broker is named by the options, the environment or a file."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The connection settings of a command. They are read on use, since not every command needs a cluster."""

    bootstrap: str = ""
    config: Path | None = None
    profile: str | None = None
    x: Sequence[str] = field(default=(), repr=False)  # may have passwords

    @property
    def properties(self) -> dict[str, str]:
        """The settings by Kafka's names. Raises KohortError as `properties()` does."""
        return self.properties_of(ConsumerConfig)

    def properties_of(self, client: type[ClientConfig]) -> dict[str, str]:
        """The settings of another client by Kafka's names. Raises KohortError as `properties()` does."""
        return properties(self.bootstrap, self.config, self.x, self.profile, client)

    @property
    def named(self) -> bool:
        """True if a broker is named."""
        try:
            return bool(self.properties)
        except NoBrokerNamed:
            return False

    def keywords(self) -> dict[str, Any]:
        """The result of `outside()` as typed keyword arguments of `Consumer(...)`."""
        return by_our_names(self.outside(), ConsumerConfig.by_kafka_name)

    def admin(self) -> Admin:
        """Return an admin client.

        A file serves all commands, so a consumer's properties are allowed. Raises ConfigError for an unknown property
        or an invalid value.
        """
        found = self.outside()
        ConsumerConfig.from_kafka(found)
        return Admin.from_config(AdminConfig.part_of(found))

    def outside(self) -> dict[str, Any]:
        """Return the properties for a client that joins no group and commits nothing."""
        return FIRST_BROKER | {name: value for name, value in self.properties.items() if name not in OF_A_MEMBER}


def connected(command: Callable[Concatenate[ConnectionOptions, P], None]) -> Callable[..., None]:
    """Add the options that make the first argument: --bootstrap, --config, --profile, -X."""

    @wraps(command)
    def with_options(**given: Any) -> None:
        reported = {name: given.pop(name) for name in ("bootstrap", "config", "profile")}
        command(ConnectionOptions(**reported, x=given.pop("x") or ()), **given)  # type: ignore[call-arg]  # typer gives all by keyword

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
    """Return the console for tables. Output into a pipe is wide enough that no name is cut."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


def properties(
    bootstrap: str,
    config: Path | None,
    settings: Sequence[str],
    profile: str | None = None,
    client: type[ClientConfig] = ConsumerConfig,
    *,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Merge the settings of options, file and environment.

    Precedence: -b, -X, a file or profile that was typed, KOHORT_ variables, a file that was not typed. Properties of a
    file that are not the client's (serializers, ...) are left out. In `-X` they are errors. Raises KohortError for an
    invalid property, a profile without a file, and if no broker is named.
    """
    named = environment.get("KOHORT_CONFIG")
    path = config or (Path(named) if named else usual_file(environment))
    chosen = profile or environment.get("KOHORT_PROFILE") or None
    if chosen is not None and path is None:
        raise KohortError(
            f"profile {chosen!r} without a file", hint="use --config FILE, or create ~/.config/kohort/config"
        )
    of_file = {} if path is None else _ours(from_file(path, chosen), client)
    of_environment = from_environment(environment, client.table.values())
    typed = config is not None or profile is not None
    found = of_environment | of_file if typed else of_file | of_environment
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            shown = re.split(r"[:\s]", name, maxsplit=1)[0]  # the rest may be a password
            raise KohortError(f"not a property: {shown!r}", hint="use -X NAME=VALUE")
        found[_kafkas(name.strip(), client)] = value.strip()
    found = _translated(found)
    if bootstrap:
        found["bootstrap.servers"] = bootstrap
    if not found.get("bootstrap.servers"):
        raise NoBrokerNamed(
            "no broker is named", hint="use --bootstrap HOST:PORT, KOHORT_BOOTSTRAP, or bootstrap.servers in a file"
        )
    return found


def _kafkas(name: str, client: type[ClientConfig]) -> str:
    """Return Kafka's name of a property, also for librdkafka's name."""
    return client.by_kafka_name[name].kafka if name in client.by_kafka_name else name


def _ours(found: Mapping[str, str], client: type[ClientConfig]) -> dict[str, str]:
    names = client.by_kafka_name.keys() | client.stand_ins
    known = {name: value for name, value in found.items() if name in names or name.startswith(OF_JAVA)}
    return {_kafkas(name, client): value for name, value in _translated(known).items()}


def _translated(found: dict[str, str]) -> dict[str, str]:
    """Translate Java's security settings to ours, if there are any."""
    if not any(name.startswith(OF_JAVA) for name in found):
        return found
    from kohort.spark.java_settings import in_our_words

    return in_our_words(found)
