"""Errors that any client raises: settings, connections, login, topics.

Each has a message, the place (`error.place`) and the remedy (`error.hint`).
"""

from kohort.common.errors import KohortError


class ConfigError(KohortError):
    """A setting that is unknown, of the wrong type or out of its bounds. Raised when the client is created."""


class ConcurrentUseError(KohortError):
    """Two threads used one consumer at the same time. Only `wakeup()` may be called from another thread."""


class ForkError(KohortError):
    """A client that was created before a fork was used in the child. Its sockets belong to the parent."""


class IllegalState(KohortError):
    """The call makes no sense now: not subscribed, partition not assigned, no group."""


class OperationTimeout(KohortError):
    """No response in time. Whether a commit that timed out was stored is unknown."""


class ConnectionFailed(KohortError):
    """No broker could be reached. `host` and `port` are of the last attempt, the message has its reason."""


class TlsError(ConnectionFailed):
    """The TLS handshake failed, or only one side uses TLS. Never retried in plaintext."""


class AuthenticationFailed(ConnectionFailed):
    """The broker refused the credentials, or the SASL mechanism."""


class TokenUnavailable(ConnectionFailed):
    """No bearer token now: the issuer is down, or the function raised (`__cause__`) or hangs.

    Requests are retried, ever more rarely. After a refusal by the issuer there is no retry (AuthenticationFailed).
    """


class TicketUnavailable(TokenUnavailable):
    """No Kerberos ticket now: the KDC cannot be reached, the ticket has expired, or there is none yet.

    It is looked for again. After a refusal by the KDC there is no retry (AuthenticationFailed).
    """


class FrameTooLarge(KohortError):
    """A broker announced a frame longer than `max_frame_bytes`, or of negative length. Nothing was allocated."""


class UnknownTopic(KohortError):
    """A topic that was named does not exist (and did not appear within the time given)."""


class AuthorizationFailed(KohortError):
    """The principal lacks an authorization: `topic` or `group` is the resource."""


class CommitFailed(KohortError):
    """Offsets of one or more partitions were not committed. `commit_log()` lists them, and those that were stored.

    After losing the group (session expired, `max_poll_interval_ms` exceeded, fenced) another member may own the
    partitions, and the commit must not be retried.
    """
