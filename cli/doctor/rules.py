"""The rules. Each is a function whose parameter names are the facts that it needs."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kohort.cli.doctor import cluster_rules, group_rules, offset_rules, settings_rules
from kohort.cli.doctor.facts import NotAsked
from kohort.cli.doctor.finding import Finding
from kohort.common.errors import KohortError


class Rule(NamedTuple):
    """A rule. `about`: its subject."""

    name: str
    about: str
    judge: Callable[..., Iterable[Finding]]


RULES: Final = (
    Rule("listeners", "every advertised address can be connected to from here", cluster_rules.unreachable),
    Rule("loopback", "no broker elsewhere advertises itself as localhost", cluster_rules.loopback),
    Rule("versions", "every broker speaks a version of all that a consumer needs", cluster_rules.common_versions),
    Rule("upgrade", "all brokers are of one version", cluster_rules.brokers_differ),
    Rule("session-timeout", "session.timeout.ms lies within the brokers' bounds", settings_rules.session_timeout),
    Rule("heartbeat", "heartbeat.interval.ms is at most a third of the session", settings_rules.heartbeat_interval),
    Rule("poll-interval", "max.poll.interval.ms is no shorter than the session", settings_rules.poll_below_session),
    Rule("poll-budget", "max.poll.records fit into max.poll.interval.ms", settings_rules.poll_budget),
    Rule("poll-seen", "the member on a tape has not outrun max.poll.interval.ms", settings_rules.poll_interval_seen),
    Rule("migration", "cooperative-sticky stands alone once a migration is over", settings_rules.own_assignors),
    Rule("auto-create", "brokers make no topics by accident", settings_rules.auto_create),
    Rule("group", "the group exists", group_rules.group_exists),
    Rule("group-kind", "the group is one of consumers", group_rules.other_kind),
    Rule("assignors", "these settings list the assignor that the group uses", group_rules.common_assignor),
    Rule("eager-cooperative", "members rebalance in one mode", group_rules.eager_and_cooperative),
    Rule("protocols", "members speak one group protocol", group_rules.both_protocols),
    Rule("instance-taken", "group.instance.id of these settings is free", group_rules.instance_taken),
    Rule("instance-clash", "no instance id changes hands while we look", group_rules.instance_fought_over),
    Rule("stuck", "no rebalance lasts all the while that we look", group_rules.rebalance_stuck),
    Rule("lag", "lag does not grow while we look", group_rules.lag_growing),
    Rule("idle", "every member owns something", group_rules.idle_members),
    Rule("offsets-lost", "no committed offset lies before its log", offset_rules.below_log),
    Rule("offsets-beyond", "no committed offset lies beyond its log", offset_rules.beyond_log),
    Rule("offsets-none", "every partition that is read has a committed offset", offset_rules.uncommitted),
    Rule("offsets-expire", "committed offsets of a group without members are kept", offset_rules.expiry),
    Rule("clock", "no record comes from the future", offset_rules.clock),
    Rule("topic", "the topics exist", cluster_rules.missing_topic),
    Rule("leader", "every partition has a leader", cluster_rules.leaderless),
    Rule("replicas", "every partition has its replicas in sync", cluster_rules.under_replicated),
    Rule("offsets-topic", "__consumer_offsets is whole, and copied", cluster_rules.offsets_topic),
    Rule("topic-rights", "we may READ the topics", cluster_rules.topic_rights),
    Rule("group-rights", "we may READ the group", cluster_rules.group_rights),
)


@dataclass(slots=True)
class Opinion:
    """The results of all rules.

    Findings by rule, satisfied rules, rules that could not be checked (with the error), and rules that this call has no
    reason to check (with the missing option).
    """

    findings: list[tuple[Rule, Finding]] = field(default_factory=list)
    satisfied: list[Rule] = field(default_factory=list)
    unchecked: list[tuple[Rule, KohortError]] = field(default_factory=list)
    not_asked: list[tuple[Rule, NotAsked]] = field(default_factory=list)


def judge(case: Any, rules: Iterable[Rule] = RULES) -> Opinion:
    """Run the rules over a case, which has their facts as attributes. A rule gets the errors of its facts."""
    opinion = Opinion()
    for rule in rules:
        try:
            facts = {name: getattr(case, name) for name in inspect.signature(rule.judge).parameters}
            found = list(rule.judge(**facts))
        except NotAsked as error:
            opinion.not_asked.append((rule, error))
        except KohortError as error:
            opinion.unchecked.append((rule, error))
        else:
            opinion.findings += [(rule, one) for one in found]
            if not found:
                opinion.satisfied.append(rule)
    return opinion
