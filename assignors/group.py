"""The group as input of an assignor, with integers in place of names.

Topics and members are sorted once, here. A partition is its index among all partitions of all subscribed topics
(`topic_offsets[topic] + partition`). An assignor that uses these integers needs no names and no dictionary lookups for
a million partitions. It cannot depend on the order in which members joined.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

from kohort.assignors.errors import BadGroup
from kohort.common import TopicPartition
from kohort.common.frozen import Frozen
from kohort.common.named_tuple import NamedTuple

#: The generation of a member that has not joined one yet (KIP-792).
NO_GENERATION = -1

#: Partitions that a member claims to own: `TopicPartition`s in any order, or {topic: partitions}.
Owned = Iterable[tuple[str, int]] | Mapping[str, Iterable[int]]

_MEMBER_FIELDS = frozenset({"topics", "owned", "generation", "rack", "user_data", "instance_id"})
_MAX_PARTITIONS = 2**31 - 1


class Member(NamedTuple):
    """One member of the group.

    `subscribed_topics` are indexes into `GroupView.topics`; `owned_partitions` are partition indexes.
    `owned_partitions` holds what the member claims to own. Partitions outside the subscribed topics are left out.
    Claims that conflict with those of other members are kept (`Claims.settle` resolves them).
    """

    id: str
    topics: tuple[str, ...]
    subscribed_topics: tuple[int, ...]
    owned_partitions: array[int]
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None
    instance_id: str | None = None


class GroupView(Frozen):
    """The input of an assignor.

    `topics`: sorted names of the subscribed topics that have partitions. `topic_offsets`: len(topics) + 1 ascending
    partition indexes; topic t has `topic_offsets[t] <= index < topic_offsets[t + 1]`. `members`: static members first,
    by instance id, then the others by member id, in Kafka's order. `unknown_topics`: subscribed topics without
    partitions. `racks[index]`: the racks that hold a replica of the partition; `racks` is None if no rack is known.
    `lag[index]`: the lag of the partition; `lag` is None if it was not requested.
    """

    topics: tuple[str, ...]
    topic_offsets: tuple[int, ...]
    members: tuple[Member, ...]
    unknown_topics: tuple[str, ...]
    racks: Sequence[frozenset[str]] | None
    lag: array[int] | None

    def __init__(
        self,
        topics: tuple[str, ...],
        topic_offsets: tuple[int, ...],
        members: tuple[Member, ...],
        unknown_topics: tuple[str, ...] = (),
        racks: Sequence[frozenset[str]] | None = None,
        lag: array[int] | None = None,
    ) -> None:
        vars(self).update(
            topics=topics,
            topic_offsets=topic_offsets,
            members=members,
            unknown_topics=unknown_topics,
            racks=racks,
            lag=lag,
        )

    @classmethod
    def of(
        cls,
        partitions: Mapping[str, int],
        members: Mapping[str, Mapping[str, Any]],
        racks: Mapping[str, Sequence[Collection[str]]] | None = None,
        lag: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
    ) -> GroupView:
        """Create a view from names.

        `partitions`: {topic: number of partitions}. `members`: {member id: dict(topics=names, owned=claimed partitions,
        generation=int, rack=str or None, user_data=bytes or None, instance_id=str or None)}; only `topics` is required.
        `racks`: {topic: for each partition the racks of its replicas}. `lag`: {TopicPartition: records waiting};
        partitions without an entry count 0.

        Raises `BadGroup` for counts below 0, too many partitions, unknown fields, generations beyond int32 and racks of
        the wrong length.
        """
        _check(partitions, members)
        wanted = {topic for member in members.values() for topic in member["topics"]}
        topics = tuple(sorted((topic for topic in wanted if partitions.get(topic)), key=java_order))
        starts = [0]
        for topic in topics:
            starts.append(starts[-1] + partitions[topic])
        if starts[-1] > _MAX_PARTITIONS:
            raise BadGroup(f"{starts[-1]} partitions are more than an index of 31 bits can count")
        number = {topic: index for index, topic in enumerate(topics)}
        # In most groups all subscriptions are equal, and all members share one row of topics.
        seen: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        rows = []
        for member_id, said in members.items():
            names, wants = _subscribed(tuple(said["topics"]), number, seen)
            rows.append(
                Member(
                    id=member_id,
                    topics=names,
                    subscribed_topics=wants,
                    owned_partitions=indexes(said.get("owned", ()), number, starts),
                    generation=said.get("generation", NO_GENERATION),
                    rack=said.get("rack") or None,
                    user_data=said.get("user_data"),
                    instance_id=said.get("instance_id"),
                )
            )
        return cls(
            topics=topics,
            topic_offsets=tuple(starts),
            members=tuple(sorted(rows, key=_member_order)),
            unknown_topics=tuple(sorted(wanted - number.keys(), key=java_order)),
            racks=_rack_row(racks, topics, starts) if racks else None,
            lag=_lag_row(lag, number, starts) if lag is not None else None,
        )

    @property
    def size(self) -> int:
        """The number of partitions to assign, without topics that have no subscriber."""
        return self.topic_offsets[-1]

    @cached_property
    def topics_on_wire(self) -> list[bytes]:
        """`topics` in UTF-8."""
        return [topic.encode() for topic in self.topics]

    @cached_property
    def numbers_on_wire(self) -> dict[bytes, int]:
        """The index of each topic by its name in UTF-8."""
        return {topic: number for number, topic in enumerate(self.topics_on_wire)}

    @cached_property
    def starts_row(self) -> array[int]:
        """`topic_offsets` as an array of int32."""
        return array("i", self.topic_offsets)

    @cached_property
    def number_of_topic(self) -> Mapping[str, int]:
        """Topic -> its index in `topics`."""
        return {topic: index for index, topic in enumerate(self.topics)}

    @cached_property
    def number_of_member(self) -> Mapping[str, int]:
        """Member id -> its index in `members`."""
        return {member.id: index for index, member in enumerate(self.members)}

    @cached_property
    def subscribers(self) -> Sequence[tuple[int, ...]]:
        """The members subscribed to each topic, ascending; equal rows are the same tuple object."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for index, member in enumerate(self.members):
            alike.setdefault(member.subscribed_topics, []).append(index)
        # Members of one kind have equal subscriptions. Most groups have few kinds.
        kinds: list[list[int]] = [[] for _ in self.topics]
        for kind, wants in enumerate(alike):
            for topic in wants:
                kinds[topic].append(kind)
        members = list(alike.values())
        rows: dict[tuple[int, ...], tuple[int, ...]] = {}
        for row in map(tuple, kinds):
            if row not in rows:
                rows[row] = tuple(sorted(chain.from_iterable(members[kind] for kind in row)))
        return [rows[tuple(row)] for row in kinds]

    def partition(self, index: int) -> TopicPartition:
        """The name of a partition index. Raises IndexError for an index behind the last topic."""
        topic = bisect_right(self.topic_offsets, index) - 1
        return TopicPartition(self.topics[topic], index - self.topic_offsets[topic])

    def index(self, topic: str, partition: int) -> int | None:
        """The index of a named partition; None if it is not of the subscribed topics. Raises no error."""
        number = self.number_of_topic.get(topic)
        if number is None or not 0 <= partition < self.topic_offsets[number + 1] - self.topic_offsets[number]:
            return None
        return self.topic_offsets[number] + partition


def indexes(owned: Owned, number: Mapping[str, int], starts: Sequence[int]) -> array[int]:
    """Partition indexes of named partitions, in the given order, without unknown ones."""
    found = array("i")
    if isinstance(owned, Mapping):
        for topic, numbers in owned.items():
            if (row := number.get(topic)) is not None:
                start, count = starts[row], starts[row + 1] - starts[row]
                found.extend(start + partition for partition in numbers if 0 <= partition < count)
    else:
        for topic, partition in owned:
            row = number.get(topic)
            if row is not None and 0 <= partition < starts[row + 1] - starts[row]:
                found.append(starts[row] + partition)
    return found


def java_order(name: str) -> bytes:
    """A sort key that orders names as Java does, by UTF-16 units.

    This differs from the order of code points beyond U+FFFF. Clients in several languages may lead the same group in
    turn, and must sort alike.
    """
    return name.encode("utf-16-be", "surrogatepass")


def _subscribed(
    topics: tuple[str, ...],
    number: Mapping[str, int],
    seen: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[int, ...]]],
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """(the names, sorted and unique; the indexes of those that have partitions)."""
    if topics not in seen:
        distinct = set(topics)
        seen[topics] = (
            tuple(sorted(distinct, key=java_order)),
            tuple(sorted(number[topic] for topic in distinct if topic in number)),
        )
    return seen[topics]


def _member_order(member: Member) -> tuple[bool, bytes]:
    return member.instance_id is None, java_order(member.id if member.instance_id is None else member.instance_id)


def _check(partitions: Mapping[str, int], members: Mapping[str, Mapping[str, Any]]) -> None:
    for topic, count in partitions.items():
        if count < 0:
            raise BadGroup(f"a topic cannot have {count} partitions", topic=topic)
    instances: dict[str, str] = {}
    for member_id, said in members.items():
        if "topics" not in said:
            raise BadGroup(
                "a member without a subscription",
                member=member_id,
                hint="pass topics=() for a member without a subscription",
            )
        if isinstance(said["topics"], str):
            raise BadGroup("topics is one string", member=member_id, hint=f"write topics=[{said['topics']!r}]")
        if unknown := sorted(said.keys() - _MEMBER_FIELDS):
            raise BadGroup(
                f"unknown field {unknown[0]!r}", member=member_id, hint=f"known: {', '.join(sorted(_MEMBER_FIELDS))}"
            )
        generation = said.get("generation", NO_GENERATION)
        if not -(2**31) <= generation < 2**31:  # a member may send any int32
            raise BadGroup(f"generation {generation} is beyond int32", member=member_id)
        if (instance := said.get("instance_id")) is not None:
            if instance in instances:
                raise BadGroup(
                    f"two members called instance {instance!r}", member=member_id, other_member=instances[instance]
                )
            instances[instance] = member_id


def _rack_row(
    racks: Mapping[str, Sequence[Collection[str]]], topics: Sequence[str], starts: Sequence[int]
) -> Sequence[frozenset[str]]:
    shared: dict[frozenset[str], frozenset[str]] = {}
    row: list[frozenset[str]] = []
    for topic, (start, stop) in zip(topics, pairwise(starts), strict=True):
        reported = racks.get(topic)
        if reported is None:
            row.extend([frozenset()] * (stop - start))
            continue
        if len(reported) != stop - start:
            raise BadGroup(f"racks of {len(reported)} partitions for a topic of {stop - start}", topic=topic)
        for replicas in reported:
            where = frozenset(filter(None, replicas))
            row.append(shared.setdefault(where, where))
    return row


def _lag_row(
    lag: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int], number: Mapping[str, int], starts: Sequence[int]
) -> array[int]:
    row = array("q", bytes(8 * starts[-1]))
    for (topic, partition), waiting in lag.items():
        if waiting < 0:
            raise BadGroup(f"a lag of {waiting} records", topic=topic, partition=partition)
        index = number.get(topic)
        if index is not None and 0 <= partition < starts[index + 1] - starts[index]:
            row[starts[index] + partition] = waiting
    return row
