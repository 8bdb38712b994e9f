"""Let pm.sample assign one of the steps by itself, and no longer."""

from pymc_kameleon.steps.base import KernelStep
from pymc_kameleon.steps.kamiltonian import KamiltonianStep
from pymc_kameleon.steps.pytensor_internals import STEP_METHODS


def register(step: type = KamiltonianStep) -> None:
    """Let ``pm.sample`` choose ``step`` by itself for variables without a gradient (PyMC's default: Slice, Metropolis).

    Explicit ``pm.sample(step=...)`` needs no registration and is the better way when a noisy or joint black-box
    likelihood must stay in one step.

    Parameters
    ----------
    step : type
        One of this package's steps: the class, neither its name nor an instance. Default: ``KamiltonianStep``.

    Raises
    ------
    TypeError
        For anything else, which would break every later ``pm.sample``.
    """
    if not (isinstance(step, type) and issubclass(step, KernelStep) and step.name):
        raise TypeError(f"register() takes a step's class, such as pymc_kameleon.KamiltonianStep, got {step!r}.")
    if step not in STEP_METHODS:
        STEP_METHODS.insert(0, step)


def unregister(step: type | None = None) -> None:
    """Undo :func:`register`: for one step, or (default) for all of this package's."""
    for known in [*STEP_METHODS]:
        if known is step or (step is None and issubclass(known, KernelStep)):
            STEP_METHODS.remove(known)
