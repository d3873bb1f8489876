"""Errors that any client raises: settings, connections, login, topics.

Each has a message, the place (`error.place`) and the remedy (`error.hint`).
"""

from kohort.common.errors import KohortError


class ConfigError(KohortError):
    """A setting that is unknown, of the wrong type or out of its bounds. Raised when the client is created.

    Cure:
        Follow the hint. `SETTINGS` of the client's package lists all settings.
    """


class ConcurrentUseError(KohortError):
    """Two calls used one client at the same time.

    They are of two threads with one consumer, of two tasks that poll, or of a signal handler that interrupted a call.

    Cure:
        Use one consumer in each thread or task. Another thread may call `wakeup()`, `health()` and `metrics()`. In a
        signal handler call `wakeup()` only.
    """


class ForkError(KohortError):
    """A client that was created before a fork was used in the child. Its sockets belong to the parent.

    Cure:
        Make the client in the child. With `multiprocessing` use the start method `spawn`.
    """


class WakeupError(KohortError):
    """`wakeup()` was called: raised exactly once, by the running poll or the next one.

    Cure:
        Leave the loop, or poll again.
    """


class IllegalState(KohortError):
    """The call makes no sense now: not subscribed, partition not assigned, no group.

    Cure:
        Call `subscribe`, `assign` or what the message names first.
    """


class OperationTimeout(KohortError):
    """No response in time. Whether a commit that timed out was stored is unknown.

    Cure:
        Call again. Before another commit read `committed()`, which shows if the first one was stored.
    """


class ConnectionFailed(KohortError):
    """No broker could be reached. `host` and `port` are of the last attempt, the message has its reason.

    Cure:
        Check `bootstrap`, the network and the broker's `advertised.listeners`. `kohort doctor` checks them from here.
    """


class RebootstrapRequired(ConnectionFailed):
    """A broker of another cluster, or another broker, is at the address of a known one (KIP-1242).

    The client forgets all addresses, and uses `bootstrap` again. With `metadata_recovery_strategy="none"` it does not.

    Cure:
        Nothing, if the addresses of brokers moved. Otherwise check `advertised.listeners`: each broker needs its own.
    """


class TlsError(ConnectionFailed):
    """The TLS handshake failed, or only one side uses TLS. Never retried in plaintext.

    `is_cut`: the connection ended during the handshake. The port may be a plaintext one, or the broker is stopping.

    Cure:
        Correct `security_protocol`, the certificates or the host names. [Security](../security.md#errors-and-cures)
        lists the messages.
    """

    is_cut = False


class AuthenticationFailed(ConnectionFailed):
    """The broker refused the credentials, or the SASL mechanism.

    Cure:
        Correct the credentials or `sasl_mechanism`, and make a new client. The same client does not try again.
    """


class TokenUnavailable(ConnectionFailed):
    """No bearer token now: the issuer is down, or the function raised (`__cause__`) or hangs.

    Requests are retried, ever more rarely. After a refusal by the issuer there is no retry (AuthenticationFailed).

    Cure:
        Check the issuer or the function `sasl_oauth_token`. The client tries again by itself.
    """


class TicketUnavailable(TokenUnavailable):
    """No Kerberos ticket now: the KDC cannot be reached, the ticket has expired, or there is none yet.

    It is looked for again. After a refusal by the KDC there is no retry (AuthenticationFailed).

    Cure:
        Run `kinit`, or set `sasl_kerberos_keytab`. Check `krb5.conf` and the KDC.
    """


class FrameTooLarge(KohortError):
    """A broker announced a frame longer than `max_frame_bytes` or than there is memory for, or of negative length.

    Nothing was allocated.

    Cure:
        Check that the port is a Kafka listener. Raise `max_frame_bytes` if the broker's batches are larger.
    """


class UnknownTopic(KohortError):
    """A topic that was named does not exist (and did not appear within the time given).

    Cure:
        Create the topic, or correct its name: `kohort topic list`.
    """


class AuthorizationFailed(KohortError):
    """The principal lacks an authorization: `topic` or `group` is the resource.

    Cure:
        Grant the operation that the message names on the resource, then call again.
    """


class CommitFailed(KohortError):
    """Offsets of one or more partitions were not committed. `commit_log()` lists them, and those that were stored.

    After losing the group (session expired, `max_poll_interval_ms` exceeded, fenced) another member may own the
    partitions, and the commit must not be retried.

    Cure:
        Poll. The member joins again, and the owners read on from the last stored offsets. Do not commit these offsets
        again.
    """
