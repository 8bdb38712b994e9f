"""What PyMC takes out of a step by .base and puts back: everything mutable; and the check that it is this step's."""

from dataclasses import field
from operator import attrgetter
from typing import Any

from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state

from pymc_kameleon.steps.told import advice

VERSION = 32  # raised whenever the meaning of a field changes


@dataclass_state
class KernelStepState(StepMethodState):
    """Everything mutable in a step: with it, a chain resumes bit for bit."""

    # the states of other versions of this package are refused; 0: from before there was one
    state_version: int = field(default=0, metadata={"frozen": True})
    # as are those of another algorithm, other shapes of the variables, other options (described)
    method: str = field(metadata={"frozen": True})
    shapes: dict = field(metadata={"frozen": True})
    options: dict = field(metadata={"frozen": True})
    life_state: Any  # samplers.life.State: where the chain is, what was learned, how far it has come
    nonfinite: int  # proposals without a finite log density
    evaluations: int  # of the log density so far in this chain
    others: dict  # the other steps' variables, where ``log_density`` was evaluated
    data: str  # a digest of the model's data, there
    noise: list  # states of the generators that the log density draws from
    failures: list  # these four: :class:`~pymc_kameleon.steps.told.watch.Watch`
    streak: int
    said: list
    pending: list

    # as of the step
    position = property(attrgetter("life_state.here.position"))
    algorithm_state = property(attrgetter("life_state.own"))


def check(step: Any, state: Any) -> None:
    """Refuse the state of another version, algorithm, shape or option with a ``ValueError``."""
    ours: dict[str, Any] = {
        "state_version": step.state_version, "var_names": [v.name for v in step.vars],
        "method": step.method, "shapes": step.shapes, "options": step.options,
    }  # fmt: skip
    for name, mine in ours.items():
        given = getattr(state, name, None)
        if given == mine:
            continue
        if name == "options":
            differ = sorted(n for n in {*given, *mine} if given.get(n) != mine.get(n))
            given, mine = ({n: d.get(n) for n in differ} for d in (given, mine))
        raise ValueError(advice.OTHER_STATE.format(step=type(step).__name__, name=name, given=given, mine=mine))
