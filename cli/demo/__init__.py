"""The main job on a real broker: foreign producers, a group that loses a member, and Spark to check it.

`command.py` runs the acts in order. The acts are `producers.py`, `group.py` with its `member.py`, and `spark.py`.
"""

from kohort.common.errors import KohortError


class DemoFailed(KohortError):
    """The dataset is not installed, a producer or a member failed, or the group made no progress."""
