"""Every log line of the clients says whose it is, as fields and in its text; and none is printed by default."""

import logging
import re
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Consumer, Producer
from kohort.common.log_context import FIELDS, LOGGERS, ContextFilter, keep_lines, set_log_context
from kohort.network import log_writer
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer
from tests.coordinator_client.consumer_helpers import (
    PATIENCE_S,
    numbers,
    poll_all_until,
    poll_until,
    produce,
    wait_until,
)
from tests.support.broker_selection import SelectedBroker

ILLEGAL_GENERATION = 22
MOST = 1_000
CLIENTS = ("kohort.consumer", "kohort.driver", "kohort.connections")


def lines(caplog: pytest.LogCaptureFixture, group: str) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name in CLIENTS and vars(one)["group"] == group]


@pytest.mark.broker
def test_lines_of_a_rebalance_name_group_member_and_generation(
    broker: SelectedBroker, topic: str, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    group = unique("group")
    produce(broker.bootstrap, topic, numbers(0, 5))
    caplog.set_level(logging.DEBUG, "kohort")
    with (
        Consumer(broker.bootstrap, client_id="one", group=group, heartbeat_interval_ms=100) as one,
        Consumer(broker.bootstrap, client_id="two", group=group, heartbeat_interval_ms=100) as two,
    ):
        one.subscribe([topic])
        poll_until(one, lambda: len(one.assignment) == 3)
        first = one.group_metadata()
        two.subscribe([topic])
        poll_all_until([one, two], lambda: bool(one.assignment) and bool(two.assignment))
        second, other = one.group_metadata(), two.group_metadata()
    ended = [record for record in lines(caplog, group) if vars(record)["event"] == "rebalance_ended"]
    reported = [(vars(record)["client_id"], vars(record)["member"], vars(record)["generation"]) for record in ended]
    assert ("one", first.member_id, first.generation) in reported
    assert ("one", second.member_id, second.generation) in reported
    assert ("two", other.member_id, other.generation) in reported
    assert second.generation > first.generation
    for record in ended:
        fields = vars(record)
        assert record.levelno == logging.INFO
        if fields["generation"] >= 0:
            assert f"group={group} member={fields['member']} generation={fields['generation']}]" in record.getMessage()
    # All other lines of the time, of any thread, for these two or for none.
    for record in caplog.records:
        if record.name in CLIENTS:
            assert {name for name in FIELDS if name not in vars(record)} == set()
            assert vars(record)["client_id"]


def test_an_address_where_no_broker_listens_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    caplog.set_level(logging.INFO, "kohort")
    with Consumer(address, group="g", reconnect_backoff_ms=1, reconnect_backoff_max_ms=10) as consumer:
        consumer.subscribe(["t"])

        def ended() -> list[logging.LogRecord]:
            return [one for one in lines(caplog, "g") if "cannot reach the broker" in one.getMessage()]

        poll_until(consumer, lambda: len(ended()) >= 3)
        first, *others = ended()
    assert first.levelno == logging.WARNING
    assert address.split(":")[1] in first.getMessage()
    assert {one.levelno for one in others} == {logging.INFO}


def test_a_lost_membership_is_reported_as_the_one_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort")
    with FakeBroker(topics={"topic": 2}) as fake:
        with Consumer(fake.bootstrap, group="g", heartbeat_interval_ms=50) as consumer:
            consumer.subscribe(["topic"])
            poll_until(consumer, lambda: len(consumer.assignment) == 2)
            was = consumer.group_metadata()
            fake.control("Heartbeat", lambda call: Answer(HeartbeatResponse(error_code=ILLEGAL_GENERATION)), times=1)
            poll_until(consumer, lambda: consumer.group_metadata().generation > was.generation)
        (lost,) = [record for record in lines(caplog, "g") if vars(record)["event"] == "lost"]
    assert lost.levelno == logging.WARNING
    assert (vars(lost)["member"], vars(lost)["generation"]) == (was.member_id, was.generation)


@pytest.mark.broker
def test_a_position_that_is_chosen_names_its_partition(
    broker: SelectedBroker, topic: str, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    group = unique("group")
    caplog.set_level(logging.INFO, "kohort")
    with Consumer(broker.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: consumer.metrics().resets_total == 3)
        me = consumer.group_metadata()
    resets = [vars(record) for record in lines(caplog, group) if vars(record)["event"] == "reset"]
    assert sorted((one["topic"], one["partition"]) for one in resets) == [(topic, number) for number in range(3)]
    assert {(one["member"], one["generation"]) for one in resets} == {(me.member_id, me.generation)}


def test_a_connection_that_ends_reports_its_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort")
    with FakeBroker(topics={"topic": 1}, versions={"InitProducerId": None}) as fake:
        with Consumer(fake.bootstrap, client_id="reader", group="g") as consumer:
            consumer.subscribe(["topic"])
            poll_until(consumer, lambda: bool(consumer.assignment))
            fake.disconnect()
            poll_until(consumer, lambda: any(record.name == "kohort.driver" for record in lines(caplog, "g")))
        with Producer(fake.bootstrap, client_id="writer") as producer, pytest.raises(UnsupportedVersion):
            producer.send("topic", b"value")
    reported = [(record.name, vars(record)["client_id"], record.getMessage()) for record in caplog.records]
    assert any(name == "kohort.driver" and "[client_id=reader group=g member=" in text for name, _, text in reported)
    assert any(text.endswith("[client_id=writer]") for _, _, text in reported)
    assert {client for _, client, _ in reported} == {"reader", "writer"}


def test_an_assignors_line_is_its_members(caplog: pytest.LogCaptureFixture) -> None:
    def plan() -> None:
        set_log_context(lambda: {"client_id": "c", "group": "g", "member": "m-1", "generation": 7})
        logging.getLogger("kohort.assignors.sticky").warning("100%% of %d: odd", 3)
        logging.getLogger("kohort.assignors.sticky").warning("100% odd")

    thread = threading.Thread(target=plan)
    thread.start()
    thread.join()
    logging.getLogger("kohort.assignors.sticky").warning("nobody's")
    whose = "[client_id=c group=g member=m-1 generation=7]"
    assert caplog.messages == [f"100% of 3: odd {whose}", f"100% odd {whose}", "nobody's"]
    assert [vars(record)["generation"] for record in caplog.records] == [7, 7, -1]
    assert caplog.records[0].msg == "100%% of %d: odd [%s]"  # tools that group lines by their template still can


def test_a_record_that_is_handled_again_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("kohort.consumer")
    logger.warning("odd", extra={"client_id": "c", "group": "g"})
    before = caplog.records[0].getMessage()
    logger.handle(caplog.records[0])
    assert caplog.messages == [before, before] == ["odd [client_id=c group=g]"] * 2


def test_a_line_that_cannot_be_written_ends_no_process(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("kohort.alone")
    logger.addFilter(ContextFilter())
    logger.addHandler(logging.StreamHandler())
    logger.warning("%d of %d", 1, extra={"group": "g"})
    assert "not enough arguments" in capsys.readouterr().err  # said by logging itself, as ever


def test_nothing_is_printed_unasked_and_a_format_may_name_every_field() -> None:
    names = " ".join(f"%({name})s" for name in FIELDS)
    code = f"""
import logging
from kohort import Consumer
consumer = Consumer("127.0.0.1:1", group="g")
for name in {LOGGERS!r}:
    logging.getLogger(name).error("silent")
logging.basicConfig(format="%(name)s|{names}|%(message)s")
for name in {LOGGERS!r}:
    logging.getLogger(name).error("spoken")
consumer.close(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert "silent" not in done.stdout + done.stderr
    assert "Logging error" not in done.stderr
    spoken = [line.partition("|")[0] for line in done.stderr.splitlines() if line.endswith("|spoken")]
    assert spoken == list(LOGGERS)


def test_a_process_without_logging_keeps_it_so_and_lines_are_written_from_its_import_on() -> None:
    code = """
import sys
from kohort.common.log_context import logger
log = logger("kohort.consumer")
log.warning("dropped")
assert not log.isEnabledFor(50)
assert "logging" not in sys.modules
import logging
log.warning("silent")
logging.basicConfig(format="%(client_id)s|%(message)s|%(funcName)s")
log.warning("written", extra={"client_id": "c"})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == "c|written [client_id=c]|<module>\n"


class Given(logging.Handler):
    """Calls a function with the text of each line, under the lock of the handler."""

    def __init__(self, function: Callable[[str], object]) -> None:
        super().__init__()
        self._function = function

    def emit(self, record: logging.LogRecord) -> None:
        self._function(record.getMessage())


@pytest.fixture
def handle() -> Iterator[Callable[[Callable[[str], object]], None]]:
    """Lets a function handle the lines of the clients."""
    clients, handlers = logging.getLogger("kohort"), []

    def add(function: Callable[[str], object]) -> None:
        handlers.append(Given(function))
        clients.addHandler(handlers[-1])

    before = clients.level
    clients.setLevel(logging.INFO)
    yield add
    clients.setLevel(before)
    for handler in handlers:
        clients.removeHandler(handler)


def not_the_leader(response: Any) -> Any:
    (topic,) = response.responses
    (one,) = topic.partition_responses
    return response._replace(responses=(topic._replace(partition_responses=(one._replace(error_code=6),)),))


def test_a_handler_that_waits_holds_up_no_client(handle: Callable[[Callable[[str], object]], None]) -> None:
    goes_on, waits = threading.Event(), []
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap) as producer:
        producer.send("t", b"0").result(PATIENCE_S)
        handle(lambda _line: waits.append(goes_on.wait(PATIENCE_S)))
        fake.control("Produce", lambda _call: Alter(not_the_leader), times=1)
        producer.send("t", b"1").result(PATIENCE_S)
        goes_on.set()
        producer.send("t", b"2").result(PATIENCE_S)
        wait_until(lambda: bool(waits))
    assert all(waits)


def test_a_line_waits_for_no_configuration_of_logging() -> None:
    """`dictConfig` has the lock while it makes handlers, which may use a client."""
    code = """
from kohort import Producer
from kohort.testing import FakeBroker
import logging, queue
from logging.handlers import QueueHandler
lines = queue.Queue()
logging.basicConfig(level="INFO", handlers=[QueueHandler(lines)])
with FakeBroker(topics={"t": 1}) as fake, logging._lock, Producer(fake.bootstrap) as producer:
    producer.send("t", b"0").result(30)
    fake.disconnect()
    producer.send("t", b"1").result(30)
    assert lines.empty()
while "connection ended" not in lines.get(timeout=30).getMessage():
    pass
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=90)


def test_filters_of_the_application_see_a_kept_line_once_and_where_it_is_written() -> None:
    code = """
import logging
from collections import deque
seen = []
log = logging.getLogger("kohort.driver")
log.addFilter(lambda line: seen.append(line.getMessage()) is None)
from kohort.common.log_context import keep_lines, write_lines
kept = deque()
keep_lines(kept)
log.warning("one")
assert seen == []
write_lines(kept)
assert seen == ["one"]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_handler_that_raises_ends_no_client(
    handle: Callable[[Callable[[str], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(line: str) -> None:
        raise OSError(f"no server takes: {line}")

    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap) as producer:
        producer.send("t", b"0").result(PATIENCE_S)
        handle(refuse)
        fake.disconnect()
        wait_until(lambda: "no server takes: data connection ended" in capsys.readouterr().err)
        producer.send("t", b"1").result(PATIENCE_S)


def test_a_client_sends_its_own_lines(handle: Callable[[Callable[[str], object]], None]) -> None:
    with FakeBroker(topics={"t": 1, "lines": 1}) as fake, Producer(fake.bootstrap) as producer:
        producer.send("t", b"0").result(PATIENCE_S)
        handle(lambda line: producer.send("lines", line.encode()))
        fake.disconnect()
        wait_until(lambda: fake.end_offset("lines", 0) > 0)


def test_lines_are_kept_while_a_handler_is_busy_and_written_in_their_order(
    handle: Callable[[Callable[[str], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "PATIENCE_S", 0.0)
    goes_on, written, logger = threading.Event(), [], logging.getLogger("kohort.driver")

    def slow(line: str) -> None:
        goes_on.wait(PATIENCE_S)
        written.append(line)

    handle(slow)
    kept: deque[logging.LogRecord] = deque(maxlen=MOST)
    writer = log_writer.LogWriter(kept)
    keep_lines(kept)
    try:
        for number in range(MOST + 5):
            logger.info("%d", number)
            writer.write()
        goes_on.set()
        wait_until(lambda: len(written) == MOST + 1)  # without another call
    finally:
        keep_lines(None)
        writer.end()
    logger.info("direct")
    wait_until(lambda: len(written) == MOST + 2)
    numbers_written = [int(line) for line in written if line != "direct"]
    assert numbers_written == [0, *range(5, MOST + 5)]


def test_lines_are_written_where_no_thread_can_be_started(
    handle: Callable[[Callable[[str], object]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    written: list[str] = []
    handle(written.append)
    kept: deque[logging.LogRecord] = deque()
    keep_lines(kept)
    try:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        writer = log_writer.LogWriter(kept)
        for number in range(2):
            logging.getLogger("kohort.driver").info("%d", number)
            writer.write()
        assert (written, list(kept)) == (["0", "1"], [])
    finally:
        keep_lines(None)
        writer.end()


def test_every_logger_of_the_clients_is_listed() -> None:
    from pathlib import Path

    named = set()
    for folder in (Path(__file__).parents[2] / "src" / "kohort").iterdir():
        for path in folder.resolve().rglob("*.py"):
            text = path.read_text()
            named |= set(re.findall(r'^log = logger\("([\w.]+)"\)', text, re.MULTILINE))
            if "logger(__name__)" in text:
                named.add(f"kohort.{folder.name}.{path.stem}")
    assert named == set(LOGGERS)


def test_a_line_whose_writer_cannot_be_imported_ends_no_client_and_is_written_later() -> None:
    """The first line of a process may be about file descriptors that are all in use, so that no module can be read."""
    code = """
import logging, sys
from kohort import Producer
from kohort.testing import FakeBroker
logging.basicConfig(level="INFO")
with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap) as producer:
    sys.modules["kohort.network.log_writer"] = None
    producer.send("t", b"0").result(30)
    fake.disconnect()
    producer.send("t", b"1").result(30)
    del sys.modules["kohort.network.log_writer"]
    producer.send("t", b"2").result(30)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "connection ended" in done.stderr
