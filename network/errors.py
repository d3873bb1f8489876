"""Errors that any client raises: settings, connections, login, topics.

Each says what happened, where (`error.place`) and what to do (`error.hint`).
"""

from kohort.common.errors import KohortError


class ConfigError(KohortError):
    """A setting that is unknown, of the wrong type or out of its bounds; raised when the consumer is made."""


class ConcurrentUseError(KohortError):
    """Two threads used one consumer at the same time. Only `wakeup()` may be called from another thread."""


class ForkError(KohortError):
    """A consumer made before a fork was used in the child, whose sockets are the parent's."""


class IllegalState(KohortError):
    """The call makes no sense now: not subscribed, partition not assigned, no group."""


class OperationTimeout(KohortError):
    """No response in time. Whether a commit that timed out was stored is unknown."""


class ConnectionFailed(KohortError):
    """No broker could be reached: `host`, `port`, and the reason for the last attempt."""


class TlsError(ConnectionFailed):
    """The TLS handshake failed, or one side speaks TLS and the other does not. Never retried in the clear."""


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
    """A broker announced a frame longer than `max_frame_bytes` (or shorter than nothing); nothing was allocated."""


class UnknownTopic(KohortError):
    """A topic that was named does not exist (and did not appear within the time given)."""


class AuthorizationFailed(KohortError):
    """The principal may not do this: `topic` or `group` says on what."""


class CommitFailed(KohortError):
    """Offsets were not committed, of one partition or more: `commit_log()` says of which, and which were stored.

    After losing the group (session expired, `max_poll_interval_ms` exceeded, fenced) the partitions may already be
    someone else's, and the commit must not be tried again.
    """
