"""One declaration of a message -> typed frozen values, and one codec per version.

A message is a class whose body is the table of its fields, in the order in which they stand on the wire:

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: str = field(string, "0+")
        \"""The group.\"""
        group_instance_id: str | None = field(string, "3+", null="3+", default=None)
        \"""The static member's own name (KIP-345), or null for a dynamic member.\"""

`made` walks a declaration in one version with a `Maker`: `construct_codec.py` has the one that makes a construct of it,
the readable truth, and `compiled_codec.py` the one that makes the compiled nodes which run.

The class is a real tuple subclass without a `__dict__`: the lowered codec fills it with `tuple.__new__` and nothing
else. People build it by keyword and read it by name. `Message.of(HeartbeatRequest)` is its codec.

Rules that hold for every message:

- A request's field without a default must be given wherever the version has the field, unless it is tagged; a
  response's field without one is its type's zero. `MISSING` stands for "not given" until a version is known.
- A field outside the version is left out when it is at its default or `ignorable`, refused otherwise; after a parse it
  holds its default.
- `tag` and `tagged` put a field behind the others (KIP-482): it is written only when it differs from its default.
"""

from __future__ import annotations

import enum
import functools
from collections import _tuplegetter  # type: ignore[attr-defined]  # namedtuple's own C getter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, cast, dataclass_transform

from kohort.protocol.primitives import WireType

if TYPE_CHECKING:

    class _Shape:
        """To a type checker a value has its fields only; that it is a tuple is between us and the codecs."""
else:
    _Shape = tuple

Made = TypeVar("Made")

FOREVER = 32767  # versions are int16


class Missing(enum.Enum):
    """Stands in a value for a field that was not given and has no default."""

    MISSING = enum.auto()

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing.MISSING


class Versions(NamedTuple):
    """A closed range of versions; empty where `until` < `since`. Written as Kafka does: "0+", "2-4", "7", or ""."""

    since: int
    until: int

    @classmethod
    @functools.cache
    def of(cls, text: str) -> Versions:
        if not text:
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        since, _, until = text.partition("-")
        return cls(int(since), int(until or since))

    def __contains__(self, version: int) -> bool:  # type: ignore[override]  # a range of versions, not the pair
        return self.since <= version <= self.until

    def __str__(self) -> str:
        if self.until < self.since:
            return ""
        if self.until == FOREVER:
            return f"{self.since}+"
        return f"{self.since}" if self.since == self.until else f"{self.since}-{self.until}"


class Field(NamedTuple):
    """One line of a message's table."""

    name: str
    of: WireType | type[Struct]
    array: bool
    versions: Versions
    nullable: Versions
    default: Any  # MISSING where the declaration gives none
    ignorable: bool
    tag: int | None
    tagged: Versions
    flexible: bool  # False: keeps its classic form even in flexible versions

    @property
    def zero(self) -> Any:
        """The value of the field after a parse of a version without it."""
        if self.default is not MISSING:
            return self.default
        if self.array:
            return ()
        return self.of.zero if isinstance(self.of, WireType) else self.of._zero()

    @property
    def tag_number(self) -> int:
        """The tag of a field that is tagged in some version."""
        if self.tag is None:
            raise TypeError(f"{self.name} is tagged without a tag")
        return self.tag

    def made(self, by: MessageBuilder[Made], version: int, flexible: bool) -> Made:
        """The result of `by` for this field in one version."""
        flexible = flexible and self.flexible
        nullable = version in self.nullable
        if isinstance(self.of, WireType):
            one = by.plain(self.of.name, flexible=flexible, nullable=nullable and not self.array)
        else:
            one = by.struct(self.of, version, flexible)
            if nullable and not self.array:
                return by.nullable(one)
        return by.array(one, flexible=flexible, nullable=nullable) if self.array else one


class MessageBuilder(Protocol[Made]):
    """The interface of the builders that turn a declaration's fields into a codec; see `Field.made`."""

    def plain(self, name: str, *, flexible: bool, nullable: bool) -> Made:
        """Of a type of `kohort.protocol.primitives`, by its name."""

    def array(self, element: Made, *, flexible: bool, nullable: bool) -> Made:
        """Of a count and as many elements."""

    def nullable(self, struct: Made) -> Made:
        """Of a struct that may be null."""

    def struct(self, type_: type[Struct], version: int, flexible: bool) -> Made:
        """Of a struct: what `members` gives."""


def members(
    type_: type[Struct], by: MessageBuilder[Made], version: int, flexible: bool
) -> tuple[list[tuple[int, Field, Made]], list[tuple[int, Field, Made]]]:
    """A struct's fields in one version, then its tagged ones: (place in the value, field, what was made of it) each."""
    found: tuple[list[tuple[int, Field, Made]], list[tuple[int, Field, Made]]] = ([], [])
    for slot, each in enumerate(type_._table):
        if version in each.versions:
            found[version in each.tagged].append((slot, each, each.made(by, version, flexible)))
    return found


def field(
    type: WireType | type[Struct] | list[Any],  # noqa: A002  # it is the column's name
    versions: str,
    *,
    null: str = "",
    default: Any = MISSING,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str = "",
    flexible: bool = True,
) -> Any:
    """A line of the table: type ([type] for an array) and the versions that have it; what it means stands below it.

    `null`: versions in which it may be null. `ignorable`: left out in silence by versions that lack it, whatever its
    value. `tag`, `tagged`: its tag, and the versions in which it is a tagged field. `flexible=False`: never compact.
    """
    return Field(
        name="",
        of=type[0] if isinstance(type, list) else type,
        array=isinstance(type, list),
        versions=Versions.of(versions),
        nullable=Versions.of(null),
        default=default,
        ignorable=ignorable,
        tag=tag,
        tagged=Versions.of(tagged),
        flexible=flexible,
    )


# ------------------------------------------------------------------------------------------------------------------
# values
# ------------------------------------------------------------------------------------------------------------------


# Field specifiers are left out on purpose: to a type checker every field then has a default, which is the truth at
# the time of construction; which ones a version asks for is known only when it is built.
@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructMeta(type):
    """Turns a table of fields into a tuple subclass with one getter a field."""

    _required: bool

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **how: Any) -> Any:
        fields = tuple(value._replace(name=key) for key, value in namespace.items() if isinstance(value, Field))
        body = {key: value for key, value in namespace.items() if not isinstance(value, Field)}
        for index, each in enumerate(fields):
            body[each.name] = _tuplegetter(index, f"Versions {each.versions}.")
        required = next((base._required for base in bases if isinstance(base, StructMeta)), False)
        body |= {
            "__slots__": (),
            "__match_args__": tuple(each.name for each in fields),
            "_fields": tuple(each.name for each in fields),
            "_table": fields,
            "_zeros": tuple(each.zero for each in fields),
            # A tagged field may always be left out: that is what tags are for.
            "_defaults": tuple(each.default if required and each.tag is None else each.zero for each in fields),
        }
        return super().__new__(mcs, name, bases, body, **how)


class Struct(_Shape, metaclass=StructMeta):
    """A frozen value with named fields. The members that start with an underscore are those of a named tuple."""

    _fields: ClassVar[tuple[str, ...]]
    _table: ClassVar[tuple[Field, ...]]
    _zeros: ClassVar[tuple[Any, ...]]  # what a parse gives for fields that the version lacks
    _defaults: ClassVar[tuple[Any, ...]]  # what construction gives for fields left out
    _required: ClassVar[bool] = False

    if not TYPE_CHECKING:

        def __new__(cls, **values: Any) -> Self:
            made = [values.pop(name, default) for name, default in zip(cls._fields, cls._defaults, strict=True)]
            if values:
                raise TypeError(f"{cls.__name__} has no field {', '.join(map(repr, values))}")
            return tuple.__new__(cls, made)

        def __reduce__(self) -> tuple[object, ...]:
            return type(self)._make, (tuple(self),)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """From the values of all fields, in order."""
        made = tuple(values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
        return cast(Self, tuple.__new__(cast(Any, cls), made))

    @classmethod
    def _zero(cls) -> Self:
        return cls._make(cls._zeros)

    def _asdict(self) -> dict[str, Any]:
        """Field name -> value, one level deep."""
        return dict(zip(self._fields, cast(tuple[Any, ...], self), strict=True))

    def _replace(self, **changes: Any) -> Self:
        """The same value with some fields changed."""
        return type(self)(**self._asdict() | changes)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items() if value is not MISSING)
        return f"{type(self).__name__}({given})"


class RequestPart(Struct):
    """A struct inside a request: fields without a default must be given."""

    _required = True


class ResponsePart(Struct):
    """A struct inside a response: fields without a default are their type's zero."""


class Top(Struct):
    """A message: what stands alone on the wire."""

    _key: ClassVar[int | None]
    _versions: ClassVar[Versions]
    _flexible: ClassVar[Versions]

    def __init_subclass__(cls, *, key: int | None = None, versions: str = "", flexible: str = "") -> None:
        cls._key = key
        cls._versions = Versions.of(versions)
        cls._flexible = Versions.of(flexible)


class Request(Top):
    """A message that a client sends."""

    _required = True


class Response(Top):
    """A message that a broker sends in response."""


class Data(Top):
    """A structure that is not an API of its own: a header, or bytes embedded in another message."""


@functools.cache
def first_version(type_: type[Struct], name: str) -> int:
    """The first version of the message in which `type_`, it or a part of it, has the field `name`."""
    return next(each.versions.since for each in type_._table if each.name == name)


# ------------------------------------------------------------------------------------------------------------------
# codecs
# ------------------------------------------------------------------------------------------------------------------

Buffer = bytes | bytearray | memoryview
UNBOUNDED = (1 << 63) - 1
