"""Named tuples of `kohort.common` behave as those of `typing`."""

import copy
import inspect
import pickle
import typing
from typing import TYPE_CHECKING, Any

import pytest

from kohort.common import named_tuple

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    NamedTuple = named_tuple.NamedTuple


class Ours(NamedTuple):
    """A documented value."""

    first: int
    second: str = "b"
    third: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"

    @classmethod
    def of(cls, first: int) -> "Ours":
        return cls(first, third=(first,))


class Theirs(typing.NamedTuple):
    """A documented value."""

    first: int
    second: str = "b"
    third: tuple[int, ...] = ()


class Empty(NamedTuple):
    """No field at all."""


def test_a_value_is_a_tuple_with_named_fields() -> None:
    value = Ours(1, third=(2,))
    assert tuple(value) == (1, "b", (2,))
    assert hash(value) == hash((1, "b", (2,)))
    assert (value.first, value.second, value.third) == (1, "b", (2,))
    assert value.both == "1b"
    assert Ours.of(4) == (4, "b", (4,))
    assert repr(value) == repr(Theirs(1, third=(2,))).replace("Theirs", "Ours")
    match value:
        case Ours(first, second=name):
            assert (first, name) == (1, "b")
    assert repr(Empty()) == "Empty()"
    assert len(Empty()) == 0


def test_the_class_says_the_same_of_itself() -> None:
    for name in (
        "_fields",
        "_field_defaults",
        "__match_args__",
        "__annotations__",
        "__doc__",
        "__slots__",
        "__module__",
    ):
        assert getattr(Ours, name) == getattr(Theirs, name), name
    assert inspect.signature(Ours) == inspect.signature(Theirs)
    assert Ours.__qualname__ == "Ours"
    assert not hasattr(Ours(1), "__dict__")


@pytest.mark.parametrize("kind", [Ours, Theirs])
def test_changes_and_conversions(kind: Any) -> None:
    value = kind(1)
    assert value._replace(second="c") == (1, "c", ())
    assert type(value._replace()) is kind
    assert value._asdict() == {"first": 1, "second": "b", "third": ()}
    assert kind._make(iter([1, "b", ()])) == value
    for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert type(again) is kind
        assert again == value
    with pytest.raises((TypeError, ValueError)):
        value._replace(fourth=1)
    with pytest.raises(TypeError):
        kind._make([1, "b"])
    with pytest.raises(AttributeError):
        value.first = 2


@pytest.mark.parametrize("kind", [Ours, Theirs])
@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1, "b", (), 4), {}), ((1,), {"first": 1}), ((1,), {"fourth": 1})]
)
def test_a_constructor_refuses_arguments_that_are_no_fields(
    kind: Any, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="argument"):
        kind(*given, **named)


def test_constructors_of_as_many_fields_do_not_share_their_names() -> None:
    class Other(NamedTuple):
        left: int
        middle: int
        right: int = 3

    assert Other(left=1, middle=2) == (1, 2, 3)
    assert Ours(first=1, second="x") == (1, "x", ())


def test_a_field_without_a_default_behind_one_with_a_default_is_refused() -> None:
    with pytest.raises(TypeError, match="without a default"):
        exec("class Wrong(NamedTuple):\n    first: int = 1\n    second: int", {"NamedTuple": NamedTuple})
