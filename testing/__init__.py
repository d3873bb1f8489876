"""Tools for tests with Kafka: real brokers, faults between client and broker, a fake broker, a world for regions.

Names are resolved at first use, so that a command which only starts a broker loads no codec.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.testing.errors import BrokerStartError as BrokerStartError
    from kohort.testing.errors import BrokerStateError as BrokerStateError
    from kohort.testing.errors import JarsUnavailable as JarsUnavailable
    from kohort.testing.errors import JdkMissing as JdkMissing
    from kohort.testing.errors import KdcStartError as KdcStartError
    from kohort.testing.errors import PackagesUnavailable as PackagesUnavailable
    from kohort.testing.errors import PostgresStartError as PostgresStartError
    from kohort.testing.errors import SparkStartError as SparkStartError
    from kohort.testing.fake_broker import FakeBroker as FakeBroker
    from kohort.testing.fault_proxy import FaultProxy as FaultProxy
    from kohort.testing.fault_proxy import ProxiedCluster as ProxiedCluster
    from kohort.testing.real_broker import RealBroker as RealBroker
    from kohort.testing.real_broker import RealCluster as RealCluster
    from kohort.testing.real_kdc import RealKdc as RealKdc
    from kohort.testing.real_postgres import RealPostgres as RealPostgres
    from kohort.testing.simulation import Simulation as Simulation
    from kohort.testing.simulation import Violation as Violation
    from kohort.testing.spark_cluster import SparkCluster as SparkCluster

_HOME = {
    "BrokerStartError": "errors",
    "BrokerStateError": "errors",
    "JarsUnavailable": "errors",
    "JdkMissing": "errors",
    "KdcStartError": "errors",
    "PackagesUnavailable": "errors",
    "PostgresStartError": "errors",
    "SparkStartError": "errors",
    "FakeBroker": "fake_broker",
    "FaultProxy": "fault_proxy",
    "ProxiedCluster": "fault_proxy",
    "RealBroker": "real_broker",
    "RealCluster": "real_broker",
    "RealKdc": "real_kdc",
    "RealPostgres": "real_postgres",
    "Simulation": "simulation",
    "Violation": "simulation",
    "SparkCluster": "spark_cluster",
}

__all__ = sorted(_HOME)


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'kohort.testing' has no attribute {name!r}")
        value = getattr(import_module(f"kohort.testing.{_HOME[name]}"), name)
        globals()[name] = value
        return value
