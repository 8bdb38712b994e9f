"""The worked example is a sampler: exact, with a control that is not, and a step of PyMC's in six lines."""

from typing import ClassVar, Unpack

import numpy as np
import pymc as pm
import pytest

from pymc_kameleon.steps.base import KernelStep
from pymc_kameleon.steps.options import CommonOptions
from pymc_kameleon.steps.signatures import default, given
from tests.samplers.hit_and_run import HitAndRun
from tests.step_tester import moment_z, sample
from tests.support.chains import Uneven, change, held, tuned
from tests.support.targets import Banana

TARGET = Banana(3)


@pytest.mark.parametrize("control", [None, Uneven])
def test_it_leaves_the_target_invariant(control):
    z = change(held(HitAndRun, np.zeros(3), scale=2.0), TARGET, 3000, 8, control)
    assert z > 10 if control else z < 4.5


def test_its_step_is_tuned():
    chain = tuned(HitAndRun(scale=1e-3), TARGET.log_density, np.zeros(3), 4000)
    assert abs(chain.accept_probs[2000:].mean() - 0.44) < 0.04


class HitAndRunStep(KernelStep):
    """A hit-and-run walk.

    Parameters
    ----------
    target_accept : float
        Acceptance probability that the step is tuned to, in (0, 1). Default 0.44.

    For experiments
    ---------------
    scale : float
        Standard deviation of the step at the start. Default 1.
    """

    name = "hit_and_run"
    variants: ClassVar[dict] = {"": HitAndRun}

    def __init__(
        self, vars=None, *, target_accept: float = default(0.44), scale: float = default(1.0),
        preset: str | None = None, **common: Unpack[CommonOptions],
    ):  # fmt: skip
        super().__init__(vars, **given(locals()), **common)


def test_a_step_of_it_samples():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        step = HitAndRunStep(scale=0.5)
    idata = sample(step, model)
    assert set(np.unique(idata["sample_stats"]["move"].values)) == {"hit-and-run"}
    assert np.abs(moment_z(step, model, chains=8, tune=200, draws=500)).max() < 4.5
