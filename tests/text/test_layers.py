"""Who may import whom: read from the folders, and from every import in the package."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pymc_kameleon
from tests import file_map

PACKAGE = Path(pymc_kameleon.__file__).parent
THIRD_PARTY = {"numpy", "scipy", "numba", "threadpoolctl"}  # of the wings that read arrays and return arrays

# A wing, and the wings that it may import. ``kernels`` is a public file on the ground floor. A new folder is refused
# until it has a row here.
PERMITTED = {
    "numerics": {"numerics", "kernels"},
    "kernels": {"numerics", "kernels"},
    "surrogates": {"surrogates", "numerics", "kernels"},
    "samplers": {"samplers", "surrogates", "numerics", "kernels"},
    "gp": {"gp", "numerics"},
    "particle_filter": {"particle_filter", "numerics"},
}
# Families of samplers meet in the files beside their folders, not in each other's.
FAMILIES = (
    "samplers.kameleon", "samplers.gaussian_mixture", "samplers.kamiltonian", "samplers.shape_learners",
)  # fmt: skip
# What works on PyMC models: the steps, and public files. The targets' densities and draws do not, but each may have a
# half that builds a model.
HOST_SIDE = {
    "__init__", "__main__", "steps", "pseudo_marginal", "gp_classification", "datasets", "diagnostics", "plots", "demo",
    "hierarchical_demo", "targets", "sampling", "verdict", "checkpoint",
}  # fmt: skip


def modules():
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))}


def wing(name):
    return name.split(".")[0]


def imports(path, inside_functions=True):
    """Names of the modules imported in ``path``."""
    found = []
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if inside_functions else tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path.name}, line {node.lineno}"
            if node.module.split(".")[0] == "pymc_kameleon":
                found += [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                found.append(node.module)
    return found


def family(name):
    return next((f for f in FAMILIES if name == f or name.startswith(f + ".")), None)


def trespasses(name, imported):
    """Those among ``imported`` that the module ``name`` must not import."""
    permitted, wrong = PERMITTED[wing(name)], []
    for module in imported:
        root, *rest = module.split(".")
        if root == "pymc_kameleon":
            inner = ".".join(rest)
            other = family(inner)
            if not rest or wing(inner) not in permitted or (other is not None and family(name) not in (None, other)):
                wrong.append(module)
        elif root not in THIRD_PARTY | sys.stdlib_module_names:
            wrong.append(module)
    return wrong


CORE = [name for name in modules() if wing(name) in PERMITTED]


def test_every_file_has_its_wing():
    unknown = {wing(name) for name in modules()} - set(PERMITTED) - HOST_SIDE
    assert not unknown, f"say in tests/text/test_layers.py what {sorted(unknown)} may import"


@pytest.mark.parametrize("name", CORE)
def test_a_wing_imports_only_what_it_may(name):
    assert trespasses(name, imports(modules()[name])) == []


TARGETS = [name for name in modules() if wing(name) == "targets"]


@pytest.mark.parametrize("name", TARGETS)
def test_targets_need_the_host_only_to_build_a_model(name):
    at_import = imports(modules()[name], inside_functions=False)
    ours = [m for m in at_import if m.startswith("pymc_kameleon.")]
    assert {wing(m.removeprefix("pymc_kameleon.")) for m in ours} <= {"targets", "datasets", "numerics"}
    roots = {m.split(".")[0] for m in at_import} - {"pymc_kameleon"}
    assert roots <= THIRD_PARTY | sys.stdlib_module_names


def test_the_rule_would_notice():
    # The same reading, applied to a module that is known to trespass, and to imports that are refused.
    assert "pymc" in trespasses("samplers.x", imports(modules()["steps.base"]))
    allowed = ["pymc_kameleon.samplers.seam.accept", "pymc_kameleon.numerics.history", "math"]
    upwards = ["pymc_kameleon.steps.log_density", "pymc_kameleon.pseudo_marginal", "pymc_kameleon"]
    assert trespasses("samplers.seam", allowed + upwards) == upwards
    assert trespasses("surrogates.x", allowed) == allowed[:1]
    aside = ["pymc_kameleon.samplers.kameleon.full"]
    assert trespasses("samplers.gaussian_mixture.fit", aside) == aside
    assert trespasses("samplers.kameleon.fast", aside) == trespasses("samplers.life", aside) == []


def test_there_is_no_circle():
    """Within a wing, too: each module can be imported after those that it needs."""
    names = modules()
    graph = {}
    for name, path in names.items():
        ours = [m.removeprefix("pymc_kameleon.") for m in imports(path, inside_functions=False)]
        graph[name] = {known for m in ours for known in (m, m.rpartition(".")[0]) if known in names} - {name}
    while ready := [name for name, needs in graph.items() if not needs & set(graph)]:
        for name in ready:
            del graph[name]
    assert not graph


def test_core_runs_without_the_host():
    """Not by reading but by running: PyMC is made unimportable, and every core module is imported."""
    names = [name.removesuffix(".__init__") for name in CORE]
    script = (
        "import sys, importlib\n"
        "for host in ('pymc', 'pytensor', 'arviz', 'xarray', 'matplotlib', 'pandas'): sys.modules[host] = None\n"
        f"sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        "import types; package = types.ModuleType('pymc_kameleon')\n"
        f"package.__path__ = [{str(PACKAGE)!r}]; sys.modules['pymc_kameleon'] = package\n"
        f"for name in {names!r}: importlib.import_module('pymc_kameleon.' + name)\n"
        "print('imported', len(sys.modules) > 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("imported")


def test_the_architecture_names_every_file():
    """A newcomer names the file of any line."""
    assert file_map.PAGE.read_text("utf-8") == file_map.page(), "python -m tests.file_map"
