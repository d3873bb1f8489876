"""What users test against, and we do: real brokers at hand, and the errors that say why one is not."""

from kohort.testing.errors import BrokerStartError, BrokerStateError, JarsUnavailable, JdkMissing
from kohort.testing.real_broker import RealBroker, RealCluster

__all__ = ["BrokerStartError", "BrokerStateError", "JarsUnavailable", "JdkMissing", "RealBroker", "RealCluster"]
