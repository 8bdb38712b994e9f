"""``python -m tests.streams.compare COMMIT [scenario ...]``: does this tree draw what COMMIT draws, to the bit?

Both trees run ``scenarios.py``, this tree's, side by side, with this interpreter and compiled code of their own. Where
nothing moved a last line is all that is printed; else the first number of each scenario that is another, and the status
is 1. What COMMIT gave is kept among the temporary files, for these scenarios and versions.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import tests
from tests.streams import scenarios

ROOT = Path(tests.__file__).parents[1]
VERSIONS = ("numpy", "scipy", "numba", "pymc", "pytensor")


def main(commit: str, *names: str) -> int:
    """Run both, compare, print; how many scenarios differ."""
    wanted = names or tuple(scenarios.SCENARIOS)
    sha = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    made = repr((sys.version, [version(name) for name in VERSIONS])).encode()
    made = hashlib.sha256(made + Path(scenarios.__file__).read_bytes()).hexdigest()
    kept = Path(tempfile.gettempdir()) / "pymc_kameleon-streams" / f"{sha[:12]}-{made[:12]}"
    kept.mkdir(parents=True, exist_ok=True)
    missing = [name for name in wanted if not (kept / f"{name}.npz").exists()]
    with tempfile.TemporaryDirectory() as folder:
        here, there, tree = (Path(folder) / name for name in ("here", "there", "tree"))
        runs = [_start(ROOT, here, wanted)]
        try:
            if missing:
                _git("worktree", "add", "--detach", str(tree), sha)
                runs.append(_start(tree, there, missing))
            if sum(run.wait() for run in runs):
                raise SystemExit("a tree could not be run, see above")
        finally:
            for run in runs:
                run.kill()
            if tree.exists():
                _git("worktree", "remove", "--force", str(tree))
        for name in missing:
            (kept / f"{name}.npz").write_bytes((there / f"{name}.npz").read_bytes())
        both = {name: [dict(np.load(f / f"{name}.npz")) for f in (kept, here)] for name in wanted}
    found = {name: text for name, (old, new) in both.items() if (text := difference(old, new))}
    for name, text in found.items():
        print(f"{name}: {text}")
    print(f"{len(found)} of {len(wanted)} scenarios differ from {sha[:7]}")
    return len(found)


def _start(tree: Path, folder: Path, names) -> subprocess.Popen:
    """``scenarios.py`` on the package in ``tree``."""
    folder.mkdir()
    own = {"PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(folder / "numba")}
    own |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, scenarios.__file__, str(tree), str(folder), *names]
    return subprocess.Popen(command, env={**os.environ, **own}, cwd=folder)


def difference(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> str:
    """What ``new`` has otherwise: empty where every bit is the same; else the earliest number, and how many arrays."""
    for run, which in ((old, "there"), (new, "here")):
        if "raised" in run:
            return f"{which} {run['raised']}"
    moved = {name: _first(old[name], new[name]) for name in old.keys() & new.keys()}
    moved = {name: found for name, found in moved.items() if found is not None}
    said = []
    if moved:  # in the order of a run: groups, and draws in a group
        first = min(moved, key=lambda n: (scenarios.GROUPS.index(n.split(".")[0]), moved[n][0], n))
        said = [f"{first}{moved[first][1]}; {len(moved)} of {len(old)} arrays"]
    for which, names in (("gone", old.keys() - new.keys()), ("new", new.keys() - old.keys())):
        said += [f"{which}: {', '.join(sorted(names))}"] if names else []
    return "; ".join(said)


def _first(old: np.ndarray, new: np.ndarray) -> tuple[list[int], str] | None:
    """([draw, chain, ...], words) of the first difference; None if there is none."""
    if old.shape != new.shape or old.dtype.kind != new.dtype.kind:
        return [], f" is {new.dtype} {new.shape}, was {old.dtype} {old.shape}"
    places = np.argwhere((_bytes(old, new) != _bytes(new, old)).any(axis=-1)).tolist()
    if not places:
        return None
    place = min(places, key=lambda p: [*p[1::-1], *p[2:]])
    return place[1::-1] + place[2:], f"{place} is {new[tuple(place)]}, was {old[tuple(place)]}"


def _bytes(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of each element, along the last axis; every NaN is the same one."""
    values = np.array(values, np.result_type(values, others), order="C")
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan
    return np.frombuffer(values.tobytes(), np.uint8).reshape(*values.shape, values.itemsize)


def _git(*command: str) -> str:
    result = subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)
    return result.stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(scenarios.SCENARIOS)}; default: all of them")
    given = parser.parse_args()
    if unknown := [name for name in given.scenario if name not in scenarios.SCENARIOS]:
        parser.error(f"no scenario is named {', '.join(unknown)}")
    sys.exit(bool(main(given.commit, *given.scenario)))
