"""Errors of assignors."""

from kohort.common.errors import KohortError


class AssignorError(KohortError):
    """Base class of all assignor errors."""


class UnknownAssignor(AssignorError):
    """No assignor has this name; the hint is the nearest known name.

    Cure:
        Correct the name, install the package that registers it, or pass an instance.
    """


class DuplicateAssignor(AssignorError):
    """Two different assignors have the same name.

    Members of a group could then mean different assignors by it.

    Cure:
        Rename one of the two, or list only one of them.
    """


class BadGroup(AssignorError):
    """An invalid group view; the error's place is the member or the topic.

    Cure:
        Correct the group view at the named member or topic.
    """


class PlanError(AssignorError):
    """An assignor's plan is invalid.

    A partition is duplicated, missing, or assigned to a member that is not subscribed to its topic. In the error's
    place, `assignor` is the assignor's name, and `replay` the file to run the same input again.

    Cure:
        Correct the assignor, and run `kohort.assignors.replay` on the file until the plan is valid.
    """
