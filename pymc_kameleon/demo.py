"""The demonstration: lynxes and hares, 1900 to 1920, behind a solver that nobody can differentiate."""

import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from rich.console import Console
from rich.table import Table

from pymc_kameleon import steps
from pymc_kameleon.datasets import LynxHare, load_lynx_hare
from pymc_kameleon.diagnostics import efficiency
from pymc_kameleon.hierarchical_demo import BlackBox, Solver, patients_model
from pymc_kameleon.numerics.compiled import is_cold
from pymc_kameleon.steps.pooled_trace import plain
from pymc_kameleon.targets import solve_lotka_volterra

STEPS = {
    "adaptive-metropolis": steps.AdaptiveMetropolisStep,
    "kameleon": steps.KameleonStep,
    "fast-kameleon": steps.FastKameleonStep,
    "kamiltonian": steps.KamiltonianStep,
    "gaussian-mixture": steps.GaussianMixtureStep,
    "gaussian-adaptation": steps.GaussianAdaptationStep,
    "cma": steps.CMAStep,
}
DEFAULT = "kamiltonian"
HIERARCHY = {"draws": 300, "tune": 300}  # a chain: enough for the second model
PARAMETERS = ("alpha", "beta", "gamma", "delta", "initial", "sigma")


class PredatorPrey(BlackBox):
    """Log populations of hares and lynxes in 21 years, given (alpha, beta, gamma, delta, hare0, lynx0)."""

    def __init__(self):
        super().__init__(lambda parameters: np.log(solve_lotka_volterra(*parameters)))


def lynx_hare_model(solver: PredatorPrey | None = None) -> pm.Model:
    """The lynx-hare posterior with the solver as a black-box Op (model and priors: Carpenter, 2018).

    alpha, gamma ~ N+(1, 0.5), beta, delta ~ N+(0.05, 0.05), initial populations ~ LogNormal(log 10, 1), sigma ~
    LogNormal(-1, 1), both species lognormal about the solution.

    Chains start where a look at the data puts them: the first year's pelts, and rates of the size of one cycle in ten
    years. From the prior's centre about a third of the chains of any sampler, NUTS included, first fit a flat line with
    large sigma, a mode that is 40 lower in log density, and stay there.
    """
    data = load_lynx_hare()
    solver = PredatorPrey() if solver is None else solver
    with pm.Model(coords={"species": ["hare", "lynx"], "year": data.year}) as model:
        first = np.array([data.hare[0], data.lynx[0]])
        alpha = pm.TruncatedNormal("alpha", 1.0, 0.5, lower=0.0, initval=0.5)
        beta = pm.TruncatedNormal("beta", 0.05, 0.05, lower=0.0, initval=0.025)
        gamma = pm.TruncatedNormal("gamma", 1.0, 0.5, lower=0.0, initval=0.8)
        delta = pm.TruncatedNormal("delta", 0.05, 0.05, lower=0.0, initval=0.025)
        initial = pm.LogNormal("initial", np.log(10.0), 1.0, dims="species", initval=first)
        sigma = pm.LogNormal("sigma", -1.0, 1.0, dims="species", initval=np.full(2, 0.25))
        logs = solver(pt.stack([alpha, beta, gamma, delta, initial[0], initial[1]]))
        pm.LogNormal(
            "pelts", logs, sigma, observed=np.column_stack([data.hare, data.lynx]), dims=("year", "species")
        )  # fmt: skip
    return model


class Run(NamedTuple):
    """One sampler's run: name, InferenceData or DataTree, log density evaluations, seconds of processor time."""

    name: str
    idata: Any
    evaluations: int
    seconds: float


def run(step_class, *, draws: int, tune: int, chains: int, seed: int, patients: bool = False) -> Run:
    """Sample with one step method, counting the solver's calls: the patients' model, or lynx-hare."""
    logging.getLogger("pymc").setLevel(logging.WARNING)
    name = f"pm.{step_class.__name__}" if step_class is pm.DEMetropolisZ else step_class.__name__
    solver = Solver() if patients else PredatorPrey()
    with patients_model(solver) if patients else lynx_hare_model(solver):
        # a solver of 50 microseconds: what its evaluations cost is less than what a surrogate does to save them
        whole = step_class is steps.KamiltonianStep and not patients
        step = step_class(**({"learn": "all"} if whole else {}))
        solver.calls, start = 0, time.process_time()
        idata = pm.sample(
            draws, tune=tune, chains=chains, cores=1, step=step, random_seed=seed, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        return Run(name, idata, solver.calls, time.process_time() - start)


@contextmanager
def processes(cores: int) -> Iterator[Callable]:
    """What maps a function over its arguments on ``cores`` processes, which import once for both models.

    The draws do not depend on ``cores``. ``pm.sample(cores=2)`` sends every draw between processes, which costs more
    than a draw here; so a process has all chains of a step, and counts its own calls.
    """
    if cores == 1:
        yield map
    else:  # Not fork: by now there are threads.
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            yield pool.map


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compare(runs: list[Run], title: str = "Lynx-hare posterior") -> Table:
    """Effective draws per evaluation, for the terminal."""
    table = Table(title=f"{title}: effective draws for the solver's work", title_justify="left")
    table.add_column("step", no_wrap=True)
    for heading in ("ODE solves", "min bulk ESS", "per 1000 solves", "max R-hat", "CPU seconds"):
        table.add_column(heading, justify="right")
    for r in runs:
        scores = efficiency(r.idata, r.evaluations)
        rhat = max(float(np.max(v)) for v in az.rhat(r.idata).data_vars.values())
        table.add_row(
            r.name, f"{r.evaluations:,}", f"{scores.minimum * r.evaluations / 1000:,.0f}", f"{scores.minimum:.1f}",
            f"{rhat:.3f}", f"{r.seconds:.0f}",
        )  # fmt: skip
    return table


def plot_trace(idata, path: Path) -> None:
    """ArviZ's trace plot, by whichever name the installed version has."""
    getattr(az, "plot_trace_dist", az.plot_trace)(idata, var_names=list(PARAMETERS))
    figure = plt.gcf()
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)


def plot_populations(idata, data: LynxHare, rng: np.random.Generator, path: Path) -> None:
    """Observed pelts over the posterior predictive distribution: its median and central 50 and 90 %."""
    flat = plain(idata["posterior"]).stack(sample=("chain", "draw"))
    chosen = rng.choice(flat.sizes["sample"], min(2000, flat.sizes["sample"]), replace=False)
    rates = np.array([flat[name].values[chosen] for name in PARAMETERS[:4]])
    initial, sigma = flat["initial"].values[:, chosen], flat["sigma"].values[:, chosen]
    curves = np.array([solve_lotka_volterra(*r, *i) for r, i in zip(rates.T, initial.T, strict=True)])
    predictive = curves * np.exp(sigma.T[:, None, :] * rng.standard_normal(curves.shape))
    figure, axes = plt.subplots(2, 1, figsize=(8, 6), sharex=True, constrained_layout=True)
    for s, (axis, name, observed, colour) in enumerate(
        zip(axes, ("hare", "lynx"), (data.hare, data.lynx), ("tab:brown", "tab:blue"), strict=True)
    ):
        low, lower, median, upper, high = np.nanquantile(predictive[:, :, s], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        axis.fill_between(data.year, low, high, color=colour, alpha=0.15, lw=0, label="90 % predictive")
        axis.fill_between(data.year, lower, upper, color=colour, alpha=0.3, lw=0, label="50 %")
        axis.plot(data.year, median, color=colour, lw=1.5, label="median")
        axis.plot(data.year, observed, "o", color="black", ms=4, label="observed")
        axis.set_ylabel(f"{name} pelts (thousands)")
        axis.set_ylim(0, 1.15 * max(np.max(observed), np.max(high)))
    axes[0].legend(ncols=4, frameon=False, loc="upper right")
    axes[0].set_title("Predator and prey, 1900-1920: what the posterior predicts", loc="left")
    axes[-1].set_xticks(data.year[::4])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(
    step: str, *, draws: int, tune: int, chains: int, cores: int, seed: int, out: Path, patients: bool = True
) -> None:  # fmt: skip
    """Sample with ``step``, FastKameleonStep and PyMC's DEMetropolisZ; print and write what came out.

    Then the second model: patients behind one solver, with few evaluations. It is sampled where a process is free.
    """
    console, start = Console(), time.perf_counter()
    chosen = STEPS[step]
    classes = list(dict.fromkeys([chosen, steps.FastKameleonStep, pm.DEMetropolisZ]))
    console.print(
        "[bold]Lynxes and hares, 1900-1920[/bold]: eight unknowns, one black-box ODE solver, no gradient.\n"
        f"{', '.join(c.__name__ for c in classes)}: {chains} chains each, {tune:,} tuning draws and {draws:,} draws."
    )
    common: dict[str, Any] = {"chains": chains, "seed": seed}
    beside = [steps.KamiltonianStep, pm.DEMetropolisZ] if patients else []
    with processes(min(cores, len(classes))) as mapped:
        first = mapped(partial(run, draws=draws, tune=tune, **common), classes)
        second = mapped(partial(run, patients=True, **HIERARCHY, **common), beside)
        with console.status("Compiling, this first time, and sampling" if is_cold() else "Sampling"):
            runs = list(first)
        console.print(f"\n[bold]az.summary, {chosen.__name__}[/bold]")
        print(az.summary(runs[0].idata, var_names=list(PARAMETERS)).to_string())
        console.print()
        console.print(compare(runs))
        out.mkdir(parents=True, exist_ok=True)
        plot_trace(runs[0].idata, out / "trace.png")
        plot_populations(runs[0].idata, load_lynx_hare(), np.random.default_rng(seed), out / "populations.png")
        runs[0].idata.to_netcdf(str(out / "lynx_hare.nc"))
        console.print(f"\nWritten to {out}: trace.png, populations.png, lynx_hare.nc")
        if patients:
            console.print(
                "\n[bold]Six patients[/bold]: a hierarchy of 18 unknowns over one black-box ODE solver for all, which "
                f"KamiltonianStep takes apart. {chains} chains, {HIERARCHY['tune']} tuning draws and as many draws."
            )
            with console.status("Sampling"):
                runs = list(second)
            print(az.summary(runs[0].idata, var_names=["mean", "spread", "half", "sigma"]).to_string())
            console.print()
            console.print(compare(runs, "Patients' posterior"))
    used = min(cores, len(classes))
    console.print(f"\n{time.perf_counter() - start:.0f} seconds on {used} core{'s' * (used > 1)}.")
