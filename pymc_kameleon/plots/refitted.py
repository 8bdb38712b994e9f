"""A surrogate fitted anew to what a run returned: where the steps that sampled are gone, as after ``cores=2``.

The regression is ``KamiltonianStep``'s own (:mod:`pymc_kameleon.surrogates.values.regression`). What it is fitted to is
less: the draws and their log densities (the statistic ``lp``), with the tuning draws if they were kept, and not the
points that were evaluated and refused; after ``pk.sample`` all evaluations.
"""

import logging
from functools import partial
from typing import Any

import numpy as np
import pymc as pm

from pymc_kameleon.numerics import history
from pymc_kameleon.plots.learned import Learned, values_within
from pymc_kameleon.plots.names import Layout, unconstrained
from pymc_kameleon.plots.panels import ELSE, LEARNED, Cloud
from pymc_kameleon.steps.pooled_trace import group, record_of
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import regression

_log = logging.getLogger("pymc.kameleon")

MOST = 2000  # draws that it is fitted to, of each of tuning and after


def refitted(idata: Any, layout: Layout, model: pm.Model | None) -> Learned:
    """A surrogate fitted to the evaluations in ``idata``, or to its draws."""
    chain, values = _draws(idata, layout, model, "posterior", "sample_stats")
    evaluations = group(idata, "evaluations")
    if evaluations is not None:
        record = record_of(evaluations, layout)
        x, y = record.positions, record.log_densities
        cloud, source = Cloud("evaluated", x, ELSE, "x", y), f"{len(x)} evaluations"
    else:
        x, y, source = chain, values, ""
        if group(idata, "warmup_posterior") is not None:
            warmup = _draws(idata, layout, model, "warmup_posterior", "warmup_sample_stats")
            x, y = (np.concatenate(parts) for parts in zip(warmup, (chain, values), strict=True))
            source = ", tuning included"
        # Without the repetitions of a chain that stood still: the fit is judged by points that it has not seen.
        first = np.sort(np.unique(np.column_stack([x, y]), axis=0, return_index=True)[1])
        x, y, source = x[first], y[first], f"{len(first)} distinct draws{source}"
        cloud = Cloud("fitted to", x, LEARNED, ".", y)
    _log.info("Fitting a surrogate to %s, for the picture: some seconds, or a minute.", source)
    try:
        fit = regression.fit(np.random.default_rng(0), x, y, chain, values)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"No surrogate can be fitted to {source}: {error}; draw more.") from error
    dynamics = surrogate_dynamics.make_dynamics(fit.surrogate, fit.whiten_factor, chain, 1.0, fit.error)
    dynamics = surrogate_dynamics.bounded(dynamics, dynamics.archive, y)
    about = f"{fit.family}, fitted anew to {source}, held-out error {fit.error:.2g} nats"
    return Learned(about, partial(values_within, dynamics), history.thin(chain, 500), [cloud])


def _draws(
    idata: Any, layout: Layout, model: pm.Model | None, where: str, statistics: str
) -> tuple[np.ndarray, np.ndarray]:
    """Draws (n, d) and their log densities (n,)."""
    stats = group(idata, statistics)
    found = group(stats, "lp")
    # beside a step of this package, which then has a name of its own for it, ``lp`` is NUTS'
    if found is None or found.ndim != 2 or any(str(name).endswith("_lp") for name in stats):
        raise ValueError(
            f"There are no log densities to fit a surrogate to: {statistics} has no statistic lp of one step. "
            "Sample with one step for all variables, or give a step that has sampled in this process."
        )
    values = found.transpose("chain", "draw").values.ravel()
    return unconstrained(idata, layout, model, MOST, where), history.thin(values[:, None], MOST)[:, 0].astype(float)
