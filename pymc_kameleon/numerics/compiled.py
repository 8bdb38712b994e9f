"""Numba's ``njit`` for this package: machine code in Numba's cache is of these sources, or it is compiled anew.

Numba takes it from there where the function's own file is what it was. But it holds, inlined, functions, constants and
layouts of other files: after an edit of those, or an upgrade that left this one file as it was, old code would run. So
the stamp that Numba compares covers every file that compiles, or has the word ``njit`` in it. What a compiled function
refers to, or is given, is defined in one of those.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numba

__all__ = ["SOURCES", "is_cold", "njit"]


def _digest(folder: Path) -> str:
    """Of all files in ``folder`` that compile, or say ``njit``; 10 ms."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.rglob("*.py")):
        source = file.read_bytes()
        if b"njit" in source:
            digest.update(source)
    return digest.hexdigest()


SOURCES = _digest(Path(__file__).parents[1])
_files: list = []  # in Numba's cache, of every function


def njit(**options) -> Callable[[Callable], Callable]:
    """``numba.njit(**options)``, whose cache is of ``SOURCES``.

    Relies on Numba's ``dispatcher._cache._cache_file._source_stamp``; where that is not, Numba's own rule is left. And
    on its ``_load_index``, without which nothing :func:`is_cold`.
    """

    def compiled(function: Callable) -> Callable:
        dispatcher = numba.njit(**options)(function)
        file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if hasattr(file, "_source_stamp"):
            file._source_stamp = (file._source_stamp, SOURCES)
            if hasattr(file, "_load_index"):
                _files.append(file)
        return dispatcher

    return compiled


def is_cold() -> bool:
    """Whether Numba's cache has machine code of none of these functions yet: the first run has to make it."""
    return bool(_files) and not any(file._load_index() for file in _files)
