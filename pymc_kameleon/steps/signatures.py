"""What ``help`` and editors show of a step: keywords that tell what was given, and one description of each option.

A preset replaces defaults and gives way to what the user gives, be that the default's own value. So the default of an
option in a signature is a marker around the value; :func:`given` drops the options that were left at theirs.

An option is described where it is a field: in the docstring of the sampler. A step's own docstring describes what is
none of its sampler's, and :func:`complete` puts the rest between.
"""

import inspect
from collections import ChainMap
from typing import Any

from pymc_kameleon.samplers.docstrings import join, parameters, split


class Default:
    """The default of an option."""

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self):
        return repr(self.value)


def default(value: Any) -> Any:
    """Mark ``value`` as a default, of any type for those who check types."""
    return Default(value)


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among the ``locals()`` of an ``__init__`` that were not left at their default."""
    others = ("self", "vars", "common", "__class__")
    return {name: value for name, value in arguments.items() if name not in others and not isinstance(value, Default)}


def complete(cls: Any, base: Any) -> None:
    """Let ``cls`` show all its options, in its signature and its docstring.

    First those that it calls ``leading``, then its own for experiments, then those of ``base``, which every step takes.
    """
    if "__init__" not in vars(cls):
        return
    own = inspect.signature(cls.__init__).parameters
    shared = inspect.signature(base.__init__).parameters
    every = {n: p for n, p in {**shared, **own}.items() if n not in ("self", "common", "options")}
    first = [n for n in cls.leading if n in every]
    own_rest = [n for n in own if n in every and n not in (*first, "vars")]
    rest = [n for n in every if n not in (*first, *own_rest, "vars")]
    shown = [
        p.replace(default=p.default.value) if isinstance(p.default, Default) else p
        for p in (every[n] for n in ("vars", *first, *own_rest, *rest))
    ]
    cls.__signature__ = inspect.Signature(shown)
    if not cls.__doc__:
        return
    said = ChainMap(parameters(cls), *map(parameters, cls.variants.values()), parameters(base))
    places = {"Parameters": first, "For experiments": own_rest, "Of every step": ["vars", *rest]}
    found = {h: "\n".join(said[n] for n in names if n in said) for h, names in places.items()}
    head, bodies = split(cls.__doc__)
    cls.__doc__ = join(head, found | {h: body for h, body in bodies.items() if h not in found})
