class Store:
    """The columns of one decode; nothing of it is for Python."""

    def __init__(self, capacity: int) -> None: ...
