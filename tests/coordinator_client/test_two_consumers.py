"""Consumer and AsyncConsumer have the same calls, with the same arguments, docstrings and settings."""

import inspect

import pytest

from kohort import AsyncConsumer, Consumer

WAIT = [
    *("beginning_offsets", "close", "commit", "committed", "end_offsets", "group_members", "lag", "lag_s"),
    *("offsets_for_times", "partitions_for", "poll", "position", "position_of", "topics", "unsubscribe"),
]
"""The calls that wait, which AsyncConsumer has as coroutine functions."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_both_have_the_same_public_names() -> None:
    assert public(Consumer) == public(AsyncConsumer)


def test_the_calls_that_wait_are_coroutine_functions() -> None:
    waiting = [
        name for name in sorted(public(AsyncConsumer)) if inspect.iscoroutinefunction(getattr(AsyncConsumer, name))
    ]
    assert waiting == WAIT


@pytest.mark.parametrize("name", sorted(public(Consumer)))
def test_a_name_is_the_same_in_both(name: str) -> None:
    """A docstring of AsyncConsumer may add what cancellation does."""
    one, other = getattr(Consumer, name), getattr(AsyncConsumer, name)
    if callable(one):
        assert inspect.signature(one) == inspect.signature(other)
    text = inspect.getdoc(one)
    assert text
    assert (inspect.getdoc(other) or "").startswith(text)


def test_a_consumer_is_made_the_same_way() -> None:
    assert inspect.signature(AsyncConsumer) == inspect.signature(Consumer)
    assert "from_config" not in vars(Consumer).keys() | vars(AsyncConsumer).keys()
