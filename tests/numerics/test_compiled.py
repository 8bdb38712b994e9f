"""No machine code of sources that are no more: Numba's cache sees an edit of any file that compiles."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import CodeType, ModuleType

from numba.core.dispatcher import Dispatcher

import pymc_kameleon
from pymc_kameleon.numerics import compiled

PACKAGE = Path(pymc_kameleon.__file__).parent
CALLEE = """
from package.compiled import njit
@njit(cache=True)
def factor(x):
    return {} * x
"""
CALLER = """
from {} import njit
from package.callee import factor
@njit(cache=True)
def total(x):
    return factor(x) + 1.0
"""
RUN = """
import os
from pathlib import Path
import numba  # once, it takes seconds; what is to be compiled is imported in a process of its own
for number in (2.0, 3.0, 3.0):
    Path("package/callee.py").write_text(CALLEE.format(number))
    if os.fork() == 0:
        from package import ours, numbas, compiled
        cold = compiled.is_cold()
        print(ours.total(1.0), numbas.total(1.0), float(cold), float(compiled.is_cold()), flush=True)
        os._exit(0)
    os.wait()
"""


def test_an_edited_callee_is_compiled_into_its_caller(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    shutil.copy(compiled.__file__, package)
    (package / "ours.py").write_text(CALLER.format("package.compiled"))
    (package / "numbas.py").write_text(CALLER.format("numba"))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", f"CALLEE = {CALLEE!r}\n{RUN}"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    found = [map(float, line.split()) for line in result.stdout.splitlines()]
    ours, numbas, cold, afterwards = zip(*found, strict=True)
    assert ours == (3.0, 4.0, 4.0), result.stderr
    assert numbas == (3.0, 3.0, 3.0)  # were that mended, the module could go
    assert cold == (1.0, 1.0, 0.0)  # so that a first run, and that after an edit, can say why it takes long
    assert afterwards == (0.0, 0.0, 0.0)
    assert len(list((tmp_path / "cache").rglob("*total-*.nbc"))) == 2  # overwritten, not heaped up


def compiled_functions():
    """Every compiled function of the package, with its module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "njit" in path.read_text() and path.stem != "compiled":
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            module = importlib.import_module(name)
            for value in vars(module).values():
                if isinstance(value, Dispatcher) and value.py_func.__module__ == name:
                    yield value, module


def names(code):
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)


def assigned(source):
    """What a module's own lines give a value to."""
    targets = [t for node in ast.parse(source).body if isinstance(node, ast.Assign) for t in node.targets]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def test_every_compiled_function_is_of_these_sources_and_leaves_no_rounding_to_the_compiler():
    """With ``fastmath`` a process that loads another one's machine code may draw another chain."""
    found = [function for function, _ in compiled_functions()]
    assert len(found) > 100
    assert [f for f in found if f._cache._cache_file._source_stamp[1] != compiled.SOURCES] == []
    assert [f for f in found if f.targetoptions.get("fastmath")] == []


def test_what_it_refers_to_is_in_a_file_that_compiles():
    for dispatcher, module in compiled_functions():
        imported = {
            alias.asname or alias.name: (
                getattr(module, alias.asname or alias.name),
                importlib.import_module(node.module),
            )
            for node in ast.parse(Path(module.__file__).read_text()).body
            if isinstance(node, ast.ImportFrom) and node.module.startswith("pymc_kameleon")
            for alias in node.names
        }
        for name in imported.keys() & set(names(dispatcher.py_func.__code__)):
            value, origin = imported[name]
            source = Path((value if isinstance(value, ModuleType) else origin).__file__).read_text()
            # a number may come from a file that compiles, or says so, but not through one
            defined = isinstance(value, ModuleType | Dispatcher) or name in assigned(source)
            assert "njit" in source, f"{dispatcher}: {name} is defined elsewhere"
            assert defined, f"{dispatcher}: {name} comes through another file"
