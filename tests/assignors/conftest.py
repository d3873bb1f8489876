"""Both cores, Java's assignors, and what tests of plans share."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from kohort.assignors import _balance, balance_py, integer_group, plan, rack, sticky
from kohort.cli.assigning.java_plans import JavaPlans


@pytest.fixture(params=[_balance, balance_py], ids=["compiled", "plain"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Every test that uses it runs on the compiled core and on its twin."""
    chosen: ModuleType = request.param
    for user in (integer_group, plan, rack, sticky):
        monkeypatch.setattr(user, "core", chosen)
    return chosen


@pytest.fixture(scope="session")
def java() -> Iterator[JavaPlans]:
    """Kafka's own assignors in one JVM for the whole run."""
    with JavaPlans(jvm_options=("-XX:TieredStopAtLevel=1",)) as plans:
        yield plans
