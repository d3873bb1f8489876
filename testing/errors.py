"""What can go wrong while a broker is fetched or started, each with what to do about it."""

from kohort.common.errors import KohortError


class JdkMissing(KohortError):
    """No Java 17 or newer was found; `found` names what was looked at."""


class JarsUnavailable(KohortError):
    """Apache Kafka's jars could not be resolved, or what arrived is not what it was when it was first seen."""


class BrokerStartError(KohortError):
    """A broker did not come up: `log` is the file with its own words, whose last lines are in the message."""

    several_lines = True


class PostgresStartError(KohortError):
    """A PostgreSQL server did not come up, or there is none to start: `log` is the file with its own words."""

    several_lines = True


class PackagesUnavailable(KohortError):
    """Debian's packages cannot be had here: no apt, no network, or lists that nobody has fetched."""


class KdcStartError(KohortError):
    """A Kerberos KDC did not come up, or refused what was asked of it: `log` is the file with its own words."""


class BrokerStateError(KohortError):
    """A broker was asked for something that its state forbids, such as starting one that runs."""
