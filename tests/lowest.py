"""The lowest versions that pyproject.toml allows, as constraints for pip: what ``make test-lowest`` installs.

Direct dependencies of the package alone; what they need in turn, and the tests' tools, are the newest that fit.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest() -> dict[str, str]:
    """The lower bound of every dependency, by name."""
    wanted = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["dependencies"]
    found = {}
    for requirement in wanted:
        match = re.fullmatch(r"([A-Za-z0-9_-]+)>=([0-9.]+)(,.*)?", requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound: write it as name>=version")
        found[match[1]] = match[2]
    return found


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in lowest().items()))
