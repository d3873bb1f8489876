"""The main job, told on a real broker: other people's producers, a group that loses a member, and Spark to check it.

`story.py` tells it in order; everything else is one noun each: the `dataset`, how the topic is `filling`, a `member` of
the group, its `ledger`, the `watch` over it, and the `report`.
"""
