"""The integer core: the compiled module if built, else its equivalent in plain Python."""

try:
    from kohort.assignors import _balance as core
except ImportError:  # an installation without a compiler
    from kohort.assignors import balance_py as core  # type: ignore[no-redef]

__all__ = ["core"]
