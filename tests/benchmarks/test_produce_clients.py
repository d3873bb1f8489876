"""Each client of the benchmark `produce` writes all records, and no more."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks import produce_clients as clients
from benchmarks.produce_clients import Load
from kohort.testing import FakeBroker

RECORDS = 700
VALUES = [b"%03d" % number for number in range(300)]
PARTITIONS = 2


@pytest.fixture
def load() -> Iterator[tuple[FakeBroker, Load]]:
    with FakeBroker(topics={"t": PARTITIONS}) as fake:
        yield fake, Load(fake.bootstrap, "t", VALUES, RECORDS, partitions=PARTITIONS)


def written(fake: FakeBroker) -> int:
    return sum(fake.end_offset("t", number) for number in range(PARTITIONS))


@pytest.mark.parametrize(
    "produce",
    [clients.ours, clients.columns, clients.ours_in_asyncio, clients.raw_socket, clients.confluent, clients.aiokafka],
)
def test_a_client_writes_all_records(produce: Callable[[Load], None], load: tuple[FakeBroker, Load]) -> None:
    fake, some = load
    produce(some)
    assert written(fake) == RECORDS


@pytest.mark.parametrize("paced", [clients.ours_paced, clients.confluent_paced])
def test_each_record_has_its_latency(
    paced: Callable[[Load, float], list[float]], load: tuple[FakeBroker, Load]
) -> None:
    fake, some = load
    took = paced(some, 20_000.0)
    assert len(took) == RECORDS
    assert min(took) > 0
    assert written(fake) == RECORDS + 1
