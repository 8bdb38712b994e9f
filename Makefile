# Each target builds .venv by itself. PYTHON chooses the interpreter, e.g. make test PYTHON=python3.13
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# The matrices are small and the chains are what runs in parallel.
export OPENBLAS_NUM_THREADS = 1
export OMP_NUM_THREADS = 1

.PHONY: demo test test-whole test-slow test-lowest audit calibrate lint evidence bench-check notebooks docs linkcheck wheel clean

# Byte code is made of what is imported, and kept: making all of it takes as long as the rest of an installation.
export PYTHONDONTWRITEBYTECODE =
INSTALL = $(BIN)/python -m pip install --quiet --no-compile

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/pip
	$(INSTALL) -e .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	$(INSTALL) -e ".[dev]"
	touch $(VENV)/.run $@

$(VENV)/.docs: $(VENV)/.run
	$(INSTALL) -e ".[docs]"
	touch $@

$(VENV)/.bench: $(VENV)/.run
	$(INSTALL) -e ".[bench]"
	touch $@

demo: $(VENV)/.run  ## sample the lynx-hare posterior
	$(BIN)/python -m pymc_kameleon $(OPTIONS)

lint: $(VENV)/.dev  ## form, types, the docstrings' examples, and what pages, layers and mutations say of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -q --doctest-modules pymc_kameleon tests/text && wait $$types

test: lint  ## lint and the fast test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-whole: $(VENV)/.dev  ## whole runs, from the start to the verdict
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "whole and not slow"

test-slow: $(VENV)/.dev  ## the long statistical suites
	$(BIN)/python -m pytest -m slow tests tests/text

test-lowest:  ## all tests but the slow ones, with the lowest versions that pyproject.toml allows
	$(PYTHON) tests/lowest.py > lowest.txt
	$(MAKE) .venv-lowest/.dev PYTHON=$(PYTHON) VENV=.venv-lowest PIP_CONSTRAINT=$(CURDIR)/lowest.txt
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "not slow" -W ignore::DeprecationWarning  # of old against new ones

audit: $(VENV)/.dev  ## known vulnerabilities of what is installed; asks the index
	$(INSTALL) --upgrade pip pip-audit
	$(BIN)/python -m pip_audit --skip-editable

calibrate: $(VENV)/.dev  ## simulation-based calibration of every step on six models; goes on where it was interrupted
	$(BIN)/python -m benchmarks.calibration $(OPTIONS)

wheel: $(VENV)/.dev  ## dist/*.whl and *.tar.gz, looked at and installed into an environment of its own
	$(BIN)/python -m tests.wheel

notebooks: $(VENV)/.dev  ## executes all of them
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=1200 notebooks

docs: $(VENV)/.docs  ## docs/_build/html/index.html; stored outputs are shown, nothing is run; no network
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

linkcheck: $(VENV)/.docs  ## asks every address that the pages name
	$(BIN)/python -m sphinx -q -b linkcheck docs docs/_build/linkcheck

evidence: $(VENV)/.bench  ## the results that README and docs quote, of the present code, and their figures there; hours, goes on where it was interrupted
	$(BIN)/python -m benchmarks.provenance --make $(OPTIONS)
	$(BIN)/python -m benchmarks.quoted

bench-check: $(VENV)/.dev  ## tests of the benchmarks
	$(BIN)/python -m pytest -m "slow or not slow" tests/bench

clean:
	rm -rf $(VENV) .venv-lowest lowest.txt demo-output build dist docs/_build docs/notebooks docs/results .pytest_cache .ruff_cache .mypy_cache
