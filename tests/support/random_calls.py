"""Random calls of a model, for tests that compare a client with it."""

import random
from collections.abc import Mapping


def call_at_random(model: object, weights: Mapping[str, int], count: int, chance: random.Random) -> None:
    """Call methods of `model` by their names, `count` times, each about as often as its weight demands."""
    for name in chance.choices(list(weights), list(weights.values()), k=count):
        getattr(model, name)()
