"""Errors of a consistent region. Each has the place (`error.place`) and a remedy (`error.hint`)."""

from kohort.common.errors import KohortError


class RegionError(KohortError):
    """Any error of a consistent region."""


class ConfigurationError(RegionError):
    """Settings or a registration that cannot work: found before anything is subscribed.

    Cure:
        Correct the setting that the message names. All members need equal settings.
    """


class UnsupportedError(RegionError):
    """A call that a consistent region does not allow (assigning by hand, seeking from outside, ...).

    Cure:
        Let the region move positions: by `start_position`, or `kohort region reset --to`.
    """


class NotRegisteredError(RegionError):
    """The member is not registered at the coordinator, and must register again.

    Cure:
        Nothing. `run` registers the member again.
    """


class FencedError(RegionError):
    """A write under an old epoch or another incarnation. Nothing was written.

    Cure:
        End this process, if another one has the member's name. After a reset `run` goes on by itself.
    """


class BarrierOver(FencedError):
    """A contribution to a checkpoint that is complete or was given up.

    Cure:
        Nothing. The member takes part in the next checkpoint.
    """


class TaskTaken(FencedError):
    """A contribution with a task that another member has started since. Nothing was written.

    Cure:
        Nothing. The member goes back to the newest checkpoint with the tasks that it has.
    """


class RegionStopped(RegionError):
    """The region was stopped for good: too many resets in a row, or an error that no reset cures. `reason` has the
    cause.

    Cure:
        Remove the cause. `kohort region reset --to SEQ` then lets the region run again.
    """


class CoordinatorUnavailable(RegionError):
    """The coordinator's store does not respond (locked, full, unreachable). The write has no effect, unless only its
    response was lost.

    Cure:
        Check the store: its server, its disk, its locks. The region goes on once it responds.
    """


class SinkUnavailable(RegionError):
    """The target of a sink does not respond (restarting, unreachable). Its effects stay owed.

    Cure:
        Check the target, then start the member again: the next owner of the tasks carries out the effects.
    """


class StrangerError(RegionError):
    """A consumer that is no member of the region is in its group: `place["strangers"]` names it (CR-87).

    Cure:
        Stop the consumer, or give it another group.
    """


class UnreadError(RegionError):
    """Partitions that the region has read are not assigned to any member, so no checkpoint can be complete any more.

    Cure:
        Start the missing members, or drop deleted topics by `kohort region forget TOPIC`.
    """


class NotCopartitionedError(RegionError):
    """Topics whose partitions of one number form a task have different numbers of partitions.

    Cure:
        Give the topics the same number of partitions, or set `tasks="topic"`.
    """


class SplitTaskError(RegionError):
    """Partitions of one task are assigned to several members: `place["assignor"]` must keep them together.

    Cure:
        Use the assignor `range`, or `copartition` with `hand_over=True`.
    """


class StateVersionError(RegionError):
    """A checkpoint has a state of a later version than this member, or members of several versions are present.

    Cure:
        Stop the members of another version. For an older state, set `migrate`.
    """


class ResetFailedError(RegionError):
    """A checkpoint cannot be gone back to. The region never falls back to its initial state by itself.

    Cure:
        Restore the named files or the store, or choose an older checkpoint by `kohort region reset --to SEQ`.
    """


class StoreLost(ResetFailedError):
    """The coordinator's store is not the one in which the region was: it was deleted, replaced, or never this one.

    Cure:
        Bring the store back, or accept this one by `kohort region begin --anew`.
    """


class StoreWentBack(ResetFailedError):
    """The store is an older copy: a checkpoint that was complete is not in it, or the start of a task that a sink has.
    No operator went back.

    Cure:
        Bring the current store back, or accept this one by `kohort region begin --anew`.
    """


class CorruptManifest(ResetFailedError):
    """A manifest that is torn, truncated or contradicts its checksum.

    Cure:
        Restore the store from a backup, or choose an older checkpoint by `kohort region reset --to SEQ`.
    """


class AlienManifest(ResetFailedError):
    """A manifest that another program wrote, or of an unknown format version.

    Cure:
        Install the version of kohort that wrote it, or choose another store.
    """


class StaleManifest(ResetFailedError):
    """A sound manifest, but of another region, group or checkpoint than the requested one.

    Cure:
        Use the store and the names of the region that wrote it.
    """


class InconsistentCheckpointError(RegionError):
    """Contributions to one checkpoint that do not fit each other: no checkpoint comes of them.

    Cure:
        Nothing, if it happens once: the next checkpoint replaces it. Report it if it happens again.
    """


class DataLossError(RegionError):
    """Records that the checkpoint still needs are gone from the log (retention).

    Cure:
        Restore the records, or set `on_data_loss="earliest"` if the loss is accepted. Raise the topic's retention.
    """


class TruncationError(RegionError):
    """The log ends before the checkpoint's offset: it was cut (unclean election).

    Cure:
        Choose a checkpoint before the cut by `kohort region reset --to SEQ`. Switch unclean elections off.
    """


class TopicRecreatedError(RegionError):
    """The topic was deleted and created again, so the checkpoint's offsets are not valid in it.

    Cure:
        Stop all members, and run `kohort region forget TOPIC`.
    """
