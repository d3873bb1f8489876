"""Errors of fetching or starting a broker, each with a remedy."""

from kohort.common.errors import KohortError


class JdkMissing(KohortError):
    """No Java 17 or newer was found; `found` names what was looked at."""


class JarsUnavailable(KohortError):
    """Apache Kafka's jars could not be resolved, or what arrived is not what it was when it was first seen."""


class BrokerStartError(KohortError):
    """A broker did not come up. `log` is its log file, whose last lines are in the message."""

    several_lines = True


class PostgresStartError(KohortError):
    """A PostgreSQL server did not come up, or there is none to start. `log` is its log file."""

    several_lines = True


class PackagesUnavailable(KohortError):
    """Debian's packages are not available here: no apt, no network, or package lists that were never fetched."""


class KdcStartError(KohortError):
    """A Kerberos KDC did not come up, or refused a request. `log` is its log file."""


class SparkStartError(KohortError):
    """A Spark cluster did not come up, or PySpark is not installed. `log` is the output of the process that failed."""

    several_lines = True


class BrokerStateError(KohortError):
    """An operation that the server's state forbids, such as starting a running one."""
