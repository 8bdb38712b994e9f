"""What a step does and has learned, drawn: axes in, axes out.

:func:`surrogate` draws the log density that a :class:`~pymc_kameleon.KamiltonianStep` has learned, :func:`proposals`
the covariances of a step's proposals, :func:`adaptation` how a step tuned, :func:`evaluations` where the log density
was evaluated. Traces, densities and pairs of draws are ArviZ's.
"""

from pymc_kameleon.plots.adaptation_curves import adaptation
from pymc_kameleon.plots.contours import surrogate
from pymc_kameleon.plots.evaluated_points import evaluations
from pymc_kameleon.plots.proposal_ellipses import proposals

__all__ = ["adaptation", "evaluations", "proposals", "surrogate"]
