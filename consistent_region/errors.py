"""Errors of a consistent region. Each has the place (`error.place`) and a remedy (`error.hint`)."""

from kohort.common.errors import KohortError


class RegionError(KohortError):
    """Any error of a consistent region."""


class ConfigurationError(RegionError):
    """Settings or a registration that cannot work: found before anything is subscribed."""


class UnsupportedError(RegionError):
    """A call that a consistent region does not allow (assigning by hand, seeking from outside, ...)."""


class NotRegisteredError(RegionError):
    """The member is not registered at the coordinator, and must register again."""


class FencedError(RegionError):
    """A write under an old epoch or incarnation: a newer one exists, and nothing was written."""


class BarrierOver(FencedError):
    """A contribution to a checkpoint that is complete or was given up."""


class TaskTaken(FencedError):
    """A contribution with a task that another member has started since. Nothing was written."""


class RegionStopped(RegionError):
    """The region was stopped for good: too many resets in a row, or an error that no reset cures. `reason` has the
    cause."""


class CoordinatorUnavailable(RegionError):
    """The coordinator's store does not respond (locked, full, unreachable). The write has no effect, unless only its
    response was lost.
    """


class StrangerError(RegionError):
    """A consumer that is no member of the region is in its group: `place["strangers"]` names it (CR-87)."""


class UnreadError(RegionError):
    """Partitions that the region has read are not assigned to any member, so no checkpoint can be complete any more."""


class NotCopartitionedError(RegionError):
    """Topics whose partitions of one number form a task have different numbers of partitions."""


class SplitTaskError(RegionError):
    """Partitions of one task are assigned to several members: `place["assignor"]` must keep them together."""


class StateVersionError(RegionError):
    """A checkpoint has a state of a later version than this member, or members of several versions are present."""


class ResetFailedError(RegionError):
    """A checkpoint cannot be gone back to. The region never falls back to its initial state by itself."""


class StoreLost(ResetFailedError):
    """The coordinator's store is not the one in which the region was: it was deleted, replaced, or never this one."""


class StoreWentBack(ResetFailedError):
    """The store is an older copy: a checkpoint that was complete is not in it, and no operator went back."""


class CorruptManifest(ResetFailedError):
    """A manifest that is torn, truncated or contradicts its checksum."""


class AlienManifest(ResetFailedError):
    """A manifest that another program wrote, or of an unknown format version."""


class StaleManifest(ResetFailedError):
    """A sound manifest, but of another region, group or checkpoint than the requested one."""


class InconsistentCheckpointError(RegionError):
    """Contributions to one checkpoint that do not fit each other: no checkpoint comes of them."""


class DataLossError(RegionError):
    """Records that the checkpoint still needs are gone from the log (retention)."""


class TruncationError(RegionError):
    """The log ends before the checkpoint's offset: it was cut (unclean election)."""


class TopicRecreatedError(RegionError):
    """The topic was deleted and created again, so the checkpoint's offsets are not valid in it."""
