"""The main job on a real broker: foreign producers, a group that loses a member, and Spark to check it.

`story.py` runs it in order. The other modules are the `dataset`, how the topic is `filling`, a `member` of
the group, its `ledger`, the `watch` over it, and the `report`.
"""
