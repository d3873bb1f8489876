"""Short runs of the soak, with a kill, a freeze, joins, and the loss of a broker or another protocol. A hundred, and as
many of KIP-848: `make soak-groups`."""

import pytest

from kohort.testing import RealCluster
from tests.soak.checker import judge, ours
from tests.soak.conductor import ROOT, Conductor
from tests.soak.history import Entry
from tests.soak.plan import CLASSIC, CONSUMER, EPOCH_PEERS, Act, Plan, epoch_plan, plan
from tests.support.broker_selection import wanted_version

CHAOS_S = 4.5
SHORT_CHAOS_S = 4.0

pytestmark = pytest.mark.broker


def lived(cluster: RealCluster, chosen: Plan, name: str) -> list[Entry]:
    try:
        return Conductor(cluster, chosen, ROOT / "out" / "soak" / name).run()
    finally:
        cluster.start()


@pytest.mark.proves("G-04", "G-08", "F-04", "F-05", "B-33")
@pytest.mark.parametrize(
    ("seed", "strategy"), [(38, "cooperative-sticky"), pytest.param(53, "roundrobin", marks=pytest.mark.full)]
)
def test_a_mixed_group_through_faults_has_one_owner_each_and_loses_nothing(
    seed: int, strategy: str, cluster3: RealCluster
) -> None:
    chosen = plan(seed, CHAOS_S)
    assert chosen.strategy == strategy
    assert {Act.KILL, Act.STOP, Act.JOIN} < {action.act for action in chosen.actions}
    history = lived(cluster3, chosen, f"test-{seed}")
    whats = [entry.what for entry in history]
    assert {"killed", "stopped", "continued", "broker", "delivered", "commit", "drained"} <= set(whats)
    assert list(ours(judge(history))) == []


@pytest.mark.skipif(int(wanted_version().partition(".")[0]) < 4, reason="KIP-848 is on from Kafka 4.0")
@pytest.mark.proves("G-03", "G-08", "G-14", "F-04", "B-33")
def test_a_mixed_group_goes_over_to_kip_848_through_faults(cluster3: RealCluster) -> None:
    chosen = epoch_plan(2833, SHORT_CHAOS_S)
    assert (chosen.protocol, set(chosen.first) > set(EPOCH_PEERS)) == (CLASSIC, True)
    assert {Act.KILL, Act.STOP, Act.JOIN, Act.CONVERT, Act.RESTART} == {action.act for action in chosen.actions}
    history = lived(cluster3, chosen, "test-consumer")
    whats = [entry.what for entry in history]
    assert {"killed", "stopped", "continued", "delivered", "commit", "drained"} <= set(whats)
    (became,) = (entry for entry in history if entry.what == "became")
    assert became.facts == {"kind": CONSUMER, "due": CONSUMER}
    assert list(ours(judge(history))) == []
