"""UCI Glass: the lengthscales of a Gaussian-process classifier, from a noisy likelihood.

The posterior that Kernel adaptive Metropolis-Hastings was shown on; its likelihood is an unbiased estimate (importance
sampling around Laplace's approximation), kept until a proposal is accepted. A long run of KamiltonianStep; the steps
at one budget of evaluations, beside it; five folds held out, beside logistic regression (scikit-learn's).

    python -m benchmarks.glass           # nine minutes of processor time, on two cores
"""

import resource
from collections import namedtuple
from typing import NamedTuple

import numpy as np

from benchmarks import basics, drive, provenance, report
from benchmarks.report import table

CHAINS = 4
PRIOR_MEAN, PRIOR_SD = -np.log(2.0), np.sqrt(20.0)
PAIR = (1, 6)  # dimensions 2 and 7 of the papers, which count from one
STEPS = (
    "KamiltonianStep", "GaussianMixtureStep", "KameleonStep", "FastKameleonStep", "AdaptiveMetropolisStep",
    "pm.DEMetropolisZ",
)  # fmt: skip


class Run(NamedTuple):
    """Draws after tuning, (chains, n, 9); evaluations of each chain, all counted; processor seconds in all."""

    draws: np.ndarray
    evaluations: np.ndarray
    seconds: float


def sample(model, step: str, tune: int, draws: int, seed: int, chains: int = CHAINS) -> Run:
    """``pm.sample`` on two cores, every chain from its own draw from the prior."""
    evaluates_twice = step.startswith("pm.")  # at the proposed point and at the current one again
    if evaluates_twice:
        tune, draws = tune // 2, draws // 2
    dim = model.initial_point()["theta"].size
    starts = np.random.default_rng(seed).normal(PRIOR_MEAN, PRIOR_SD, (chains, dim))
    begin = processor_time()
    with model:
        made = drive.step_class(step)()
        trace = drive.sample(
            draws, tune=tune, chains=chains, cores=2, step=made, random_seed=seed,
            initvals=[{"theta": x} for x in starts],
        )  # fmt: skip
    seconds = processor_time() - begin
    counted = np.full(chains, (1 + evaluates_twice) * (tune + draws) + (not evaluates_twice))
    if "evaluations" in trace["sample_stats"]:
        counted = np.asarray(trace["sample_stats"]["evaluations"])[:, -1]
    return Run(np.asarray(trace["posterior"]["theta"]), counted, seconds)


def processor_time():
    """Seconds, the workers' included that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(w)[:2]) for w in who)


# by coordinate, shape (9,) each; errors are Monte Carlo standard errors
Summary = namedtuple("Summary", "mean mean_error sd sd_error ess rhat")


def summary(draws: np.ndarray) -> Summary:
    """Of draws of shape (chains, n, d)."""
    import arviz as az

    centred = draws - draws.mean((0, 1))
    data = az.convert_to_dataset({"theta": draws, "square": np.square(centred)})
    found = az.mcse(data, method="mean")
    sd = np.sqrt(np.square(centred).mean((0, 1)))
    # ArviZ 0.23's own method="sd" fails under NumPy 2.4; this is the delta method
    mean_error, sd_error = found["theta"].values, found["square"].values / (2.0 * sd)
    rhat = az.rhat(data)["theta"].values
    return Summary(draws.mean((0, 1)), mean_error, sd, sd_error, basics.bulk_ess(draws), rhat)


def posterior_table(names, s):
    head = ["dimension", "covariate", "mean", "MCSE", "sd", "MCSE", "bulk ESS", "R-hat"]
    rows = [
        [f"{k + 1}", names[k], f"{s.mean[k]:.3f}", f"{s.mean_error[k]:.3f}", f"{s.sd[k]:.3f}",
         f"{s.sd_error[k]:.3f}", f"{s.ess[k]:,.0f}", f"{s.rhat[k]:.4f}"]
        for k in range(len(names))
    ]  # fmt: skip
    return table(head, rows, left=2)


def efficiency(run):
    """(smallest, median) bulk ESS per 1000 evaluations."""
    ess = 1000.0 * basics.bulk_ess(run.draws) / run.evaluations.sum()
    return ess.min(), np.median(ess)


def with_error(values, fmt=".3f"):
    """Mean of independent values, and its standard error."""
    mean, error = basics.estimate(values)
    return f"{mean:{fmt}} ± {error:{fmt.removeprefix('+')}}"


def share_between_chains(event):
    """Per cent of the draws, and its standard error from the spread of the chains' shares."""
    return with_error(100.0 * event.mean(axis=1), ".2f")


def steps_table(runs, reference):
    head = [
        "step", "evaluations per chain", "ESS per 1000, worst coordinate", "median", "R-hat",
        "largest abs z of 9 means", "chi2 of the means (9)", "2 and 7 both long, %", "ms per evaluation",
    ]  # fmt: skip
    rows = []
    for name, run in runs.items():
        s, (worst, median) = summary(run.draws), efficiency(run)
        z = (s.mean - reference.mean) / np.hypot(s.mean_error, reference.mean_error)
        rows.append(
            [name, f"{run.evaluations.mean():,.0f}", f"{worst:.1f}", f"{median:.1f}", f"{s.rhat.max():.3f}",
             f"{np.abs(z).max():.1f}", f"{np.square(z).sum():.1f}",
             share_between_chains(long_lengthscales(run.draws)[2]), f"{1e3 * run.seconds / run.evaluations.sum():.2f}"]
        )  # fmt: skip
    return table(head, rows)


# --- held out ------------------------------------------------------------------------------------


# for every row the probability of window glass from a fit that has not seen it, by each classifier; the rest by fold
HeldOut = namedtuple("HeldOut", "probability mcse logistic frequency rhat seconds")


def held_out(data, tune, draws, seed):
    """Five stratified folds; everything, whitening and standardising too, fitted to the training rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from pymc_kameleon.gp_classification import gp_classification_model, predict

    columns, rhat, seconds = np.empty((4, len(data.y))), [], []
    folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(data.X, data.y)
    for k, (train, test) in enumerate(folds):
        X, y = data.X[train], data.y[train]
        model = gp_classification_model(X, y, feature_names=data.feature_names)
        run = sample(model, "KamiltonianStep", tune, draws, seed + k, chains=2)
        idata = {"posterior": {"theta": run.draws}}
        found = predict(idata, data.X[test], model=model, random_seed=seed)
        logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
        window = list(logistic.classes_).index(1.0)
        other = logistic.predict_proba(data.X[test])[:, window]
        columns[:, test] = found.probability, found.mcse, other, np.full(len(test), np.mean(y > 0))
        rhat.append(summary(run.draws).rhat.max())
        seconds.append(run.seconds)
    return HeldOut(*columns, rhat, seconds)


def log_loss(probability, y):
    """Of every row, in nats."""
    return -np.log(np.where(y > 0, probability, 1.0 - probability))


def held_out_table(result, y):
    base, rows = log_loss(result.logistic, y), []
    names = ("Gaussian process", "logistic regression", "class frequency")
    for name, p in zip(names, (result.probability, result.logistic, result.frequency), strict=True):
        loss, right = log_loss(p, y), (p > 0.5) == (y > 0)
        versus = "" if p is result.logistic else with_error(loss - base, "+.3f")
        rows.append([name, f"{right.sum()} of {len(y)}", with_error(right), with_error(loss), versus])
    head = ["classifier", "right", "accuracy", "log loss", "log loss, less logistic regression's"]
    return table(head, rows)


def held_out_numbers(result, y):
    """On how many rows one alone is right, Gaussian process and logistic regression; the former's Monte Carlo error."""
    own, other = ((p > 0.5) == (y > 0) for p in (result.probability, result.logistic))
    right = np.where(y > 0, result.probability, 1.0 - result.probability)
    return (np.sum(own & ~other), np.sum(other & ~own)), np.sqrt(np.square(result.mcse / right).sum()) / len(y)


def long_lengthscales(draws):
    """Is dimension 2 long, is dimension 7, are both; each of shape (chains, n)."""
    first, second = (draws[..., k] > PRIOR_MEAN + PRIOR_SD for k in PAIR)
    return first, second, first & second


def page(options):
    """The long run's tuning and draws; the steps' budget, half of it tuning; tuning and draws in each fold."""
    from pymc_kameleon.datasets import load_glass
    from pymc_kameleon.gp_classification import gp_classification_model

    data = load_glass()
    model = gp_classification_model(data.X, data.y, feature_names=data.feature_names)
    seed, half = options.seed, options.budget // 2
    long_run = sample(model, "KamiltonianStep", options.tune, options.draws, 1000 * seed)
    reference = summary(long_run.draws)
    runs = {s: sample(model, s, half, options.budget - half, 1000 * seed + 100) for s in STEPS}
    result = held_out(data, options.fold_tune, options.fold_draws, 1000 * seed + 200)
    total = long_run.seconds + sum(run.seconds for run in runs.values()) + sum(result.seconds)
    minutes, evaluations = total / 60, long_run.evaluations.mean()
    posterior, long = posterior_table(data.feature_names, reference), long_lengthscales(long_run.draws)
    shares, both = [event.mean() for event in long], share_between_chains(long[2])
    steps, classifiers = steps_table(runs, reference), held_out_table(result, data.y)
    alone, monte_carlo = held_out_numbers(result, data.y)
    rhats, worst = ", ".join(f"{r:.3f}" for r in result.rhat), max(result.rhat)
    return report.page("glass", globals() | locals())


if __name__ == "__main__":
    provenance.command(
        "glass", __doc__, page, tune=5000, draws=12_000, budget=6000, fold_tune=3000, fold_draws=600, seed=1
    )
