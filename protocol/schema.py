"""Turns the declaration of a message into a class of typed frozen values, with one codec for each version.

A message is a class. Its body is the table of its fields, in wire order:

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: str = field(string, "0+")
        \"""The group.\"""
        group_instance_id: str | None = field(string, "3+", null="3+", default=None)
        \"""The group instance id of a static member (KIP-345), or null for a dynamic member.\"""

`made` walks a declaration in one version with a `MessageBuilder`. The builder of `construct_codec.py` makes the
readable construct reference. The builder of `compiled_codec.py` makes the compiled nodes.

The class is a tuple subclass without a `__dict__`. The compiled codec fills it with `tuple.__new__` alone. Callers
construct values by keyword and read fields by name. `Message.of(HeartbeatRequest)` is the codec.

Rules for every message:

- A request's field without a default must be given if the version has the field, unless it is tagged. A response's
  field without a default is its type's zero. `MISSING` means "not given" until a version is known.
- A field that the version lacks is omitted if it has its default or is `ignorable`, and rejected otherwise. After a
  parse it has its default.
- `tag` and `tagged` put a field behind the others (KIP-482). It is written only if it differs from its default.
"""

from __future__ import annotations

import enum
import functools
from collections import _tuplegetter  # type: ignore[attr-defined]  # namedtuple's own C getter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, cast, dataclass_transform

from kohort.common.named_tuple import NamedTuple
from kohort.protocol.primitives import WireType

if TYPE_CHECKING:

    class _Shape:
        """Base of values for type checkers, which see the fields only. The codecs know that a value is a tuple."""
else:
    _Shape = tuple

Made = TypeVar("Made")

FOREVER = 32767  # versions are int16


class Missing(enum.Enum):
    """The placeholder of a field that was not given and has no default."""

    MISSING = enum.auto()

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing.MISSING


class Versions(NamedTuple):
    """A closed range of versions; empty if `until` < `since`. Written as in Kafka: "0+", "2-4", "7", or ""."""

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
    """One row of a message's table."""

    name: str
    of: WireType | type[Struct]
    array: bool
    versions: Versions
    nullable: Versions
    default: Any  # MISSING if the declaration has no default
    ignorable: bool
    tag: int | None
    tagged: Versions
    flexible: bool  # False: the field is classic in flexible versions too

    @property
    def zero(self) -> Any:
        """The field's value after a parse of a version without it."""
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
        """Return the result of the builder `by` for this field in one version."""
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
        """Build a type of `kohort.protocol.primitives`, by its name."""

    def array(self, element: Made, *, flexible: bool, nullable: bool) -> Made:
        """Build a count and that many elements."""

    def nullable(self, struct: Made) -> Made:
        """Build a struct that may be null."""

    def struct(self, type_: type[Struct], version: int, flexible: bool) -> Made:
        """Build a struct from the result of `members`."""


def members(
    type_: type[Struct], by: MessageBuilder[Made], version: int, flexible: bool
) -> tuple[list[tuple[int, Field, Made]], list[tuple[int, Field, Made]]]:
    """Return a struct's fields in one version, then its tagged fields, as (index in the value, field, builder's
    result)."""
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
    """One row of the table: a type ([type] for an array), and the versions that have the field. Its docstring follows
    it.

    `null`: versions in which it may be null. `ignorable`: versions without the field omit it for any value. `tag` and
    `tagged`: its tag, and the versions in which it is a tagged field. `flexible=False`: never compact.
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


@functools.cache
def _documented(versions: Versions) -> str:
    return f"Versions {versions}."


# Field specifiers are omitted on purpose. To a type checker every field then has a default, which is correct at
# construction. The required fields depend on the version, which is known only when the bytes are built.
@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructMeta(type):
    """Turns a table of fields into a tuple subclass with one getter for each field."""

    _required: bool

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **how: Any) -> Any:
        fields = tuple(Field(key, *value[1:]) for key, value in namespace.items() if isinstance(value, Field))
        names = tuple(each.name for each in fields)
        zeros = tuple(each.zero for each in fields)
        required = next((base._required for base in bases if isinstance(base, StructMeta)), False)
        # A tagged field may always be omitted: this is the purpose of tags.
        defaults = [each.default if each.tag is None else zero for each, zero in zip(fields, zeros, strict=True)]
        body = namespace | {
            "__slots__": (),
            "__match_args__": names,
            "_fields": names,
            "_table": fields,
            "_zeros": zeros,
            "_defaults": tuple(defaults) if required else zeros,
        }
        for index, each in enumerate(fields):
            body[each.name] = _tuplegetter(index, _documented(each.versions))
        return super().__new__(mcs, name, bases, body, **how)


class Struct(_Shape, metaclass=StructMeta):
    """A frozen value with named fields. Members with a leading underscore are those of a named tuple."""

    _fields: ClassVar[tuple[str, ...]]
    _table: ClassVar[tuple[Field, ...]]
    _zeros: ClassVar[tuple[Any, ...]]  # values after a parse of a version without the fields
    _defaults: ClassVar[tuple[Any, ...]]  # values of fields that the constructor did not get
    _required: ClassVar[bool] = False

    if not TYPE_CHECKING:

        def __new__(cls, **values: Any) -> Self:
            made = tuple(map(values.pop, cls._fields, cls._defaults))
            if values:
                raise TypeError(f"{cls.__name__} has no field {', '.join(map(repr, values))}")
            return tuple.__new__(cls, made)

        def __reduce__(self) -> tuple[object, ...]:
            return type(self)._make, (tuple(self),)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """Construct a value from all fields, in order."""
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
        """Return the same value with some fields changed."""
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
    """A message: a complete request, response or data structure."""

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
    """Return the first version of the message in which `type_`, or a part of it, has the field `name`."""
    return next(each.versions.since for each in type_._table if each.name == name)


# ------------------------------------------------------------------------------------------------------------------
# codecs
# ------------------------------------------------------------------------------------------------------------------

Buffer = bytes | bytearray | memoryview
UNBOUNDED = (1 << 63) - 1
