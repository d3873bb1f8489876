"""The stages of a connection."""

from enum import Enum


class Stage(Enum):
    """The stage of a connection's setup."""

    OPENING = "opening"  # TCP and TLS: nothing can be written yet
    AUTHENTICATING = "authenticating"  # SASL: everything else waits
    CHECKING_API_VERSIONS = "requesting versions"  # ApiVersions is in flight, everything else waits
    READY = "ready"
    ENDED = "ended"
