"""The README's picture: a predator-prey fit, and traces of two samplers at equal numbers of solves.

``python docs/figures/lynx_hare.py`` writes lynx_hare.png beside itself, and prints the two numbers in its titles; about
a minute. KamiltonianStep solves the equations once a draw, ``pm.DEMetropolisZ`` twice, so that it gets half the draws.
"""

from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_kameleon as pk
from pymc_kameleon import demo
from pymc_kameleon.datasets import load_lynx_hare
from pymc_kameleon.diagnostics import efficiency
from pymc_kameleon.targets import solve_lotka_volterra

SHOWN = 1500  # solves of each chain in the traces
TUNE, DRAWS, CHAINS, SEED = 4000, 8000, 4, 1900
PARAMETER, LABEL = "gamma", r"$\gamma$, lynxes' death rate"
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # Okabe & Ito


def main() -> None:
    """Sample twice, draw once."""
    data = load_lynx_hare()
    ours = demo.run(pk.KamiltonianStep, draws=DRAWS, tune=TUNE, chains=CHAINS, seed=SEED)
    theirs = demo.run(pm.DEMetropolisZ, draws=DRAWS // 2, tune=TUNE // 2, chains=CHAINS, seed=SEED)
    figure = plt.figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.25))
    draw_fit(left, ours.idata, data)
    top, bottom = right.subplots(2, 1, sharex=True, sharey=True)
    draw_trace(top, ours, each=1)
    draw_trace(bottom, theirs, each=2)
    bottom.set_xlabel(f"solves of the equations by each of four chains, after {TUNE} while tuning")
    right.supylabel(LABEL, fontsize="medium")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)


def draw_fit(figure, idata, data) -> None:
    """Observed pelts over the central 90 % of the posterior predictive distribution."""
    rng = np.random.default_rng(SEED)
    flat = az.extract(idata)
    chosen = rng.choice(flat.sizes["sample"], 1000, replace=False)
    rates = np.array([flat[name].values[chosen] for name in demo.PARAMETERS[:4]]).T
    initial, sigma = flat["initial"].values[:, chosen].T, flat["sigma"].values[:, chosen].T
    curves = np.array([solve_lotka_volterra(*r, *i) for r, i in zip(rates, initial, strict=True)])
    predicted = curves * np.exp(sigma[:, None, :] * rng.standard_normal(curves.shape))
    axes = figure.subplots(2, 1, sharex=True)
    species = (("hares", data.hare, "#D55E00"), ("lynxes", data.lynx, "#0072B2"))
    for k, (axis, (name, observed, colour)) in enumerate(zip(axes, species, strict=True)):
        low, median, high = np.quantile(predicted[:, :, k], [0.05, 0.5, 0.95], axis=0)
        axis.fill_between(data.year, low, high, color=colour, alpha=0.25, lw=0, label="90 % predicted")
        axis.plot(data.year, median, color=colour, lw=1.5, label="median")
        axis.plot(data.year, observed, "o", color="black", ms=3.5, label="observed")
        axis.set_ylabel(f"{name} (1000 pelts)")
        axis.set_ylim(bottom=0)
    axes[0].set_title("21 years of pelts, a black-box ODE, 8 unknowns", fontsize="medium", loc="left")
    axes[1].legend(frameon=False, ncols=3, fontsize="small", loc="upper center")
    axes[1].set_ylim(top=1.25 * axes[1].get_ylim()[1])
    axes[1].set_xticks(data.year[::5])


def draw_trace(axis, run, each: int) -> None:
    """Chains over what their draws cost; ``each`` solves a draw."""
    score = efficiency(run.idata, run.evaluations).minimum
    print(f"{run.name}: {run.evaluations} solves, {score:.1f} effective draws per 1000")
    for chain, colour in enumerate(COLOURS):
        values = run.idata["posterior"][PARAMETER].values[chain]
        axis.plot(each * np.arange(len(values)), values, lw=0.8, color=colour)
    axis.set_title(f"{run.name}: {score:.3g} effective draws per 1000 solves", fontsize="medium", loc="left")
    axis.set_xlim(0, SHOWN)


if __name__ == "__main__":
    main()
