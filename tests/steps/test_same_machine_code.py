"""One seed, one set of draws: whoever compiled the model, whoever loaded it, and in whichever process a chain runs."""

import os
import subprocess
import sys

import pytest

RUN = """
import sys
import numpy as np
import pymc as pm
import pymc_kameleon as pk

if __name__ == "__main__":
    place = np.linspace(-1, 1, 40)
    with pm.Model():
        a, b, s = pm.Normal("a", 0, 2), pm.Normal("b", 0, 1), pm.HalfNormal("s", 1)
        pm.Normal("y", a + b * place, s, observed=1 + 0.5 * place + 0.3 * np.cos(7 * place))
        workers = {"cores": 2, "mp_ctx": "spawn"} if sys.argv[1] == "workers" else {"cores": 1}
        step = pk.AdaptiveMetropolisStep(compile_kwargs={"mode": "NUMBA"})
        idata = pm.sample(50, tune=100, chains=2, step=step, random_seed=1, progressbar=False,
                          compute_convergence_checks=False, **workers)
    print([idata["posterior"][name].values.tobytes().hex() for name in "abs"])
"""


@pytest.mark.slow
def test_draws_do_not_depend_on_who_compiled(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(RUN)

    def draws(how, cache):
        flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={tmp_path / cache}"
        environment = {
            **os.environ,
            "PYTENSOR_FLAGS": flags.strip(","),
            "NUMBA_CACHE_DIR": str(tmp_path / cache / "numba"),
        }
        command = [sys.executable, str(script), how]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    compiled, loaded = draws("alone", "one"), draws("alone", "one")
    assert len(compiled) > 1000
    assert loaded == compiled
    assert draws("workers", "another") == compiled
