"""Who takes part: a row each, with the package it comes from and what a cell of it depends on."""

import importlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from benchmarks import provenance
from benchmarks.cold_start import TARGET_MODULES


class Sampler(NamedTuple):
    """A function of an adapter's module; ``package`` as it is installed, or "" for this one.

    ``prior``: whether it samples from a prior and so needs one. ``code``: modules of ours that a cell depends on.
    """

    label: str
    function: str
    package: str = ""
    prior: bool = False
    code: tuple[str, ...] = ()


def _ours(label: str, name: str, *modules: str) -> Sampler:
    code = tuple(f"pymc_kameleon.samplers.{m}" for m in modules)
    return Sampler(label, f"ours:{name}", code=(*code, "pymc_kameleon.steps.base"))


SAMPLERS = {
    "kamiltonian": _ours(
        "KamiltonianStep", "kamiltonian", "kamiltonian.values.sampler", "kamiltonian.factors.sampler"
    ),
    "pooled": Sampler("pk.sample", "ours:pooled_sample", code=("pymc_kameleon.samplers.pooled.chains",)),
    "kameleon": _ours("KameleonStep", "kameleon", "kameleon.full"),
    "fast_kameleon": _ours("FastKameleonStep", "fast_kameleon", "kameleon.fast", "screened"),
    "gaussian_mixture": _ours("GaussianMixtureStep", "gaussian_mixture", "gaussian_mixture.sampler"),
    "adaptive_metropolis": _ours("AdaptiveMetropolisStep", "adaptive_metropolis", "adaptive_metropolis"),
    "demetropolisz": Sampler("pm.DEMetropolisZ", "pymc_steps:demetropolisz", "pymc"),
    "demetropolis": Sampler("pm.DEMetropolis", "pymc_steps:demetropolis", "pymc"),
    "slice": Sampler("pm.Slice", "pymc_steps:slice_step", "pymc"),
    "metropolis": Sampler("pm.Metropolis", "pymc_steps:metropolis", "pymc"),
    "smc": Sampler("pm.sample_smc", "sequential:smc", "pymc", prior=True),
    "nuts": Sampler("pm.NUTS, differences", "pymc_steps:nuts", "pymc"),
    "emcee_stretch": Sampler("emcee, stretch", "ensembles:emcee_stretch", "emcee"),
    "emcee_de": Sampler("emcee, DE", "ensembles:emcee_de", "emcee"),
    "zeus": Sampler("zeus", "ensembles:zeus", "zeus-mcmc"),
    "pints_acmc": Sampler("PINTS, ACMC", "pints_chains:haario_bardenet", "pints"),
    "pints_dream": Sampler("PINTS, DREAM", "pints_chains:dream", "pints"),
    "pocomc": Sampler("pocoMC", "preconditioned:pocomc", "pocomc", prior=True),
    "pyvbmc": Sampler("PyVBMC", "variational:pyvbmc", "pyvbmc"),
    "nautilus": Sampler("nautilus", "nested:nautilus", "nautilus-sampler", prior=True),
    "dynesty": Sampler("dynesty", "nested:dynesty", "dynesty", prior=True),
}  # fmt: skip
OURS = tuple(name for name, s in SAMPLERS.items() if not s.package)
RIVALS = tuple(name for name, s in SAMPLERS.items() if s.package)


def function(name: str):
    """The adapter's function; imports what it needs."""
    module, _, attribute = SAMPLERS[name].function.partition(":")
    return getattr(importlib.import_module(f"benchmarks.peers.adapters.{module}"), attribute)


def installed(name: str) -> str:
    """The version of the sampler's package, or "" if it is not installed."""
    try:
        return version(SAMPLERS[name].package) if SAMPLERS[name].package else "ours"
    except PackageNotFoundError:
        return ""


MEASURED_WITH = tuple(
    f"benchmarks.peers.{name}" for name in ("adapters", "targets", "real", "noisy", "counting", "measures")
)  # fmt: skip


@cache
def code(name: str, package_version: str = "") -> str:
    """Digest of what a cell is made with: the adapter, the targets, and our sampler or the rival's version.

    ``package_version``: of the rival's package, where it is not installed.
    """
    sampler = SAMPLERS[name]
    adapter = f"benchmarks.peers.adapters.{sampler.function.partition(':')[0]}"
    made = provenance.own_digest(adapter, *MEASURED_WITH)
    densities = provenance.digest(
        *TARGET_MODULES, "pymc_kameleon.particle_filter", "pymc_kameleon.gp.estimator"
    )
    if not sampler.package:
        return f"{made}, {densities}, {provenance.digest(*sampler.code)}"
    return f"{made}, {densities}, {sampler.package} {installed(name) or package_version}"
