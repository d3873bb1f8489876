"""The example that users copy is run here as it stands."""

from examples.test_hooks import (
    test_a_lost_connection_is_none_of_the_hooks_business,
    test_lost_partitions_are_not_committed,
    test_what_the_hook_answers_is_committed_before_the_partitions_go,
)

__all__ = [
    "test_a_lost_connection_is_none_of_the_hooks_business",
    "test_lost_partitions_are_not_committed",
    "test_what_the_hook_answers_is_committed_before_the_partitions_go",
]
