"""Assignors by name, by instance and from other packages."""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint

import pytest

from kohort.assignors import (
    Assignor,
    AssignorError,
    DuplicateAssignor,
    GroupView,
    MemberSubscription,
    Plan,
    Rebalance,
    UnknownAssignor,
    get,
    get_all,
    names,
    registry,
)
from kohort.assignors.range import RangeAssignor
from kohort.common import TopicPartition


class First:
    """Everything to the first subscriber."""

    name = "first"
    rebalance = Rebalance.EAGER

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        return Plan.of(group, {})


class NamedOtherwise(First):
    name = "second"


Register = Callable[..., None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    def make(**classes: type[First]) -> None:
        entries = []
        for name, kind in classes.items():
            entry = EntryPoint(name.partition("__")[0], f"{__name__}:{kind.__name__}", registry.ENTRY_POINT_GROUP)
            monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[self.attr])
            entries.append(entry)
        monkeypatch.setattr(registry, "entry_points", lambda group: entries)

    return make


@pytest.mark.parametrize(
    "name", ["range", "roundrobin", "sticky", "cooperative-sticky", "lag", "weighted", "copartition"]
)
def test_built_in_names_are_those_on_the_wire(name: str) -> None:
    assert get(name).name == name
    assert isinstance(get(name), Assignor)
    assert name in names()


def test_only_the_cooperative_ones_say_so() -> None:
    assert {name for name in ("range", "roundrobin", "sticky") if get(name).rebalance is Rebalance.EAGER} == {
        "range",
        "roundrobin",
        "sticky",
    }
    assert get("cooperative-sticky").rebalance is Rebalance.COOPERATIVE


def test_an_instance_is_taken_as_it_is() -> None:
    mine = First()
    assert get(mine) is mine


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownAssignor, match="did you mean 'cooperative-sticky'"):
        get("coperative-stiky")
    with pytest.raises(UnknownAssignor, match=r"there are: .*roundrobin"):
        get("???")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (RangeAssignor, r"RangeAssignor\(\)"),
        (object(), "no name, rebalance, subscription, assign"),
        (7, "not an assignor"),
    ],
)
def test_what_is_no_assignor_is_refused(wrong: object, says: str) -> None:
    with pytest.raises(AssignorError, match=says):
        get(wrong)  # type: ignore[arg-type]


def test_an_installed_package_registers_by_entry_point(register: Register) -> None:
    register(first=First)
    assert get("first").name == "first"
    assert "first" in names()


def test_two_packages_of_one_name_are_refused(register: Register) -> None:
    register(first=First, first__again=NamedOtherwise)
    with pytest.raises(DuplicateAssignor, match=r"First.*and.*NamedOtherwise"):
        get("first")


def test_a_package_cannot_take_over_a_built_in_name(register: Register) -> None:
    register(range=First)
    assert isinstance(get("range"), RangeAssignor)
    assert names().count("range") == 1


def test_a_registered_package_without_its_module_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("first", "a_module_that_is_gone:First", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    with pytest.raises(
        AssignorError, match=r"cannot be imported: ModuleNotFoundError: .*a_module_that_is_gone.*pip uninstall"
    ):
        get("first")


def test_a_registration_under_another_name_is_refused(register: Register) -> None:
    register(first=NamedOtherwise)
    with pytest.raises(AssignorError, match="another name"):
        get("first")


def test_a_list_of_assignors_keeps_its_order_and_has_each_once() -> None:
    assert [each.name for each in get_all(["sticky", First(), "range"])] == ["sticky", "first", "range"]
    with pytest.raises(DuplicateAssignor, match="twice"):
        get_all(["range", RangeAssignor()])
    with pytest.raises(AssignorError, match=r"assignors=\['range'\]"):
        get_all("range")
    with pytest.raises(AssignorError, match="at least one"):
        get_all([])
