"""An option is described once: in the docstring of the class whose field it is. The others that have it are completed.

:class:`~pymc_kameleon.samplers.seam.Sampler` completes its subclasses by what they inherit, and the steps are completed
by the samplers that they run (:mod:`pymc_kameleon.steps.signatures`).
"""

import inspect
from itertools import pairwise


def split(docstring: str) -> tuple[str, dict[str, str]]:
    """A numpydoc docstring: what stands above its sections, and their bodies by heading."""
    lines = inspect.cleandoc(docstring).splitlines()
    starts = [i for i, (line, below) in enumerate(pairwise(lines)) if len(below) >= 3 and below == "-" * len(line)]
    bodies = {
        lines[start]: "\n".join(lines[start + 2 : end]).strip("\n")
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=False)
    }
    return "\n".join(lines[: starts[0] if starts else None]).strip("\n"), bodies


def join(head: str, bodies: dict[str, str]) -> str:
    """What :func:`split` took apart; empty sections are left out."""
    parts = [f"{name}\n{'-' * len(name)}\n{body}" for name, body in bodies.items() if body]
    return "\n\n".join([head, *parts]) + "\n"


def entries(body: str) -> dict[str, str]:
    """The parameters of a section: by name, what is said of each, its first line with the type included."""
    found: dict[str, str] = {}
    for line in body.splitlines():
        if line and not line.startswith(" "):
            name = line.split(" : ")[0]
            found[name] = line
        elif found:
            found[name] += f"\n{line}"
    return {name: text.rstrip() for name, text in found.items()}


def parameters(kind: type) -> dict[str, str]:
    """The entries of a class's section Parameters."""
    return entries(split(kind.__doc__ or "")[1].get("Parameters", ""))


def inherit(kind: type) -> None:
    """Add to the docstring of ``kind`` the parameters of the classes that it extends."""
    found = own = parameters(kind)
    for base in kind.__mro__[1:-1]:
        found = {**found, **{n: text for n, text in parameters(base).items() if n not in found}}
    if len(found) > len(own):
        head, bodies = split(kind.__doc__ or "")
        bodies = {"Parameters": "", **bodies} | {"Parameters": "\n".join(found.values())}
        kind.__doc__ = join(head, bodies)
