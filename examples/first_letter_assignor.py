"""An assignor in thirty lines: topics whose names begin with the same letter go to the same member.

An assignor is any object with a `name`, a rebalance protocol, and two methods. Run this file to see its plan:

    python examples/first_letter_assignor.py

Pass an instance in every member of the group: `Consumer(..., group="billing", assignors=[FirstLetterAssignor()])`. Or
register the class in your package's pyproject.toml and use its name:

    [project.entry-points."kohort.assignors"]
    first-letter = "yourpackage.assignors:FirstLetterAssignor"

There are three rules:

- *Pure*: the plan depends only on the `GroupView`, because any member may lead next time.
- *Complete*: every partition of every subscribed topic has one owner that subscribes to it. `make_plan` checks that. It
  saves the group of a refused plan to a file that `kohort.assignors.replay` runs again.
- *Eager or cooperative*: this assignor is EAGER, so all members release everything before they join. A COOPERATIVE
  assignor must not reassign partitions that another member still owns (see
  `kohort/assignors/cooperative_sticky.py`).
"""

from collections.abc import Iterable

from kohort import GroupView, Plan, TopicPartition
from kohort.assignors import MemberSubscription, Rebalance, make_plan


class FirstLetterAssignor:
    """Assigns all topics of a first letter to one of their subscribers. Letters go to members in turn."""

    name = "first-letter"
    rebalance = Rebalance.EAGER

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """The member's metadata for the leader. Its topics are enough here; `user_data=` may have other data."""
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        """Plan on the leading member. Topics and members are sorted, so equal groups give equal plans."""
        given: dict[str, list[TopicPartition]] = {}
        letters = sorted({topic[0] for topic in group.topics})
        for topic, takers in zip(group.topics, group.subscribers, strict=True):
            member = group.members[takers[letters.index(topic[0]) % len(takers)]]
            start, stop = (
                group.topic_offsets[group.number_of_topic[topic]],
                group.topic_offsets[group.number_of_topic[topic] + 1],
            )
            given.setdefault(member.id, []).extend(group.partition(index) for index in range(start, stop))
        return Plan.of(group, given)


if __name__ == "__main__":
    group = GroupView.of(
        partitions={"apples": 2, "apricots": 1, "bananas": 3},
        members={"left": {"topics": ["apples", "apricots", "bananas"]}, "right": {"topics": ["apricots", "bananas"]}},
    )
    for member, partitions in make_plan(FirstLetterAssignor(), group).items():
        print(f"{member}: {', '.join(map(str, partitions)) or 'nothing'}")
