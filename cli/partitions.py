"""How partitions are listed for people."""

from collections.abc import Iterable

from kohort.fastpath import TopicPartition


def short(partitions: Iterable[TopicPartition]) -> str:
    """`payments 0-3,7`: short, however many they are."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    told = []
    for topic, numbers in by_topic.items():
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][-1] + 1:
                runs[-1] = [runs[-1][0], number]
            else:
                runs.append([number, number])
        told.append(f"{topic} {','.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}")
    return "; ".join(told) or "-"
