class Store:
    """The columns of one decode. It has no Python interface."""

    def __init__(self, capacity: int) -> None: ...
