"""The address of a coordinator."""

from typing import NamedTuple


class CoordinatorNode(NamedTuple):
    """The broker that coordinates the group, as FindCoordinator named it."""

    node_id: int
    host: str
    port: int
