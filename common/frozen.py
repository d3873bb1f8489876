"""Values that are no tuples: mappings, and what keeps what it has computed. Quicker to load than a dataclass."""


class Frozen:
    """Fields are annotated in the class, set once by `__init__` through `vars(self)`, and never again."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__annotations__)
        return f"{type(self).__name__}({shown})"
