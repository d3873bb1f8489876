"""The limits of a trigger: maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay. Plain values, no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.common import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class Pace:
    """At most `most` offsets a trigger. A trigger with less than `least` offsets waits, but at most `delay_s`.

    As in Spark's own source, the first trigger does not wait.
    """

    most: int | None
    least: int | None
    delay_s: float
    _moved_at: float = float("-inf")

    def ends(
        self, before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now: float, *, hurry: bool
    ) -> Offsets:
        """The ends of a trigger that starts at `before`, which has all partitions of `ends`.

        `hurry`: do not wait for `least`.
        """
        waiting = sum(max(end - before[place], 0) for place, end in ends.items())
        if self.least is not None and waiting < self.least and not hurry and now - self._moved_at < self.delay_s:
            return {place: before[place] for place in ends}
        self._moved_at = now
        return dict(ends) if self.most is None else limited(before, ends, self.most)


def limited(before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Ends that are `most` offsets above `before` in all.

    Each partition that has offsets gets one of them, and a share of the rest in proportion to its other offsets. If
    `most` is below the number of these partitions, they take turns.
    """
    waiting = {place: end - before.get(place, 0) for place, end in sorted(ends.items()) if end > before.get(place, 0)}
    whole, rest = sum(waiting.values()), most - len(waiting)
    if whole <= most:
        return dict(ends)
    if rest < 0:
        # The sum of `before` moves by `most` with each trigger, so the next trigger begins behind these partitions.
        places = sorted(ends)
        turn = sum(before.values()) % len(places)
        share = dict.fromkeys([place for place in places[turn:] + places[:turn] if place in waiting][:most], 1)
    else:
        # Without the one offset, a quiet partition beside a busy one would never be read.
        share = {place: 1 + (count - 1) * rest // (whole - len(waiting)) for place, count in waiting.items()}
        # The remainder of rounding goes to the longest queues.
        left = most - sum(share.values())
        for place in sorted(share, key=lambda place: share[place] - waiting[place])[:left]:
            share[place] += 1
    return {place: min(before.get(place, 0), end) + share.get(place, 0) for place, end in ends.items()}
