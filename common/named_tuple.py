"""`NamedTuple`, of which a class takes a sixth of the time of one of `typing.NamedTuple`.

A consumer makes a hundred such classes before its first record. `typing` compiles a constructor for each, and sets the
attributes one by one. Here a constructor is compiled for each number of fields, and its variables are renamed. To type
checkers, it is `typing.NamedTuple`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter  # namedtuple's own C getter
    from functools import cache
    from types import FunctionType

    _NAMES = {"_new": tuple.__new__, "__builtins__": {}, "__name__": __name__}

    @cache
    def _constructor(count):
        """The code of a constructor with `count` fields."""
        fields = "".join(f"field_{number}, " for number in range(count))
        return eval(f"lambda _cls, {fields}: _new(_cls, ({fields}))").__code__

    class _Fields(tuple):
        """The methods of all named tuples."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
            return made

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"{type(self).__name__} has no field {', '.join(map(repr, changes))}")
            return made

        __replace__ = _replace

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)])
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self):
            return tuple(self)

    class _NamedTupleMeta(type):
        def __new__(mcs, name, bases, body):
            if not bases:
                return super().__new__(mcs, name, bases, body)
            annotations = body.get("__annotations__")
            if annotations is None:  # since CPython 3.14 a function that makes them
                annotate = body.get("__annotate__") or body.get("__annotate_func__")
                annotations = annotate(1) if annotate else {}
            fields = tuple(annotations)
            defaults = {field: body[field] for field in fields if field in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name} has a field without a default behind one with a default")
            code = _constructor(len(fields)).replace(co_varnames=("_cls", *fields), co_name="__new__")
            new = FunctionType(code, _NAMES, "__new__", tuple(defaults.values()))
            new.__annotations__ = annotations
            body |= {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
            body |= {
                "__slots__": (),
                "__match_args__": fields,
                "__new__": new,
                "_fields": fields,
                "_field_defaults": defaults,
            }
            return type(name, (_Fields,), body)

    class NamedTuple(metaclass=_NamedTupleMeta):
        """Base of classes whose annotations are the fields."""
