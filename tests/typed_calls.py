"""What a type checker says of calls: mypy reads this file with the package (``make lint``); nothing runs it.

Every ignored line is a wrong call: mypy, told to warn of ignores that are not needed, fails if it takes one for right.
"""

import pymc_kameleon as pk

pk.KamiltonianStep(tune="abc")  # type: ignore[arg-type]
pk.KamiltonianStep(nonsense=1)  # type: ignore[call-arg]
pk.KamiltonianStep(surrogate="litte")  # type: ignore[arg-type]
pk.KamiltonianStep(surrogate=pk.Lite(n_features=3))  # type: ignore[call-arg]
pk.KamiltonianStep(surrogate=pk.Lite(solver="sparse"))  # type: ignore[arg-type]
pk.KamiltonianStep(parametrization="centred")  # type: ignore[arg-type]
pk.KameleonStep(normalization="locl")  # type: ignore[arg-type]
pk.FastKameleonStep(preset="papers")  # type: ignore[arg-type]

pk.KamiltonianStep(surrogate=pk.Values(growth=2.0), tune=4, correlation=0.9)
pk.KamiltonianStep(surrogate=pk.Lite.paper(n_leapfrog=50), arrival=False)
pk.FastKameleonStep(screen=2, kernel="matern52", preset="paper", parametrization="model")
pk.AdaptiveMetropolisStep(schedule="root", covariance="recursive")

step: pk.KamiltonianStep = pk.KamiltonianStep()
pk.save_state(step, "chain.state")
pk.load_state(step, "chain.state")
