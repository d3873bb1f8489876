"""Settings as TypedDicts, made from the tables, so that type checkers find misspelt names and values.

`make docs` writes the files. The settings that a client names in its signature are left out.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kohort.admin.admin_config import AdminConfig
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.client_config import ClientConfig
from kohort.network.settings_table import Setting, Settings
from kohort.producer.producer_config import ProducerConfig
from kohort.share_consumer.share_config import ShareConsumerConfig

NAMED = frozenset({"bootstrap", "group", "assignors"})
TYPES = {
    "int": "int",
    "bool": "bool",
    "str": "str",
    "sent": "str",
    "list": "str | Iterable[str]",
    "callable": "Callable[..., Any]",
    "any": "Any",
}
"""Kind of a setting -> the type of a value that a caller gives."""

IMPORTS = {"collections.abc": ("Callable", "Iterable"), "typing": ("Any", "Literal", "TypedDict")}
CHOICES: Mapping[str, tuple[str | int, ...]] = {"acks": ("all", "-1", "0", "1", -1, 0, 1)}
"""Setting with a check of its own -> the values that callers may give."""

LINE = 120
INDENT = "    "


class TypedSettings(NamedTuple):
    """A file with one TypedDict. `base`: the module and name of the TypedDict that it extends, if any."""

    name: str
    table: type[Settings]
    base: tuple[str, str] | None = None
    whose: str = ""


CLIENT = ("kohort.network.client_settings", "ClientSettings")
FILES = {
    "network/client_settings.py": TypedSettings("ClientSettings", ClientConfig, whose="every client"),
    "coordinator_client/consumer_settings.py": TypedSettings("ConsumerSettings", ConsumerConfig, CLIENT, "a consumer"),
    "producer/producer_settings.py": TypedSettings("ProducerSettings", ProducerConfig, CLIENT, "a producer"),
    "share_consumer/share_settings.py": TypedSettings(
        "ShareConsumerSettings", ShareConsumerConfig, CLIENT, "a share consumer"
    ),
    "admin/admin_settings.py": TypedSettings("AdminSettings", AdminConfig, CLIENT, "an admin"),
}


def alias_of(setting: Setting) -> str:
    """The name of the type of a setting with choices: that of Kafka, such as IsolationLevel."""
    return "".join(word.capitalize() for word in setting.kafka.removeprefix("kohort.").split("."))


def choices_of(setting: Setting) -> tuple[str | int, ...]:
    """The values that a caller may give, if they can be listed."""
    return CHOICES.get(setting.name, setting.choices)


def type_of(setting: Setting) -> str:
    """The type of a setting's value, as source."""
    named = alias_of(setting) if choices_of(setting) else ""
    free = "" if named and setting.kind != "callable" else TYPES[setting.kind]
    return " | ".join(part for part in (named, free, "None" if setting.optional else "") if part)


def source(file: TypedSettings) -> str:
    """The text of a file."""
    above = ClientConfig.table if file.base is not None else {}
    rows = [row for name, row in file.table.table.items() if name not in above and name not in NAMED]
    aliases = "".join(f"{alias_of(row)} = Literal[{_quoted(choices_of(row))}]\n" for row in rows if choices_of(row))
    fields = "\n".join(_field(row) for row in rows)
    base = file.base[1] if file.base is not None else "TypedDict"
    head = f'"""The settings of {file.whose} by name and type. Made by `make docs` from `{file.table.__name__}`."""'
    parts = [
        "\n".join(_imports(aliases + fields, file.base)).strip("\n"),
        *([aliases.rstrip()] if aliases else []),
        f'\nclass {file.name}({base}, total=False):\n{INDENT}"""Keyword arguments of {file.whose}."""',
        fields,
    ]
    return "\n\n".join([head, *parts])


def _quoted(choices: Iterable[str | int]) -> str:
    return ", ".join(f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in choices)


def _field(setting: Setting) -> str:
    lines = textwrap.wrap(f'"""{setting.about}"""', LINE - len(INDENT), break_long_words=False)
    return "\n".join(INDENT + line for line in (f"{setting.name}: {type_of(setting)}", *lines)) + "\n"


def _imports(body: str, base: tuple[str, str] | None) -> Iterator[str]:
    """The imports of the names that the fields use, and of the base class."""
    for module, names in IMPORTS.items():
        used = [name for name in names if name in body or (base is None and name == "TypedDict")]
        if used:
            yield f"from {module} import {', '.join(used)}"
    if base is not None:
        yield f"\nfrom {base[0]} import {base[1]}"
