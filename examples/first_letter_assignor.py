"""An assignor in thirty lines: topics whose names begin with the same letter go to the same member.

An assignor is any object with a `name`, a way of rebalancing, and two methods. Run this file to see its plan:

    python examples/first_letter_assignor.py

Use it by passing an instance, `Consumer(..., group="billing", assignors=[FirstLetterAssignor()])`, in every member of
the group; or register it in your package's pyproject.toml and ask for it by name:

    [project.entry-points."kohort.assignors"]
    first-letter = "yourpackage.assignors:FirstLetterAssignor"

Three rules keep a group whole. *Pure*: the plan depends on the `GroupView` alone, for any member may lead next time.
*Complete*: every partition of every subscribed topic has one owner that subscribes to it; `make_plan` checks that and,
if a plan is refused, saves the group to a file that `kohort.assignors.replay` runs again. *Eager or cooperative*: this
one is EAGER, so all members let go of everything before they join. A COOPERATIVE one must not give away what another
member still owns (`kohort/assignors/cooperative_sticky.py` shows how).
"""

from collections.abc import Iterable

from kohort import GroupView, Plan, TopicPartition
from kohort.assignors import MemberSubscription, Rebalance, make_plan


class FirstLetterAssignor:
    """All topics of one first letter to one of their subscribers; letters take turns with the members."""

    name = "first-letter"
    rebalance = Rebalance.EAGER

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """What each member tells the leader: its topics are enough here; `user_data=` would carry anything else."""
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        """Runs in the member that leads. Topics and members come sorted, so equal groups give equal plans."""
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
