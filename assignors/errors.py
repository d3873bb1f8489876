"""What can go wrong between a group and its plan."""

from kohort.common.errors import KohortError


class AssignorError(KohortError):
    """Anything about assignors that is refused on purpose."""


class UnknownAssignor(AssignorError):
    """No assignor goes by that name; the hint says which one was probably meant."""


class DuplicateAssignor(AssignorError):
    """Two different assignors want the same name, so a group could not tell which one its members meant."""


class BadGroup(AssignorError):
    """A group view that no group can have: the place names the member or the topic."""


class PlanError(AssignorError):
    """An assignor's plan that would break the group: a partition twice, missing, or with a stranger.

    `assignor` in its place names whose plan it is; `replay` is the file that plays the same input again.
    """
