"""The codec of a message in all its versions: compiled, or interpreted by construct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from kohort.common.errors import WireError
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.schema import UNBOUNDED, Buffer, Top

if TYPE_CHECKING:
    from kohort.protocol.compiled_codec import LoweredCodec
    from kohort.protocol.construct_codec import ConstructCodec


T = TypeVar("T", bound=Top)


class Message(Generic[T]):
    """The codec of one message in all its versions."""

    def __init__(self, struct: type[T]) -> None:
        self.struct = struct
        self._codecs: dict[int, LoweredCodec | ConstructCodec] = {}

    @staticmethod
    def of(struct: type[T]) -> Message[T]:
        """Return the codec of a message class. There is one per class."""
        return cast(Message[T], _MESSAGES.setdefault(struct, Message(struct)))

    @property
    def name(self) -> str:
        return self.struct.__name__

    @property
    def key(self) -> int | None:
        return self.struct._key

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest declared version, as (lowest, highest)."""
        return self.struct._versions.since, self.struct._versions.until

    @property
    def flexible_since(self) -> int | None:
        """The first version with compact lengths and tagged fields; None if there is none."""
        return None if self.struct._flexible.until < 0 else self.struct._flexible.since

    def is_flexible(self, version: int) -> bool:
        return version in self.struct._flexible

    def parse(self, data: Buffer, version: int) -> T:
        """Parse all of `data`. Raises WireError, or UnsupportedVersion."""
        value, end = self.parse_from(data, 0, version)
        if end != (size := memoryview(data).nbytes):
            raise WireError(f"{size - end} unread bytes at the end", api=self.name, version=version, offset=end)
        return value

    def parse_from(self, data: Buffer, at: int, version: int, budget: int = UNBOUNDED) -> tuple[T, int]:
        """Return the value that starts at `at`, and its end. Offsets in errors count from the start of `data`.

        Raises WireError, also if the values would take more than `budget` bytes of memory.
        """
        return (self._codecs.get(version) or self.codec(version)).read(data, at, budget)

    def build(self, value: T | Mapping[str, object], version: int) -> bytes:
        """The bytes of a typed value or a mapping (nested ones too). Raises WireError, or UnsupportedVersion."""
        return (self._codecs.get(version) or self.codec(version)).write(value)

    def build_frame(self, header: bytes, value: T | Mapping[str, object], version: int) -> bytes:
        """A frame: its length, the header, and what `build` returns. The value's bytes are copied once only."""
        return (self._codecs.get(version) or self.codec(version)).write_frame(header, value)

    def codec(self, version: int) -> LoweredCodec | ConstructCodec:
        """Return the codec of a version, built at first use: compiled, or construct if the extension is not built."""
        if version not in self._codecs:
            try:
                from kohort.protocol.compiled_codec import lower
            except ImportError:
                self._codecs[version] = self.reference(version)
            else:
                self._codecs[version] = lower(self.struct, self._spoken(version))
        return self._codecs[version]

    def reference(self, version: int) -> ConstructCodec:
        """The interpreted construct of a version. The compiled codec must give equal results."""
        from kohort.protocol.construct_codec import interpreted  # construct takes long to import

        return interpreted(self.struct, self._spoken(version))

    def _spoken(self, version: int) -> int:
        if version not in self.struct._versions:
            raise UnsupportedVersion(
                f"{self.name} has versions {self.struct._versions}, not {version}", api=self.name, version=version
            )
        return version


_MESSAGES: dict[type[Top], Message[Any]] = {}
