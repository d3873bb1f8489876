"""What the README shows, done as it stands there."""

import re
from pathlib import Path

from kohort import Consumer, TopicPartition
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.kit import read

README = Path(__file__).parents[2] / "README.md"


def snippet(begin: str, bootstrap: str) -> str:
    """The Python under a heading, for a broker that is there."""
    (found,) = re.findall(rf"\n## {begin}\n\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    return str(found).replace("localhost:9092", bootstrap)


def test_the_producer_writes_what_the_consumer_above_it_has_read() -> None:
    with FakeBroker(topics={"payments": 1, "totals": 1}) as fake:
        fake.produce("payments", 0, [(b"anna", b"5"), (b"bert", b"7")])
        with Consumer(fake.bootstrap, group="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["payments"])
            columns = next(iter(consumer))
            exec(
                snippet("A producer", fake.bootstrap),
                {"consumer": consumer, "columns": columns, "table": columns.to_arrow()},
            )
        assert fake.group("billing").offsets[TopicPartition("payments", 0)].offset == 2
        with Consumer(fake.bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign({TopicPartition("totals", 0): 0})
            assert [record.value for record in read(consumer, 3)] == [b"42", b"5", b"7"]
