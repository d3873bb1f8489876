"""Two short runs of the soak, each with a kill, a freeze, joins and the loss of a broker; `make soak` has a hundred."""

import pytest

from kohort.testing import RealCluster
from tests.soak.checker import judge, ours
from tests.soak.conductor import ROOT, Conductor
from tests.soak.plan import Act, plan

CHAOS_S = 4.5


@pytest.mark.broker
@pytest.mark.timeout(300)
@pytest.mark.proves("G-04", "G-08", "F-04", "F-05", "B-33")
@pytest.mark.parametrize(("seed", "strategy"), [(38, "cooperative-sticky"), (53, "roundrobin")])
def test_a_mixed_group_through_faults_has_one_owner_each_and_loses_nothing(
    seed: int, strategy: str, cluster3: RealCluster
) -> None:
    chosen = plan(seed, CHAOS_S)
    assert chosen.strategy == strategy
    assert {Act.KILL, Act.STOP, Act.JOIN} < {action.act for action in chosen.actions}
    try:
        history = Conductor(cluster3, chosen, ROOT / "out" / "soak" / f"test-{seed}").run()
    finally:
        cluster3.start()
    whats = [entry.what for entry in history]
    assert {"killed", "stopped", "continued", "broker", "delivered", "commit", "drained"} <= set(whats)
    assert list(ours(judge(history))) == []
