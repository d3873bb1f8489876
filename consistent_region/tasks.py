"""Tasks, the units of a region's state: partition n of the topics that belong together.

A handler gets one record and the state of its task. Nothing flows between tasks, so cuts of all tasks, each at its own
moment, are a consistent checkpoint of the region. A task has one owner at a time, and its state follows its partitions.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition, grouped
from kohort.consistent_region.errors import ConfigurationError, NotCopartitionedError
from kohort.consistent_region.setting_checks import given_as
from kohort.network.arguments import name_given, names_given

TaskRule = str | Mapping[str, Sequence[str]]


class TaskId(NamedTuple):
    """A task: the partitions of this number of the topics with this label. The label is "" where all topics belong
    together."""

    label: str
    number: int

    def __str__(self) -> str:
        return f"{self.label}/{self.number}" if self.label else str(self.number)

    @classmethod
    def parsed(cls, text: str) -> "TaskId":
        """Parse the form of `str`. Raises ValueError."""
        label, _, number = text.rpartition("/")
        if not (number.isascii() and number.isdigit()) or str(found := cls(label, int(number))) != text:
            raise ValueError(f"not a task: {text!r}")
        return found


@dataclass(frozen=True, slots=True)
class TaskMap:
    """Assigns partitions to tasks. `labels`: the label of each topic, None if all topics belong together, and an empty
    mapping if each topic is alone."""

    labels: Mapping[str, str] | None = None

    @classmethod
    def of(cls, rule: TaskRule) -> "TaskMap":
        """The map of a setting: "number", "topic", or the topics of each label. Raises ConfigurationError."""
        if rule == "number":
            return cls(None)
        if rule == "topic":
            return cls({})
        if not isinstance(rule, Mapping) or not rule:
            raise ConfigurationError(
                f"unknown tasks {rule!r}", hint='use "number", "topic", or the topics of each label', setting="tasks"
            )
        labels: dict[str, str] = {}
        for label, topics in rule.items():
            names = given_as(names_given, topics, "tasks")
            if "/" in given_as(name_given, label, "tasks") or not names:
                raise ConfigurationError(
                    f"the label {label!r} of tasks has no list of topics, or is no label",
                    hint='tasks={"sales": ["orders", "payments"]}',
                    setting="tasks",
                )
            for topic in names:
                if labels.setdefault(topic, label) != label:
                    raise ConfigurationError("a topic has two labels of tasks", topic=topic, setting="tasks")
        return cls(labels)

    def task_of(self, partition: TopicPartition) -> TaskId:
        """The task of a partition. Raises ConfigurationError for a topic that has no label."""
        if self.labels is None:
            return TaskId("", partition.partition)
        if not self.labels:
            return TaskId(partition.topic, partition.partition)
        if partition.topic not in self.labels:
            raise ConfigurationError(
                "the topic is in no set of tasks", hint="name it in tasks=", topic=partition.topic, setting="tasks"
            )
        return TaskId(self.labels[partition.topic], partition.partition)

    def grouped(self, partitions: Iterable[TopicPartition]) -> dict[TaskId, list[TopicPartition]]:
        """The partitions of each task, in order."""
        return grouped((self.task_of(partition), partition) for partition in sorted(partitions))

    def check_counts(self, partitions: Collection[TopicPartition]) -> None:
        """Raise NotCopartitionedError if topics that belong together have different numbers of partitions."""
        counts: dict[str, dict[str, int]] = {}
        for partition in partitions:
            of_label = counts.setdefault(self.task_of(partition).label, {})
            of_label[partition.topic] = of_label.get(partition.topic, 0) + 1
        for topics in counts.values():
            if len(set(topics.values())) > 1:
                raise NotCopartitionedError(
                    "topics of one set of tasks have different numbers of partitions, so keys do not meet",
                    hint='tasks="topic" gives each topic tasks of its own',
                    counts=", ".join(f"{topic} {count}" for topic, count in sorted(topics.items())),
                )
