"""Log densities that are noisy: an unbiased likelihood estimator inside a model, and what follows from having one.

A Metropolis-Hastings step whose likelihood is an unbiased *estimate* is exact if the estimate at the current state is
kept until a proposal is accepted (Beaumont, 2003; Andrieu & Roberts, 2009). The contract here: all randomness of a log
density comes from generators that PyTensor can see, as it does with :class:`NoisyLogLikelihood`, with ``pt.random.*``
in a Potential, and with ``pm.Simulator``. A step then gives itself streams of its own, reseeded for every chain.

References
----------
M. A. Beaumont (2003). Estimation of population growth or decline in genetically monitored populations. Genetics 164.
C. Andrieu, G. O. Roberts (2009). The pseudo-marginal approach for efficient Monte Carlo computations. Ann. Statist. 37.
G. Deligiannidis, A. Doucet, M. K. Pitt (2018). The correlated pseudo-marginal method. J. R. Statist. Soc. B 80.
M.-N. Tran, R. Kohn, M. Quiroz, M. Villani (2016). The block pseudo-marginal sampler. arXiv:1603.02485.
"""

from typing import Any

import pymc as pm
from pymc.model.core import modelcontext
from pymc.util import get_value_vars_from_user_vars
from pytensor import tensor as pt
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.noise.noisy_factors import factors_of, names
from pymc_kameleon.steps.noise.noisy_likelihood import NoisyLogLikelihood
from pymc_kameleon.steps.pytensor_internals import model_with

__all__ = ["NoisyLogLikelihood", "step_beside_noise"]


def step_beside_noise(step: Any, vars: Any, *, model: pm.Model | None = None, **options: Any) -> Any:
    """Build a step, of PyMC's or of this package's, for variables that no noisy factor of the model depends on.

    A step of PyMC evaluates the whole log density, noisy factors too, anew at every draw. They do not depend on its
    variables, but their noise does not cancel either: ``pm.NUTS`` or ``pm.Metropolis`` beside a noisy likelihood
    sample a posterior that is too wide, and pay for estimates. The step built here leaves those factors out, which
    changes nothing but a constant.

    Parameters
    ----------
    step : type
        E.g. ``pm.NUTS``, ``pm.Metropolis``, ``pm.BinaryGibbsMetropolis``, ``AdaptiveMetropolisStep``.
    vars : list of variables
    model : pymc.Model, optional
        Default: the model on the context stack.
    options
        The step's.

    Raises
    ------
    ValueError
        Naming the factor, if a noisy one depends on one of ``vars``.

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> from pymc_kameleon.pseudo_marginal import step_beside_noise
    >>> def log_estimate(rng, x):
    ...     return -0.5 * x**2 + 0.5 * rng.standard_normal() - 0.125
    >>> with pm.Model() as model:
    ...     x, k = pm.Flat("x"), pm.Poisson("k", 2.0)
    ...     likelihood = pm.Potential("likelihood", pk.NoisyLogLikelihood(log_estimate)(x))
    ...     steps = [pk.KameleonStep([x]), step_beside_noise(pm.Metropolis, [k])]
    """
    model = modelcontext(model)
    vars = get_value_vars_from_user_vars(vars, model)
    noisy = [(factor, term) for factor, term, is_noisy in factors_of(model) if is_noisy]
    for factor, term in noisy:
        touched = set(vars).intersection(ancestors([term]))
        if touched:
            raise ValueError(
                f"The log density of {factor.name!r} is a noisy estimate that depends on {names(touched)}: a step of "
                "pymc_kameleon has to own them, together with all others it depends on."
            )
    left_out = {factor.name: pt.constant(0.0) for factor, _ in noisy}
    return step(vars, model=model_with(model, left_out, {}), **options)
