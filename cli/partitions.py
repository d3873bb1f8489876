"""The partitions of a topic, and their display."""

from collections.abc import Iterable

from kohort.admin import Admin
from kohort.common import KohortError, TopicPartition
from kohort.common.topic_partition import grouped


def partitions_of(admin: Admin, topic: str) -> list[TopicPartition]:
    """Return all partitions of a topic. Raises UnknownTopic."""
    found = admin.describe_topics([topic])[topic]
    if isinstance(found, KohortError):
        raise found
    return [TopicPartition(topic, one.partition) for one in found.partitions]


def short(partitions: Iterable[TopicPartition]) -> str:
    """Return a short form such as `payments 0-3,7`."""
    reported = []
    for topic, numbers in grouped(sorted(partitions)).items():
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][-1] + 1:
                runs[-1] = [runs[-1][0], number]
            else:
                runs.append([number, number])
        reported.append(f"{topic} {','.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}")
    return "; ".join(reported) or "-"
