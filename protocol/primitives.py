"""Kafka's types by name, for use in declarations.

A type (`int32`, `string`, `records`, ...) has a *classic* and a *flexible* form. Classic lengths are int16 or int32,
with -1 for null. Flexible lengths are unsigned varints of length + 1, with 0 for null (KIP-482).
`kohort.protocol.construct_types` has both as readable construct subcons, `kohort.protocol.compiled_codec` as compiled
nodes.
"""

from uuid import UUID

from kohort.common.named_tuple import NamedTuple

ZERO_UUID = UUID(int=0)  # Kafka has no null uuid: all zeros means "none"


class WireType(NamedTuple):
    """A type of the protocol by Kafka's name. `zero` is its default value."""

    name: str
    zero: object


boolean = WireType("bool", False)
int8 = WireType("int8", 0)
int16 = WireType("int16", 0)
uint16 = WireType("uint16", 0)
int32 = WireType("int32", 0)
uint32 = WireType("uint32", 0)
int64 = WireType("int64", 0)
float64 = WireType("float64", 0.0)
uuid = WireType("uuid", ZERO_UUID)
string = WireType("string", "")
bytes_ = WireType("bytes", b"")
records = WireType("records", None)
