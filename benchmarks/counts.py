"""Hierarchies of counts and outcomes by ``pk.sample``, with and without monomials beside scales in the library.

python -m benchmarks.counts
"""

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import provenance, report
from pymc_kameleon.surrogates.values.library import LIBRARY
from pymc_kameleon.verdict import convergence

SEEDS, EVALUATIONS, GROUPS = (1, 2, 3), 3000, 8
WITHOUT = tuple(family for family in LIBRARY if not (family.scales and family.monomials))
RNG = np.random.default_rng(20261127)
MEANS, X = RNG.normal(0.3, 0.7, (GROUPS, 1)), RNG.standard_normal((GROUPS, 10))
COUNTS = RNG.poisson(np.exp(MEANS), (GROUPS, 6))
YES = RNG.binomial(12, 1.0 / (1.0 + np.exp(-MEANS)))
RIGHT = RNG.random(X.shape) < 1.0 / (1.0 + np.exp(-MEANS - X))
OUTCOMES = {
    "Poisson": lambda a: pm.Poisson("y", pm.math.exp(a), observed=COUNTS),
    "negative binomial": lambda a: pm.NegativeBinomial(
        "y", mu=pm.math.exp(a), alpha=pm.Exponential("alpha", 0.5), observed=COUNTS
    ),
    "binomial": lambda a: pm.Binomial("y", 12, logit_p=a, observed=YES),
    "logistic": lambda a: pm.Bernoulli("y", logit_p=a + pm.Normal("b") * X, observed=RIGHT),
}


def measure(outcome, library, seed):
    """Effective draws per 1000 evaluations, and R-hat."""
    with pm.Model():
        OUTCOMES[outcome](pm.Normal("a", pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau", 1.0), shape=(GROUPS, 1)))
        step = pk.KamiltonianStep(surrogate=pk.Values(library=library))
        found = pk.sample(max_evaluations=EVALUATIONS, step=step, random_seed=seed, progressbar=False)
    judged = convergence.judge(np.stack(list(convergence.elements(found["posterior"]).values()), axis=2))
    return f"{1000.0 * judged.ess / EVALUATIONS:.0f} ({judged.rhat:.3f})"


def page(options):
    """The table."""
    rows = [[o, *(measure(o, library, s) for library in (WITHOUT, LIBRARY) for s in SEEDS)] for o in OUTCOMES]
    table = report.table(["outcomes", *(f"{w}, seed {s}" for w in ("without", "with") for s in SEEDS)], rows)
    return report.page("counts", globals() | locals())


if __name__ == "__main__":
    provenance.command("counts", __doc__, page)
