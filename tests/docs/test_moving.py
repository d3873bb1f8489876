"""The tables of the pages for users of other clients agree with kohort's settings."""

import re
from pathlib import Path

from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.producer.producer_config import ProducerConfig

MOVING = Path(__file__).parents[2] / "docs" / "moving"
SETTINGS = {**ProducerConfig.table, **ConsumerConfig.table}
KNOWN = ConsumerConfig.by_kafka_name.keys() | ProducerConfig.by_kafka_name.keys()
PROPERTY = re.compile(r"`([a-z0-9]+(?:\.[a-z0-9]+)+)`")


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading, as cells."""
    part = (MOVING / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]


def first_code(cell: str) -> str:
    found = re.match(r"`([^`]+)`", cell)
    assert found is not None, cell
    return found[1]


def test_defaults_are_those_of_the_settings() -> None:
    table = rows("index.md", "Defaults that differ")
    assert len(table) > 10
    for name, ours, *_ in table:
        default = SETTINGS[first_code(name)].default
        text = ",".join(default) if isinstance(default, tuple) else str(default)
        assert first_code(ours) == text, name


def test_properties_of_librdkafka_are_refused_and_those_in_their_place_are_known() -> None:
    table = rows("confluent-kafka.md", "Settings")
    assert len(table) > 20
    for theirs, ours in table:
        assert set(PROPERTY.findall(ours)) <= KNOWN, ours
        if "`:" not in theirs:  # a row about values of a property that both have
            assert not set(PROPERTY.findall(theirs)) & KNOWN, theirs
