"""Arguments of a run, checked, and the parts that are made of them."""

from math import inf
from typing import Final

from kohort.admin import Admin
from kohort.common import KohortError
from kohort.coordinator_client.consumer_base import ConsumerBase
from kohort.network.client_config import shared_settings
from kohort.network.errors import AuthorizationFailed, ConfigError
from kohort.share_consumer.consumer_base import ShareConsumerBase
from kohort.workers.keyed_jobs import KeyedJobs
from kohort.workers.retry import Retry
from kohort.workers.share_jobs import ShareJobs

AnyConsumer = ConsumerBase | ShareConsumerBase

WAIT_S: Final = 0.05
"""The longest wait of one poll, and of one look at the handlers, while there is work."""
IDLE_S: Final = 0.5
"""The longest wait of a poll without work. A stop takes effect after it."""
COMMIT_S: Final = 1.0
DELIVERY_LIMIT: Final = ("share.delivery.count.limit", 5)
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"


def check_arguments(
    consumer: AnyConsumer,
    kinds: tuple[type, type],
    handler: object,
    retry: Retry,
    concurrency: int,
    max_held: int,
    stop_timeout_s: float,
    dead_letter: str | None,
) -> None:
    """Raises ConfigError for arguments that contradict each other, and ValueError for numbers out of bounds.

    Raises TypeError for a consumer that is none of `kinds`, and for a handler that cannot be called. Raises it for a
    retry that is no Retry or has other types, too.
    """
    if not isinstance(consumer, kinds):
        names = " or ".join(each.__name__ for each in kinds)
        raise TypeError(f"the consumer of this run is of {names}, not of {type(consumer).__name__}")
    if not callable(handler):
        raise TypeError(f"the handler is a function of a record, not {handler!r}")
    if not isinstance(retry, Retry):
        raise TypeError(f"retry is a workers.Retry, as in Retry(attempts=3), not {retry!r}")
    # Here, and not at the first failure of a handler, which would end the run or wait for ever.
    isinstance(Exception(), retry.no_retry)
    if retry.attempts < 1 or not (0 <= retry.delay_s < inf and 0 <= retry.factor < inf and retry.max_delay_s >= 0):
        raise ValueError(f"attempts is 1 or more, delays and factor are 0 or more, not {retry!r}")
    if concurrency < 1 or max_held < 1:
        raise ValueError(f"concurrency and max_held are 1 or more, not {concurrency} and {max_held}")
    if not stop_timeout_s >= 0:
        raise ValueError(f"stop_timeout_s is 0 or more, not {stop_timeout_s}")
    if consumer.config.group is None:
        raise ConfigError("workers commit offsets of a group", hint='use Consumer(..., group="...")', setting="group")
    if isinstance(consumer, ConsumerBase) and consumer.config.enable_auto_commit:
        raise ConfigError(
            "workers commit by themselves, and automatic commits would pass records that are not done",
            hint="leave enable_auto_commit out",
            setting="enable_auto_commit",
        )
    if dead_letter is not None and _reads(consumer, dead_letter):
        raise ConfigError(
            f"the consumer reads the topic of its dead letters, so that a record that always fails comes again: "
            f"{dead_letter}",
            hint="subscribe to other topics only",
            setting="dead_letter",
        )


def share_jobs(consumer: ShareConsumerBase, dead_letter: str | None) -> ShareJobs:
    """The jobs of a share consumer, with the delivery limit of its group.

    Raises ConfigError if the group has a dead-letter topic of the broker's (KIP-1191), and UnknownTopic if
    `dead_letter` does not exist.
    """
    group = consumer.config.group
    name, limit = DELIVERY_LIMIT
    with Admin(**shared_settings(consumer.config)) as admin:
        _exists(admin, dead_letter)
        try:
            configs = admin.group_configs([group])[group]
        except AuthorizationFailed:
            configs = {}
    if dead_letter is not None and configs.get(DEAD_LETTER_TOPIC):
        raise ConfigError(
            f"the group {group} has the dead-letter topic {configs[DEAD_LETTER_TOPIC]} of the broker's (KIP-1191)",
            hint=f"leave dead_letter out, or unset {DEAD_LETTER_TOPIC}",
            setting="dead_letter",
        )
    return ShareJobs(consumer, int(configs.get(name) or limit))


def keyed_jobs(consumer: ConsumerBase, dead_letter: str | None) -> KeyedJobs:
    """The jobs of a Consumer. Raises UnknownTopic if `dead_letter` does not exist."""
    if dead_letter is not None:
        with Admin(**shared_settings(consumer.config)) as admin:
            _exists(admin, dead_letter)
    return KeyedJobs()


def _reads(consumer: AnyConsumer, topic: str) -> bool:
    """True if the consumer reads the topic. Unknown for a pattern of the coordinator, and False then."""
    if isinstance(consumer, ShareConsumerBase):
        return topic in consumer.subscription
    if (subscription := consumer.subscription) is None:
        return any(one.topic == topic for one in consumer.assignment)
    return subscription.broker_pattern is None and subscription.matches(topic)


def _exists(admin: Admin, topic: str | None) -> None:
    if topic is not None and isinstance(found := admin.describe_topics([topic])[topic], KohortError):
        raise found
