"""Tables of settings: a row a setting, and the checks by its kind."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from kohort.common.frozen import Frozen
from kohort.common.named_tuple import NamedTuple
from kohort.network.arguments import INT16_MAX, is_async, unsendable
from kohort.network.errors import ConfigError

KIB, MIB = 1024, 1024 * 1024
NUL = "\0"
INT32_MAX = 2**31 - 1
MOST_DIGITS = 5  # of a port; Python refuses to read very long numbers


# Names of other clients for kohort's settings, for which the nearest name by letters would be another setting.
_CALLED = MappingProxyType(
    {
        **dict.fromkeys(("servers", "server", "brokers", "broker", "broker_list", "hosts"), "bootstrap"),
        "enable_ssl_certificate_verification": "ssl_context",
        "max_batch_size": "batch_bytes",
        "message_max_bytes": "max_request_bytes",
        "oauth_cb": "sasl_oauth_token",
        "queue_buffering_max_kbytes": "buffer_bytes",
        "queued_max_messages_kbytes": "max_buffered_bytes",
        "receive_message_max_bytes": "max_frame_bytes",
        "socket_timeout_ms": "request_timeout_ms",
        "ssl_cafile": "ssl_ca_path",
        "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
        "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    }
)

# Settings of other clients without a counterpart, for which the nearest name would be wrong advice, and the reason.
_LEFT_OUT = MappingProxyType(
    {
        "consumer_timeout_ms": "poll has a time-out",
        "enable_auto_offset_store": "commit the offsets that are done",
        "enable_idempotence": "acks='all' is always idempotent",
        "enable_partition_eof": "compare position() with end_offsets()",
        "error_cb": "errors are raised",
        "message_send_max_retries": "a record is sent again until its delivery time-out",
        "retries": "a record is sent again until its delivery time-out",
        "statistics_interval_ms": "metrics() returns all metrics",
        "stats_cb": "metrics() returns all metrics",
    }
)


class Setting(NamedTuple):
    """One row of the table.

    `kind` is one of int, float, bool, str, sent (a str that requests carry), list (of str), callable, any. Bounds are
    inclusive. `secret`: the value is never shown. `aliases`: names that other clients use for the same setting. `check`
    takes the place of the check by `kind`. `read` makes the value of the text in a properties file.
    """

    name: str
    kafka: str
    kind: str
    default: Any
    about: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    secret: bool = False
    aliases: tuple[str, ...] = ()
    check: "Callable[[Setting, Any], Any] | None" = None
    read: Callable[[str], Any] | None = None

    def shown(self, value: object) -> object:
        """The value, or asterisks in the place of a secret."""
        return "***" if self.secret else value


def row(kafka: str, kind: str, default: Any, about: str, **more: Any) -> Any:
    """A field of `Settings`. `more`: the other fields of a `Setting`."""
    return Setting("", kafka, kind, default, about, **more)


def none_if_empty(text: str) -> str | None:
    return text or None


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings(Frozen):
    """Values whose every field is a `row`, also those of base classes. Made by `of` or `from_kafka`."""

    table: ClassVar[Mapping[str, Setting]] = MappingProxyType({})
    by_kafka_name: ClassVar[Mapping[str, Setting]] = MappingProxyType({})
    stand_ins: ClassVar[frozenset[str]] = frozenset()
    """Kafka's names without a row, in whose place `from_kafka` sets another setting."""

    def __init_subclass__(cls) -> None:
        rows = {name: row._replace(name=name) for name, row in vars(cls).items() if isinstance(row, Setting)}
        for name in rows:
            delattr(cls, name)
        cls.table = MappingProxyType({**cls.table, **rows})
        names = {name: row for row in cls.table.values() for name in (row.kafka, *row.aliases)}
        cls.by_kafka_name = MappingProxyType(names)

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            if strange := values.keys() - self.table.keys():
                raise TypeError(f"{type(self).__name__} has no field {', '.join(map(repr, sorted(strange)))}")
            vars(self).update({name: values.get(name, row.default) for name, row in self.table.items()})

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Check settings by kohort's names.

        Raises ConfigError: unknown name (with the nearest known one), wrong type, out of bounds, or two that contradict
        each other.
        """
        config = cls(**{name: checked(cls.setting(name), value) for name, value in settings.items()})
        config.check()
        return config

    @classmethod
    def from_kafka(cls, properties: Mapping[str, Any]) -> Self:
        """Check settings by Kafka's dotted names; values may be strings, as in a properties file."""
        return cls.of(**by_our_names(properties, cls.by_kafka_name))

    @classmethod
    def setting(cls, name: str) -> Setting:
        """The row of a setting. Raises ConfigError for an unknown name."""
        if name not in cls.table:
            raise unknown(name, cls.table, "setting")
        return cls.table[name]

    @classmethod
    def part_of(cls, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The properties, by Kafka's names, that this table has."""
        return {name: value for name, value in properties.items() if name in cls.by_kafka_name}

    def check(self) -> None:
        """Raises ConfigError if two settings disagree."""

    def but(self, **values: Any) -> Self:
        """The same with some values, which are checked already, in the place of others."""
        return type(self)(**vars(self) | values)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        changed = [row for row in self.table.values() if getattr(self, row.name) != row.default]
        shown = ", ".join(f"{row.name}={row.shown(getattr(self, row.name))!r}" for row in changed)
        return f"{type(self).__name__}({shown})"


def by_our_names(properties: Mapping[str, Any], table: Mapping[str, Setting]) -> dict[str, Any]:
    """Return properties by kohort's names, with text converted to the type of its setting. Values are not checked.

    Raises ConfigError for a name that `table` does not have, and for text that cannot be converted.
    """
    ours = {}
    for name, value in properties.items():
        setting = table.get(name)
        if setting is None:
            raise unknown(name, table, "property")
        ours[setting.name] = from_text(setting, value) if isinstance(value, str) else value
    return ours


def _nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    from difflib import get_close_matches  # for mistakes only, which most consumers are made without

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def _meant(plain: str, table: Mapping[str, Setting]) -> Setting | None:
    """The setting that another client calls `plain`. All names are compared with underscores."""
    ours = {row.name: row for row in table.values()}
    by_kafka = {kafka.replace(".", "_"): row for row in ours.values() for kafka in (row.kafka, *row.aliases)}
    return by_kafka.get(plain) or ours.get(_CALLED.get(plain, plain))


def unknown(name: str, table: Mapping[str, Setting], noun: str) -> ConfigError:
    plain = name.replace(".", "_")
    if (meant := _meant(plain, table)) is not None:
        nearest: str | None = meant.name if noun == "setting" else meant.kafka
    else:  # a mistyped name is most often close to the right one
        nearest = _nearest(plain if noun == "setting" else name, table, cutoff=0.5)
    hint = f"did you mean {nearest!r}?" if nearest else "SETTINGS of the client's package lists them"
    reason = _LEFT_OUT.get(plain)
    if name.endswith("serializer"):
        reason = "keys and values are bytes, which your code encodes and decodes"
    if reason is not None:
        hint = f"leave it out: {reason}"
    return ConfigError(f"unknown {noun} {name!r}", hint=hint, setting=name)


def checked(setting: Setting, value: Any) -> Any:
    if value is None:
        if setting.optional:
            return None
        if setting.kind != "any" or setting.check is None:
            raise wrong_type(setting, value)
    return (setting.check or _CHECKS[setting.kind])(setting, value)


def _check_int(setting: Setting, value: Any) -> int:
    # bool is an int to Python, but True milliseconds are a mistake.
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(setting, value)
    return _bounded(setting, value)


def _bounded(setting: Setting, value: int) -> int:
    if setting.low is not None and value < setting.low:
        raise ConfigError(f"{setting.name} must be at least {setting.low}, not {value}", setting=setting.name)
    if setting.high is not None and value > setting.high:
        raise ConfigError(f"{setting.name} must be at most {setting.high}, not {value}", setting=setting.name)
    return value


def _check_bool(setting: Setting, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(setting, value)
    return value


def _check_str(setting: Setting, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(setting, value)
    if not value:
        hint = "give it a value" if setting.default == "" else "leave it out, or give it a value"
        raise ConfigError(f"{setting.name} must not be empty", hint=hint, setting=setting.name)
    if setting.choices and value not in setting.choices:
        nearest = _nearest(value, setting.choices)
        raise ConfigError(
            f"{setting.name} must be one of {', '.join(setting.choices)}, not {value!r}",
            hint=f"did you mean {nearest!r}?" if nearest else None,
            setting=setting.name,
        )
    return value


def _check_sent(setting: Setting, value: Any) -> str:
    """Raise ConfigError for text that no request can carry. NUL is invalid: it separates fields in SASL PLAIN."""
    text = _check_str(setting, value)
    reason = unsendable(text) or (f"it has a NUL at {text.index(NUL)}" if NUL in text else "")
    if reason and setting.secret:
        reason = "it is no UTF-8, has a NUL, or is too long"
    if reason:
        shown = "" if setting.secret else f": {text[:80]!r}"
        raise ConfigError(
            f"{setting.name} cannot be sent: {reason}{shown}",
            hint=f"use at most {INT16_MAX} bytes of UTF-8, without NUL",
            setting=setting.name,
        )
    return text


def _check_list(setting: Setting, value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):  # not shown, since it may have passwords
        hint = "from_config takes settings by Kafka's names"
        raise ConfigError(
            f"{setting.name} must be a str or a sequence of str, not a dict", hint=hint, setting=setting.name
        )
    items = tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise wrong_type(setting, value)
    items = tuple(items)
    if not all(isinstance(item, str) for item in items):
        raise wrong_type(setting, value)
    return tuple(item.strip() for item in items if item.strip())


def _check_callable(setting: Setting, value: Any) -> Any:
    """A function, or the name of one if the setting has choices."""
    if setting.choices and isinstance(value, str):
        return _check_str(setting, value)
    if not callable(value):
        raise wrong_type(setting, value)
    if is_async(value):
        raise wrong_type(setting, value, "a plain function, which is not awaited")
    return value


_CHECKS = {
    "int": _check_int,
    "bool": _check_bool,
    "str": _check_str,
    "sent": _check_sent,
    "list": _check_list,
    "callable": _check_callable,
    "any": lambda _setting, value: value,
}


def wrong_type(setting: Setting, value: object, expected: str | None = None) -> ConfigError:
    """The error for a value of the wrong type. `expected`: in the place of the kind's own words."""
    kinds = {"sent": "str", "list": "a str or a sequence of str", "callable": "a function"}
    shown = "" if setting.secret else f" {value!r}"
    return ConfigError(
        f"{setting.name} must be {expected or kinds.get(setting.kind, setting.kind)}, "
        f"not {type(value).__name__}{shown}",
        setting=setting.name,
    )


def from_text(setting: Setting, text: str) -> Any:
    """As Java reads it: blanks around it are none of it, though a secret may have some."""
    if not setting.secret:
        text = text.strip()
    if setting.read is not None:
        return setting.read(text)
    if setting.kind == "int":
        try:
            return int("" if "_" in text else text)  # Java reads no underscores
        except ValueError:
            raise wrong_type(setting, text) from None
    if setting.kind == "bool":
        if text.lower() not in ("true", "false"):
            raise wrong_type(setting, text)
        return text.lower() == "true"
    return text


def split_address(address: str) -> tuple[str, int]:
    """Return ("host", port) of "host:port" or "[::1]:port". A listener's "PLAINTEXT://" in front is removed.

    Raises ConfigError if there is no port, an invalid one, or a host with a character that separates addresses.
    """
    bare = address.rpartition("://")[2].strip()
    if "@" in bare:  # as in database URLs; the text before it may contain a password
        raise ConfigError(
            f"not a broker's address: {'...@' + bare.rpartition('@')[2]!r}",
            hint='use "host:port", and set sasl_username and sasl_password for a login',
        )
    host, colon, port = bare.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_host = host and not any(one.isspace() or one in ",;/" for one in host)
    if not colon or not is_host or not port.isdecimal() or len(port) > MOST_DIGITS or not 0 < int(port) < 65536:
        hint = 'use "host:port", such as "localhost:9092", with commas between several'
        raise ConfigError(f"not a broker's address: {address!r}", hint=hint)
    return host, int(port)
