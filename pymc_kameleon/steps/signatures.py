"""Keyword parameters that editors complete, and that still tell what was given from what was left out.

A preset replaces defaults and gives way to what the user gives, be that the default's own value. So the default of an
option in a signature is a marker around the value; :func:`given` drops the options that were left at theirs.
"""

import inspect
from collections.abc import Callable
from typing import Any


class Default:
    """The default of an option; ``text`` is what a signature shows of a value that is long."""

    def __init__(self, value: Any, text: str | None = None):
        self.value, self.text = value, text

    def __repr__(self):
        return self.text or repr(self.value)


def default(value: Any, text: str | None = None) -> Any:
    """Mark ``value`` as a default, of any type for those who check types."""
    return Default(value, text)


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options among the ``locals()`` of an ``__init__`` that were not left at their default."""
    others = ("self", "vars", "common", "__class__")
    return {
        name: value
        for name, value in arguments.items()
        if name not in others and not isinstance(value, Default)
    }


def signature(init: Callable, common: Callable) -> inspect.Signature:
    """The signature of ``init`` without markers, and with the parameters of ``common`` in place of its ``**common``."""
    own = inspect.signature(init).parameters
    shared = inspect.signature(common).parameters
    found = [_unmarked(p) for p in own.values() if p.name not in ("self", "common")]
    found += [p for p in shared.values() if p.name not in (*own, "options")]
    return inspect.Signature(found)


def with_common(cls: type, base: type) -> None:
    """Let ``cls`` show the parameters that ``base`` takes: in its signature, and below its own in its docstring."""
    if "__init__" in vars(cls):
        cls.__signature__ = signature(cls.__init__, base.__init__)  # type: ignore[attr-defined, misc]
    if cls.__doc__ and base.__doc__ and "Parameters" in cls.__doc__:
        # Python 3.13 takes the indentation out by itself
        common = inspect.cleandoc(base.__doc__).partition("Parameters\n----------\n")[2]
        common = common.partition("\npreset : ")[0].rstrip()
        own = inspect.cleandoc(cls.__doc__)
        cls.__doc__ = f"{own}\n\nOf every step\n-------------\n{common}\n"


def _unmarked(parameter: inspect.Parameter) -> inspect.Parameter:
    marker = parameter.default
    if isinstance(marker, Default) and marker.text is None:
        return parameter.replace(default=marker.value)
    return parameter


def sections(docstring: str) -> dict[str, list[str]]:
    """Headings of a numpydoc docstring, and the names of the parameters that stand under each."""
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if after.strip("-") == "" and len(after) >= 3 and len(after) == len(line):
            names = found.setdefault(line, [])
        elif line and not line.startswith((" ", "-")):
            names += [name.strip() for name in line.split(" : ")[0].split(",")]
    return found
