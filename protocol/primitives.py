"""Kafka's types by name: what a declaration's table is written in.

A type (`int32`, `string`, `records`, ...) has a *classic* form (lengths as int16 or int32, -1 for null) and a
*flexible* one (lengths as unsigned varints holding length + 1, 0 for null; KIP-482). `kohort.protocol.construct_types`
gives both as readable construct subcons, `kohort.protocol.compiled_codec` as compiled nodes.
"""

from typing import NamedTuple
from uuid import UUID

ZERO_UUID = UUID(int=0)  # Kafka has no null uuid: all zeros stands for "none"


class WireType(NamedTuple):
    """A type of the protocol by Kafka's name, with the value that stands for "nothing said" (`zero`)."""

    name: str
    zero: object
    can_be_null: bool = False


boolean = WireType("bool", False)
int8 = WireType("int8", 0)
int16 = WireType("int16", 0)
uint16 = WireType("uint16", 0)
int32 = WireType("int32", 0)
uint32 = WireType("uint32", 0)
int64 = WireType("int64", 0)
float64 = WireType("float64", 0.0)
uuid = WireType("uuid", ZERO_UUID)
string = WireType("string", "", can_be_null=True)
bytes_ = WireType("bytes", b"", can_be_null=True)
records = WireType("records", None, can_be_null=True)
