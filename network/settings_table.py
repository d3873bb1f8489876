"""Tables of settings: a row a setting, and the checks by its kind."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

from kohort.common.frozen import Frozen
from kohort.network.arguments import INT16_MAX, unsendable
from kohort.network.errors import ConfigError

KIB, MIB = 1024, 1024 * 1024
NUL = "\0"
INT32_MAX = 2**31 - 1


# The client-side assignors by Kafka's class names, so that a Java properties file can be used as it is.
ASSIGNORS_BY_KAFKA_NAME: Mapping[str, str] = MappingProxyType(
    {
        "org.apache.kafka.clients.consumer.RangeAssignor": "range",
        "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    }
)


# The function's own repr may show what was bound to it.
_HIDDEN = frozenset({"ssl_key_password", "sasl_password", "sasl_oauth_token", "sasl_oauth_client_secret"})


# What Kafka's own clients take in any case, and what is empty with them by default.
_IN_ANY_CASE: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"security_protocol": str.upper, "protocol": str.lower, "metadata_recovery_strategy": str.lower}
)
_EMPTY_IS_NONE = frozenset({"rack"})


# Names of other clients for kohort's settings, for which the nearest name by letters would be another setting.
_CALLED = MappingProxyType(
    dict.fromkeys(("bootstrap_servers", "servers", "server", "brokers", "broker", "broker_list", "hosts"), "bootstrap")
)


class Setting(NamedTuple):
    """One row of the table. `kind` is one of int, float, bool, str, sent (a str that requests carry), list (of str),
    any; bounds are inclusive."""

    name: str
    kafka: str
    kind: str
    default: Any
    about: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False


def row(
    kafka: str,
    kind: str,
    default: Any,
    about: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    optional: bool = False,
) -> Any:
    """A field of `Settings`."""
    return Setting("", kafka, kind, default, about, low, high, choices, optional)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings(Frozen):
    """Values with one field for each `row`, created by keyword from checked values."""

    table: ClassVar[Mapping[str, Setting]]

    def __init_subclass__(cls) -> None:
        rows = {name: row._replace(name=name) for name, row in vars(cls).items() if isinstance(row, Setting)}
        for name in rows:
            delattr(cls, name)
        cls.table = MappingProxyType(rows)

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            if strange := values.keys() - self.table.keys():
                raise TypeError(f"{type(self).__name__} has no field {', '.join(map(repr, sorted(strange)))}")
            vars(self).update({name: values.get(name, row.default) for name, row in self.table.items()})

    def but(self, **values: Any) -> Self:
        """The same with some values, which are checked already, in the place of others."""
        return type(self)(**vars(self) | values)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name, row in self.table.items() if getattr(self, name) != row.default}
        return f"{type(self).__name__}({', '.join(f'{name}={hidden(name, value)!r}' for name, value in shown.items())})"


def hidden(name: str, value: object) -> object:
    return "***" if name in _HIDDEN else value


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


def unknown(name: str, known: Iterable[str], noun: str) -> ConfigError:
    # A mistyped name is most often close to one of kohort's or Kafka's names, in either method of creation.
    ours = name.replace(".", "_") if noun == "setting" else name
    nearest = _CALLED.get(ours) if noun == "setting" else None
    nearest = nearest or _nearest(ours, known, cutoff=0.5)
    hint = f"did you mean {nearest!r}?" if nearest else "kohort.coordinator_client.consumer_config.SETTINGS lists them"
    return ConfigError(f"unknown {noun} {name!r}", hint=hint, setting=name)


def checked(setting: Setting, value: Any) -> Any:
    if value is None:
        if setting.optional:
            return None
        raise _wrong(setting, value)
    return _CHECKS[setting.kind](setting, value)


def _check_int(setting: Setting, value: Any) -> int:
    # bool is an int to Python, but True milliseconds are a mistake.
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(setting, value)
    return _bounded(setting, value)


def _bounded(setting: Setting, value: int) -> int:
    if setting.low is not None and value < setting.low:
        raise ConfigError(f"{setting.name} must be at least {setting.low}, not {value}", setting=setting.name)
    if setting.high is not None and value > setting.high:
        raise ConfigError(f"{setting.name} must be at most {setting.high}, not {value}", setting=setting.name)
    return value


def _check_bool(setting: Setting, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(setting, value)
    return value


def _check_str(setting: Setting, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(setting, value)
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
    if reason and setting.name in _HIDDEN:
        reason = "it is no UTF-8, has a NUL, or is too long"
    if reason:
        shown = "" if setting.name in _HIDDEN else f": {text[:80]!r}"
        raise ConfigError(
            f"{setting.name} cannot be sent: {reason}{shown}",
            hint=f"at most {INT16_MAX} bytes of UTF-8, without NUL",
            setting=setting.name,
        )
    return text


def _check_list(setting: Setting, value: Any) -> tuple[str, ...]:
    items = tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise _wrong(setting, value)
    items = tuple(items)
    if not all(isinstance(item, str) for item in items):
        raise _wrong(setting, value)
    return tuple(item.strip() for item in items if item.strip())


def _check_assignors(setting: Setting, value: Any) -> tuple[Any, ...]:
    items = tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise _wrong(setting, value)
    items = tuple(_assignor_name(item) if isinstance(item, str) else item for item in items)
    if not items:
        raise ConfigError("assignors must name at least one", setting=setting.name)
    if strange := [item for item in items if not isinstance(item, str) and not hasattr(item, "assign")]:
        raise ConfigError(
            f"not an assignor: {strange[0]!r}", hint="name one, or pass an instance with assign()", setting=setting.name
        )
    return items


def _assignor_name(text: str) -> str:
    return ASSIGNORS_BY_KAFKA_NAME.get(text.strip(), text.strip())


def _check_reset(setting: Setting, value: Any) -> str:
    # Imported here because coordinator_client/offsets/positions.py reads Config.
    from kohort.coordinator_client.offsets.offset_reset import ResetPolicy

    if not isinstance(value, str):
        raise _wrong(setting, value)
    ResetPolicy.of(value)
    return value


def _check_callable(setting: Setting, value: Any) -> Any:
    if not callable(value):
        raise _wrong(setting, value)
    return value


def _check_any(_setting: Setting, value: Any) -> Any:
    return value


_CHECKS = {
    "int": _check_int,
    "bool": _check_bool,
    "str": _check_str,
    "sent": _check_sent,
    "list": _check_list,
    "assignors": _check_assignors,
    "reset": _check_reset,
    "callable": _check_callable,
    "any": _check_any,
}


def _wrong(setting: Setting, value: object) -> ConfigError:
    kind = {
        "sent": "str",
        "list": "a str or a sequence of str",
        "assignors": "names or assignors",
        "reset": "a str",
        "callable": "a function",
    }
    shown = "" if setting.name in _HIDDEN else f" {value!r}"
    return ConfigError(
        f"{setting.name} must be {kind.get(setting.kind, setting.kind)}, not {type(value).__name__}{shown}",
        setting=setting.name,
    )


def from_text(setting: Setting, text: str) -> Any:
    """As Java reads it: blanks around it are none of it, though a secret may have some."""
    if setting.name not in _HIDDEN:
        text = text.strip()
    if setting.name in _IN_ANY_CASE:
        return _IN_ANY_CASE[setting.name](text)
    if setting.name in _EMPTY_IS_NONE and not text:
        return None
    if setting.kind == "int":
        try:
            return int(text)
        except ValueError:
            raise _wrong(setting, text) from None
    if setting.kind == "bool":
        if text.lower() not in ("true", "false"):
            raise _wrong(setting, text)
        return text.lower() == "true"
    return text


def split_address(address: str) -> tuple[str, int]:
    """Return ("host", port) of "host:port" or "[::1]:port". A listener's "PLAINTEXT://" in front is removed.

    Raises ConfigError if there is no port, or an invalid one.
    """
    bare = address.rpartition("://")[2].strip()
    if "@" in bare:  # as in database URLs; the text before it may contain a password
        raise ConfigError(
            f"not a broker's address: {'...@' + bare.rpartition('@')[2]!r}",
            hint='use "host:port", and set sasl_username and sasl_password for a login',
        )
    host, colon, port = bare.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"not a broker's address: {address!r}", hint='"host:port", as in "localhost:9092"')
    return host, int(port)
