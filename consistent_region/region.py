"""ConsistentRegion: state over a consumer group in which every record counts exactly once."""

import inspect
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

from kohort.common.log_context import logger
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.coordinator import KEPT_CHECKPOINTS, LEASE_S, MAX_CONSECUTIVE_RESETS, RegionCoordinator
from kohort.consistent_region.dict_state import DictState
from kohort.consistent_region.effects import SinkPlace, TransactionalSink
from kohort.consistent_region.errors import ConfigurationError, UnsupportedError
from kohort.consistent_region.file_state import FileState
from kohort.consistent_region.group_check import client_id
from kohort.consistent_region.memory_pressure import memory_low
from kohort.consistent_region.open_store import open_store
from kohort.consistent_region.region_driver import Handler, RegionDriver
from kohort.consistent_region.region_history import HistoryEntry, RegionHistory
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.setting_checks import check_implements, check_positive, check_whole, given_as
from kohort.consistent_region.settings import (
    CHECKPOINT_TIMEOUT_S,
    MAX_POLL_RECORDS,
    CommitPoint,
    OnCommitFailure,
    RegionSettings,
)
from kohort.consistent_region.start_positions import StartPosition
from kohort.consistent_region.state import StateHandle
from kohort.consistent_region.states import RegionState
from kohort.consistent_region.store import Store
from kohort.consistent_region.task_states import MakeState, Migrate, TaskStates
from kohort.consistent_region.tasks import TaskId, TaskMap, TaskRule
from kohort.consistent_region.triggers import Periodic, Trigger
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.consumer_config import SETTINGS, ConsumerConfig
from kohort.coordinator_client.group.states import RebalanceRecord
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.arguments import callback_given, function_given, name_given, names_given
from kohort.network.errors import ConfigError, IllegalState
from kohort.network.process_exit import on_sigterm
from kohort.network.settings_table import checked

log = logger("kohort.region")

CLOSE_S = 2.0
TURN_WAIT_S = 0.2
SPLITTING = ("roundrobin", "sticky", "cooperative-sticky")


class ConsistentRegion:
    """One member of a consistent region. Every process of the region creates one with equal settings.

        def count(record, state):
            key = record.key.decode()
            state[key] = state.get(key, 0) + 1

        ConsistentRegion("bills", group="billing", topics=["payments"], bootstrap="localhost:9092",
                         coordinator="sqlite:///bills.db", trigger=Periodic(5), state=DictState, handler=count).run()

    `region_id`, `group`: a group belongs to one region. `topics` or `pattern`: the subscription. `coordinator`: a URL
    (see `open_store`) or a `Store`, equal in all members. `member`: a label of this process, by default the host's name
    with a number of its own. Of two processes with one label, the older is fenced.

    `tasks`: the units of state. With "number", the default for `topics`, a task is partition n of all of them, which
    have equal numbers of partitions. With "topic", the default for `pattern`, it is one partition of one topic.
    `{"sales": ["orders", "payments"]}` names sets of topics. `state`: makes the state of one task: a class without
    arguments, or a function that may take the task. `handler(record, state)` is called once for each record with the
    state of its task, and must change only that. Its other effects are repeated after a reset. With `batch_records`,
    `handler(columns, state)` is called with RecordColumns of up to so many records of one partition. `sinks`, by name:
    the handler's effects through them become visible with the checkpoints, exactly once. None removes a former sink.

    `state_version`, `migrate`: the version of the states' form, and a function `(old_version, state)` that changes a
    state of an older one. `hand_over`: True selects COOPERATIVE assignment. A moving task is then continued by its new
    owner, and the others without interruption, without a reset of the region. It must be equal in all members.
    `on_moment`: a callback, on the thread of `run`, for each entry of the `timeline`. An exception in it ends the
    member. `settings`: those of the `Consumer`.

    States follow their partitions. The next owner of a task, in any process, restores its state and continues it.
    States are exact at checkpoints. The contents of `coordinator.manifest` are final, states in memory may still be
    undone.

    Raises ConfigurationError at once for invalid settings.
    """

    def __init__(
        self,
        region_id: str,
        *,
        group: str,
        bootstrap: str,
        handler: Handler,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        member: str | None = None,
        coordinator: str | Store = "memory:",
        trigger: Trigger = Periodic(5.0),  # noqa: B008 -- a frozen value
        tasks: TaskRule | None = None,
        state: Callable[..., StateHandle] = DictState,
        state_version: int = 1,
        migrate: Migrate | None = None,
        batch_records: int | None = None,
        sinks: Mapping[str, TransactionalSink | None] | None = None,
        hand_over: bool = False,
        start_position: StartPosition | str = "default",
        commit_point: CommitPoint = "checkpoint_complete",
        on_commit_failure: OnCommitFailure = "warn",
        on_data_loss: Literal["raise", "earliest"] = "raise",
        drain_timeout_s: float = 180.0,
        reset_timeout_s: float = 180.0,
        checkpoint_timeout_s: float = CHECKPOINT_TIMEOUT_S,
        max_consecutive_resets: int = MAX_CONSECUTIVE_RESETS,
        kept_checkpoints: int = KEPT_CHECKPOINTS,
        lease_s: float = LEASE_S,
        on_moment: Callable[[HistoryEntry], object] | None = None,
        **settings: Any,
    ) -> None:
        name = member or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        for given, setting in ((region_id, "region_id"), (group, "group"), (name, "member")):
            given_as(name_given, given, setting)
        given_as(function_given, handler, "handler")
        given_as(callback_given, migrate, "migrate")
        given_as(callback_given, on_moment, "on_moment")
        if (topics is None) == (pattern is None):
            raise ConfigurationError("a region reads topics or a pattern, and not both", setting="topics")
        if on_data_loss not in ("raise", "earliest"):
            raise ConfigurationError(f"unknown on_data_loss {on_data_loss!r}", setting="on_data_loss")
        self._start = StartPosition(start_position) if isinstance(start_position, str) else start_position  # type: ignore[arg-type]
        if not isinstance(self._start, StartPosition):
            raise ConfigurationError(f"no start position: {start_position!r}", setting="start_position")
        self._topics = None if topics is None else given_as(names_given, topics, "topics")
        if self._topics == ():
            raise ConfigurationError("a region reads at least one topic", setting="topics")
        if pattern is not None and not isinstance(pattern, str | re.Pattern):
            raise ConfigurationError(f"pattern is a regular expression, not {pattern!r}", setting="pattern")
        self._pattern = pattern
        rule = tasks if tasks is not None else "number" if pattern is None else "topic"
        task_map = TaskMap.of(rule)
        for topic in self._topics or ():
            task_map.task_of(TopicPartition(topic, 0))  # raises its error here, and not at the first assignment
        check_whole("state_version", state_version)
        if batch_records is not None:
            check_whole("batch_records", batch_records)
        with _refused():
            if pattern is not None:
                Subscription.matching(pattern)
            self._consumer_settings = consumer_settings(
                settings,
                topics=len(self._topics or ()),
                together=rule != "topic",
                drain_timeout_s=drain_timeout_s,
                reset_timeout_s=reset_timeout_s,
                checkpoint_timeout_s=checkpoint_timeout_s,
                hand_over=hand_over,
            )
            own = self._consumer_settings.get("client_id", SETTINGS["client_id"].default)
            self._consumer_settings["client_id"] = client_id(own, region_id, name)
            ConsumerConfig.of(bootstrap=bootstrap, group=group, **self._consumer_settings)
        self.settings = RegionSettings(
            trigger=trigger,
            commit_point=commit_point,
            on_commit_failure=on_commit_failure,
            max_poll_records=self._consumer_settings["max_poll_records"],
            drain_timeout_s=drain_timeout_s,
            checkpoint_timeout_s=checkpoint_timeout_s,
            hand_over=hand_over,
        )
        self._bootstrap = bootstrap
        self._group = group
        self._task_map = task_map
        made = maker(state, kept_checkpoints)
        self._states = TaskStates(made, sinks, version=state_version, migrate=migrate)
        self._handler = handler
        self._batch_records = batch_records
        self._on_data_loss = on_data_loss
        self._member = RegionMember(name, self.settings)
        self._owns_store = isinstance(coordinator, str)
        self.coordinator = RegionCoordinator(
            open_store(coordinator) if isinstance(coordinator, str) else coordinator,
            region_id,
            group,
            checkpoint_timeout_s=self.settings.checkpoint_timeout_s,
            max_consecutive_resets=max_consecutive_resets,
            kept_checkpoints=kept_checkpoints,
            lease_s=lease_s,
        )
        self._history = RegionHistory(on_moment)
        self._consumer: Consumer | None = None
        self._stopping = False  # no Event: a signal handler would wait for the lock of the interrupted code
        self._runs = count()

    # --- running

    def run(self) -> None:
        """Read records, handle them and take checkpoints until `stop`. Runs on the caller's thread.

        Raises the error that ends the member: RegionStopped, ResetFailedError, DataLossError, FencedError, or an error
        of the consumer. An exception of the handler is the cause of a RegionError. SIGTERM stops the member cleanly on
        the main thread.
        """
        if next(self._runs):
            raise UnsupportedError("a region member runs once", hint="make another")
        with (
            on_sigterm(self.stop),
            self._states.reserved(),
            Consumer(
                self._bootstrap, group=self._group, on_reset=lambda gap: driver.on_gap(gap), **self._consumer_settings
            ) as consumer,
        ):
            driver = RegionDriver(
                self._member,
                self.coordinator,
                consumer,
                self._states,
                self._handler,
                time.monotonic,
                task_map=self._task_map,
                start=self._start,
                batch_records=self._batch_records,
                matched=None if self._pattern is None else lambda: _matched(consumer),
                on_data_loss=self._on_data_loss,
                memory_low=memory_low,
                history=self._history,
            )
            self._consumer = consumer
            # However badly one of them ends, the next ones do: a store or a sink may hold threads and connections.
            with ExitStack() as stack:
                if self._owns_store:
                    stack.callback(self.coordinator.store.close)
                stack.callback(consumer.close, CLOSE_S)
                stack.callback(self._states.close)
                stack.callback(driver.stop)
                self._states.open(SinkPlace(self.coordinator.region, self._group, consumer.group_metadata))
                driver.register()
                consumer.subscribe(self._topics, pattern=self._pattern, hooks=driver)
                driver.subscribed()
                while not self._stopping:
                    idle_s = driver.turn(TURN_WAIT_S)
                    if idle_s > 0:
                        time.sleep(idle_s)

    def stop(self) -> None:
        """Have `run` return soon. What came after the last checkpoint is done again at the next start. Any thread."""
        self._stopping = True

    def make_consistent(self) -> None:
        """Request a checkpoint now. Any thread, also the handler."""
        self._member.make_consistent(time.monotonic())

    # --- seeing

    @property
    def states(self) -> Mapping[TaskId, StateHandle]:
        """The states of the tasks that this member has now. Read them on the thread of `run`."""
        return self._states.states

    def region_state(self) -> RegionState:
        """The state of this member."""
        return self._member.state

    def metrics(self) -> Mapping[str, int]:
        """Counters (`..._total`) and gauges of this member, from any thread. docs/region.md has a table of them."""
        consumer, completed_at = self._consumer, self._member.completed_at
        lag = {} if consumer is None else consumer.metrics().records_lag
        return {
            **self._member.metrics,
            **self._states.metrics(),
            "records_lag": sum(lag.values()) + self._member.unhandled,
            "checkpoint_age_ms": -1 if completed_at is None else round((time.monotonic() - completed_at) * 1000),
        }

    def timeline(self) -> tuple[HistoryEntry, ...]:
        """The history of this member, newest last: states, partitions, resets, checkpoints. From any thread."""
        return self._history.timeline

    def rebalances(self) -> tuple[RebalanceRecord, ...]:
        """The group's part of it: see `Consumer.timeline`."""
        return () if self._consumer is None else self._consumer.timeline()

    # --- what a region does not allow (CR-04)

    def assign(self, *_args: object, **_kwargs: object) -> None:
        """Raises UnsupportedError: partitions are the group's to give."""
        self._refuse("assign")

    def unassign(self, *_args: object, **_kwargs: object) -> None:
        """Raises UnsupportedError."""
        self._refuse("unassign")

    def seek(self, *_args: object, **_kwargs: object) -> None:
        """Raises UnsupportedError: positions belong to the state, and both to checkpoints."""
        self._refuse("seek")

    def _refuse(self, what: str) -> None:
        self._member.metrics["failed_control_requests_total"] += 1
        raise UnsupportedError(
            f"a member of a consistent region cannot {what}", hint="use start_position, or a Consumer"
        )


def consumer_settings(
    given: Mapping[str, Any],
    *,
    topics: int,
    drain_timeout_s: float,
    reset_timeout_s: float,
    checkpoint_timeout_s: float = CHECKPOINT_TIMEOUT_S,
    hand_over: bool = False,
    together: bool = False,
) -> dict[str, Any]:
    """The consumer's settings in a region: `given`, and those that consistency requires (CR-07, CR-08).

    Raises ConfigurationError for settings that a region decides by itself, ConfigError for those that no consumer has.
    """
    for name in ("group", "bootstrap", "auto_offset_reset"):
        if name in given:
            raise ConfigurationError(f"a region decides {name} by itself", hint="see start_position", setting=name)
    reported = {name: value for name, value in given.items() if value is not None or name != "assignors"}
    settings = {name: checked(ConsumerConfig.setting(name), value) for name, value in reported.items()}
    if settings.get("protocol", "classic") != "classic":
        # Under KIP-848 each member has its own epoch and learns of its own changes only, so no barrier could name one.
        raise ConfigurationError(
            "a checkpoint is of one generation of the whole group, which only protocol='classic' has",
            hint="omit protocol; other groups of the cluster may use KIP-848",
            setting="protocol",
        )
    if settings.pop("enable_auto_commit", False):
        log.warning("enable_auto_commit is off in a region: offsets follow its checkpoints")
    settings["enable_auto_commit"] = False
    # Used only for positions that are discarded during a pending reset. In any other state a gap is reported and
    # rejected (`on_gap`).
    settings["auto_offset_reset"] = "earliest"
    settings.setdefault("isolation_level", "read_committed")
    settings.setdefault("max_poll_records", MAX_POLL_RECORDS)
    bounds = {
        "drain_timeout_s": drain_timeout_s,
        "reset_timeout_s": reset_timeout_s,
        "checkpoint_timeout_s": checkpoint_timeout_s,
    }
    for name, timeout_s in bounds.items():
        check_positive(name, timeout_s)
    least_poll_ms = int(3_000 * max(bounds.values()))
    settings["max_poll_interval_ms"] = max(settings.get("max_poll_interval_ms", 0), least_poll_ms)
    if "session_timeout_ms" not in settings:
        static = settings.get("group_instance_id") is not None
        settings["session_timeout_ms"] = max(120_000, int(1_200 * reset_timeout_s)) if static else 20_000
    least_request_ms = settings["session_timeout_ms"] + 5_000
    default_ms = SETTINGS["request_timeout_ms"].default
    settings["request_timeout_ms"] = max(settings.get("request_timeout_ms", default_ms), least_request_ms)
    settings["metadata_max_age_ms"] = min(settings.get("metadata_max_age_ms", 2_000), 2_000)
    settings["assignors"] = _assignors(settings.get("assignors", ()), topics, hand_over, together)
    return settings


@contextmanager
def _refused() -> Iterator[None]:
    """Raises a consumer's refusals as errors of the region."""
    try:
        yield
    except (ConfigError, IllegalState) as wrong:
        raise ConfigurationError(wrong.message, hint=wrong.hint, **wrong.place) from wrong


def _assignors(given: Iterable[Any], topics: int, hand_over: bool, together: bool) -> list[Any]:
    """Select EAGER assignors, or COOPERATIVE ones with `hand_over`, and only those that keep the partitions of a task
    together. Others are left out with a warning.

    If none is left, returns the default assignor.
    """
    from kohort.assignors import Rebalance
    from kohort.assignors import get as assignor_of

    wanted = Rebalance.COOPERATIVE if hand_over else Rebalance.EAGER
    why = "tasks are handed over one by one" if hand_over else "without hand_over, a region revokes all partitions"
    chosen = []
    for one in given:
        assignor = assignor_of(one)
        if together and topics > 1 and assignor.name in SPLITTING:
            log.warning("assignor %s splits tasks of several topics, and is left out", one)
        elif assignor.rebalance is wanted:
            chosen.append(one)
        else:
            log.warning("assignor %s is %s, and left out: %s", one, assignor.rebalance.name, why)
    alone = topics == 1 or not together
    if hand_over:
        return chosen or ["cooperative-sticky" if alone else "copartition"]
    return chosen or ["roundrobin" if alone and topics != 1 else "range"]


def maker(state: Callable[..., StateHandle], kept_checkpoints: int) -> MakeState:
    """Return a function that makes the state of a task. Raises ConfigurationError for anything that makes none."""
    if not callable(state):
        raise ConfigurationError(
            f"state= makes the state of each task, and a {type(state).__name__} is one state",
            hint=f"state={type(state).__name__}, or a function: state=lambda task: ...",
            setting="state",
        )
    takes = _required_arguments(state)
    if takes > 1 or (takes and isinstance(state, type)):
        raise ConfigurationError(
            "state= is a class without arguments, or a function that takes a task or nothing",
            hint="use state=lambda task: ...",
            setting="state",
        )

    owners: dict[Path, TaskId] = {}

    def make(task: TaskId) -> StateHandle:
        made = state(task) if takes else state()
        check_implements("the state that state= makes", made, StateHandle, "state")
        if isinstance(made, FileState):
            _check_files(made, task, owners.setdefault(made.folder, task), kept_checkpoints)
        return made

    return make


def _check_files(made: FileState, task: TaskId, owner: TaskId, kept_checkpoints: int) -> None:
    """Raise ConfigurationError for too few copies, and for a folder that has another task as its `owner`."""
    if made.kept <= kept_checkpoints:
        # Otherwise an operator could go back to a checkpoint without its files, and going back deletes the later
        # checkpoints.
        raise ConfigurationError(
            f"a FileState that keeps {made.kept} copies is not enough for {kept_checkpoints} checkpoints",
            hint=f"use FileState(..., kept={kept_checkpoints + 1})",
            setting="kept_checkpoints",
        )
    if owner != task:  # each would remove the files of the other, as those of a former owner
        raise ConfigurationError(
            f"two tasks, {owner} and {task}, have a FileState in one folder",
            hint='use state=lambda task: FileState(f"data/{task}")',
            setting="state",
            folder=made.folder,
        )


def _required_arguments(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a class in C, as dict
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is one.empty for one in parameters)


def _matched(consumer: Consumer) -> list[TopicPartition]:
    """Every partition of every topic that the consumer's pattern matches now."""
    subscription = consumer.subscription
    assert subscription is not None
    wanted = subscription.resolved(dict.fromkeys(topics := consumer.topics(), False))
    return [one for topic in sorted(wanted) for one in topics[topic]]
