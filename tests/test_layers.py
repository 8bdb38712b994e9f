"""The core reads arrays and returns arrays: only the modules named here may touch PyMC's world."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pymc_kameleon

PACKAGE = Path(pymc_kameleon.__file__).parent
# Everything that may import more than the core does. A new module is core unless it is put here on purpose.
HOST_SIDE = {
    "__init__", "__main__", "steps", "log_density", "pseudo_marginal", "pytensor_internals", "sampler_warnings",
    "gp_classification", "datasets", "glass", "diagnostics", "plots", "demo", "prior_scale",
}  # fmt: skip
NUMERICS = {"numpy", "scipy", "numba"}


def modules():
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def is_core(name):
    # targets: their densities and samplers are core; each may have a half that builds a PyMC model
    return name.split(".")[0] not in HOST_SIDE | {"targets"}


def imports(path, inside_functions=True):
    """Names of the modules imported in ``path``."""
    found = []
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if inside_functions else tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path.name}, line {node.lineno}"
            if node.module == "pymc_kameleon":
                found += [f"pymc_kameleon.{alias.name}" for alias in node.names]
            else:
                found.append(node.module)
    return found


def trespasses(name, imported):
    """Those among ``imported`` that a core module must not import."""
    wrong = []
    for module in imported:
        root, *rest = module.split(".")
        if root == "pymc_kameleon":
            if not rest or not is_core(rest[0]):
                wrong.append(module)
        elif root not in NUMERICS | sys.stdlib_module_names:
            wrong.append(module)
    return wrong


CORE = [name for name in modules() if is_core(name)]


@pytest.mark.parametrize("name", CORE)
def test_core_module_imports_only_numerics(name):
    assert trespasses(name, imports(modules()[name])) == []


TARGETS = [name for name in modules() if name.split(".")[0] == "targets"]


@pytest.mark.parametrize("name", TARGETS)
def test_targets_need_the_host_only_to_build_a_model(name):
    at_import = imports(modules()[name], inside_functions=False)
    wrong = [m for m in trespasses(name, at_import) if not m.startswith("pymc_kameleon.targets")]
    assert [m for m in wrong if not m.startswith("pymc_kameleon.datasets")] == []


def test_the_rule_would_notice():
    # The same reading, applied to a module that is known to trespass.
    assert "pymc" in trespasses("steps", imports(modules()["steps"]))
    assert trespasses("x", ["pymc_kameleon.log_density", "numpy.linalg", "math"]) == [
        "pymc_kameleon.log_density"
    ]


def test_the_seam_is_core_and_the_steps_are_not():
    named = {name.split(".")[0] for name in modules()}
    assert {"metropolis", "kernels", "covariance", "adaptive_metropolis", "kameleon"} <= set(CORE)
    assert {"steps", "log_density", "pseudo_marginal"} <= named & HOST_SIDE


def test_core_runs_without_the_host():
    """Not by reading but by running: PyMC is made unimportable, and every core module is imported."""
    script = (
        "import sys, importlib\n"
        "for host in ('pymc', 'pytensor', 'arviz', 'xarray', 'matplotlib', 'pandas'): sys.modules[host] = None\n"
        f"sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        "import types; package = types.ModuleType('pymc_kameleon')\n"
        f"package.__path__ = [{str(PACKAGE)!r}]; sys.modules['pymc_kameleon'] = package\n"
        f"for name in {CORE!r}: importlib.import_module('pymc_kameleon.' + name)\n"
        "print('imported', len(sys.modules) > 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("imported")
