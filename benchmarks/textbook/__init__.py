"""Models that users would write, and how the steps do on them from where ``pm.sample`` starts.

``MODELS`` maps names to functions without arguments that return a ``pymc.Model``: as textbooks and scientists write
them, in raw units where people leave them, none of them tuned to a sampler. ``python -m benchmarks.textbook --help``.
"""

from collections.abc import Callable

import pymc as pm

from benchmarks.textbook import mechanisms, mixtures, regressions, series

MODELS: dict[str, Callable[[], pm.Model]] = {
    "linear": regressions.linear,
    "trend": regressions.trend,
    "interaction": regressions.interaction,
    "log-log": regressions.log_log,
    "correlated": regressions.correlated,
    "survey": regressions.survey,
    "many": regressions.many,
    "longley": regressions.longley,
    "ar5": series.autoregression,
    "hmm": series.hidden_markov,
    "mixture": mixtures.mixture,
    "gp-poisson": mixtures.gaussian_process,
    "lynx-hare": mechanisms.lynx_hare,
}
