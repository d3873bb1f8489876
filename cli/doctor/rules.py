"""The rules. Each is a function whose parameter names are the facts that it needs."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kohort.cli.doctor import cluster_rules, group_rules, offset_rules, settings_rules, share_rules
from kohort.cli.doctor.facts import NotRequested
from kohort.cli.doctor.finding import Finding
from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple


class Rule(NamedTuple):
    """A rule. `about`: its subject."""

    name: str
    about: str
    judge: Callable[..., Iterable[Finding]]


RULES: Final = (
    Rule("listeners", "every advertised address can be connected to from here", cluster_rules.unreachable),
    Rule("loopback", "no broker elsewhere advertises itself as localhost", cluster_rules.loopback),
    Rule("versions", "every broker has a version of each request that a consumer needs", cluster_rules.common_versions),
    Rule("upgrade", "all brokers have one version", cluster_rules.brokers_differ),
    Rule("session-timeout", "session.timeout.ms is within the brokers' bounds", settings_rules.session_timeout),
    Rule("heartbeat", "heartbeat.interval.ms is at most a third of the session", settings_rules.heartbeat_interval),
    Rule("poll-interval", "max.poll.interval.ms is no shorter than the session", settings_rules.poll_below_session),
    Rule("poll-budget", "max.poll.records fit into max.poll.interval.ms", settings_rules.poll_budget),
    Rule("poll-seen", "the member on a tape never exceeded max.poll.interval.ms", settings_rules.poll_interval_seen),
    Rule("migration", "cooperative-sticky is the only assignor after a migration", settings_rules.own_assignors),
    Rule("auto-create", "brokers do not create topics automatically", settings_rules.auto_create),
    Rule("group", "the group exists", group_rules.group_exists),
    Rule("group-kind", "the group is one of consumers, or of share consumers", group_rules.other_kind),
    Rule("assignors", "these settings list the assignor that the group uses", group_rules.common_assignor),
    Rule("eager-cooperative", "all members rebalance in one mode", group_rules.eager_and_cooperative),
    Rule("protocols", "all members use one group protocol", group_rules.both_protocols),
    Rule("instance-taken", "group.instance.id of these settings is free", group_rules.instance_taken),
    Rule(
        "instance-clash",
        "no instance id changes hands during the watch",
        group_rules.instance_fought_over,
    ),
    Rule("stuck", "no rebalance lasts the whole time that the group is watched", group_rules.rebalance_stuck),
    Rule("lag", "lag does not grow while the group is watched", group_rules.lag_growing),
    Rule("idle", "every member owns a partition", group_rules.idle_members),
    Rule("offsets-lost", "no committed offset is before its log", offset_rules.below_log),
    Rule("offsets-beyond", "no committed offset is beyond its log", offset_rules.beyond_log),
    Rule("offsets-none", "every partition that is read has a committed offset", offset_rules.uncommitted),
    Rule("offsets-expire", "committed offsets of a group without members are kept", offset_rules.expiry),
    Rule("share-start", "a share group starts at the first record of a partition", share_rules.start),
    Rule("share-lock", "max.poll.records fit into the lock of a share group", share_rules.lock),
    Rule("share-renewal", "a share group allows the renewal of locks", share_rules.renewal),
    Rule("share-expired", "no lock of the share consumer on a tape has expired", share_rules.expired),
    Rule("share-repeated", "few deliveries on a tape repeat, and none is the last one", share_rules.repeated),
    Rule("clock", "no record has a timestamp in the future", offset_rules.clock),
    Rule("topic", "the topics exist", cluster_rules.missing_topic),
    Rule("leader", "every partition has a leader", cluster_rules.leaderless),
    Rule("replicas", "every partition has its replicas in sync", cluster_rules.under_replicated),
    Rule("offsets-topic", "__consumer_offsets is complete and replicated", cluster_rules.offsets_topic),
    Rule("topic-rights", "the client may READ the topics", cluster_rules.topic_rights),
    Rule("group-rights", "the client may READ the group", cluster_rules.group_rights),
)


@dataclass(slots=True)
class Opinion:
    """The results of all rules.

    Findings by rule, satisfied rules, rules that could not be checked (with the error), and rules that were not
    requested (with the missing option).
    """

    findings: list[tuple[Rule, Finding]] = field(default_factory=list)
    satisfied: list[Rule] = field(default_factory=list)
    unchecked: list[tuple[Rule, KohortError]] = field(default_factory=list)
    not_requested: list[tuple[Rule, NotRequested]] = field(default_factory=list)


def judge(case: Any, rules: Iterable[Rule] = RULES) -> Opinion:
    """Run the rules over a case, which has their facts as attributes. A rule gets the errors of its facts."""
    opinion = Opinion()
    for rule in rules:
        try:
            facts = {name: getattr(case, name) for name in inspect.signature(rule.judge).parameters}
            found = list(rule.judge(**facts))
        except NotRequested as error:
            opinion.not_requested.append((rule, error))
        except KohortError as error:
            opinion.unchecked.append((rule, error))
        else:
            opinion.findings += [(rule, one) for one in found]
            if not found:
                opinion.satisfied.append(rule)
    return opinion
