"""Syntax of regular expressions that Java and Python accept and read in different ways.

Spark's own source has Java's expressions. A name of a topic has only ASCII letters, digits and `._-`, so the
differences in Unicode, line ends and blanks do not matter. Syntax that only Java has is an error of Python's `re`.
"""

import re

_TOKEN = re.compile(r"\\[0-9]{3}|\\.|&&|.", re.DOTALL)
_COMMENTS_FLAG = re.compile(r"\(\?[a-zA-Z]*x")


def read_differently(pattern: str) -> str | None:
    """The first such syntax of a pattern, or None."""
    if _COMMENTS_FLAG.search(pattern):
        return "a class under the flag x"
    in_class = False
    for token in _TOKEN.findall(pattern):
        if len(token) == 4:
            return f"{token}, a character by its octal number"
        if in_class and token in ("[", "&&"):
            return f"{token} in a class"
        in_class = token != "]" if in_class else token == "["
    return None
