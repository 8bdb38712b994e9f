"""Models that users would write, and how the steps do on them from where ``pm.sample`` starts.

``MODELS`` maps names to functions without arguments that return a ``pymc.Model``: as textbooks and scientists write
them, in raw units where people leave them, none of them tuned to a sampler. ``python -m benchmarks.textbook --help``.
"""

from collections.abc import Callable

import pymc as pm

from benchmarks.textbook import counts, mechanisms, mixtures, regressions, series

MODELS: dict[str, Callable[[], pm.Model]] = {
    "linear": regressions.linear, "dollars": regressions.dollars, "trend": regressions.trend,
    "interaction": regressions.interaction, "log-log": regressions.log_log, "correlated": regressions.correlated,
    "survey": regressions.survey, "gravity": regressions.gravity, "robust": regressions.robust,
    "many": regressions.many, "longley": regressions.longley,
    "poisson": counts.poisson_offset, "negative-binomial": counts.negative_binomial, "ordinal": counts.ordinal,
    "beta-binomial": counts.beta_binomial, "weibull": counts.weibull,
    "ar5": series.autoregression, "hmm": series.hidden_markov, "changepoint": series.changepoint,
    "garch": series.garch, "local-level": series.local_level,
    "mixture": mixtures.mixture, "unordered": mixtures.unordered, "simplex": mixtures.simplex,
    "gp-poisson": mixtures.gaussian_process,
    "lynx-hare": mechanisms.lynx_hare, "growth": mechanisms.logistic_growth, "sir": mechanisms.epidemic,
    "michaelis": mechanisms.michaelis_menten, "decay": mechanisms.decay, "dose": mechanisms.dose_response,
    "psychometric": mechanisms.psychometric,
}  # fmt: skip
