"""``python -m tests.wheel``: build wheel and sdist, look into them, install the wheel elsewhere and use it.

The environment is a new one that sees the dependencies of this one, so that nothing is downloaded but the build tool's
needs, and that does not see this source tree.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = ("py.typed", "data/glass.csv", "data/lynx_hare.csv", "data/README.md")
USE = """
import pathlib, sys
import pymc_kameleon as pk
from pymc_kameleon.datasets import load_glass, load_lynx_hare
assert pathlib.Path(pk.__file__).is_relative_to(sys.prefix), pk.__file__
assert load_glass().X.shape == (214, 9) and len(load_lynx_hare().year) == 21
assert pk.__version__ == sys.argv[1], pk.__version__
"""


def main() -> None:
    """Build, look, install, use; an assertion fails otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "build", "--outdir", place, ROOT)
        (wheel,), (source,) = place.glob("*.whl"), place.glob("*.tar.gz")
        look(wheel, source)
        venv.create(place / "environment", with_pip=True)
        python = place / "environment" / "bin" / "python"
        # dependencies from here, in a .pth that comes after the new environment's own packages
        own = next((place / "environment").glob("lib/python*/site-packages"))
        (own / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel)
        run(python, "-c", USE, version("pymc-kameleon"), cwd=place)
    print(f"{wheel.name} and {source.name}: built, complete, installed, used")


def look(wheel: Path, source: Path) -> None:
    """The wheel holds the package and its data, and nothing else; the source distribution holds all."""
    names = zipfile.ZipFile(wheel).namelist()
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "pymc_kameleon").rglob("*.py")}
    missing = (modules | {f"pymc_kameleon/{name}" for name in NEEDED}) - set(names)
    assert not missing, f"the wheel lacks {missing}"
    strange = [n for n in names if not n.startswith("pymc_kameleon")]
    assert not strange, f"the wheel has {strange}"
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    for name in ("tests/conftest.py", "benchmarks/README.md", "docs/conf.py", "CITATION.cff"):
        assert name in inside, f"the source distribution lacks {name}"


def run(*command, cwd: Path | None = None) -> None:
    """Run it; an error ends all."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
