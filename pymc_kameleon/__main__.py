"""``python -m pymc_kameleon``: the demonstration."""

import argparse
import sys
from pathlib import Path


def positive(text: str) -> int:
    """A positive integer, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def main(arguments: list[str] | None = None) -> int:
    """Parse the options and run; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pymc_kameleon",
        description="Sample the lynx-hare predator-prey posterior, and a hierarchy of patients, without gradients, "
        "beside pm.DEMetropolisZ.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    from pymc_kameleon import demo

    parser.add_argument("--step", choices=sorted(demo.STEPS), default=demo.DEFAULT, help="step method")
    parser.add_argument("--draws", type=positive, default=5_000, help="draws per chain")
    parser.add_argument("--tune", type=positive, default=4_000, help="tuning draws per chain")
    parser.add_argument("--chains", type=positive, default=4, help="chains")
    parser.add_argument("--cores", type=positive, default=demo.available_cores(), help="processes")
    parser.add_argument("--seed", type=int, default=1900, help="random seed")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the results")
    parser.add_argument(
        "--patients", action=argparse.BooleanOptionalAction, default=True,
        help="end with a hierarchical model: patients behind one black-box solver",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.draws < 4:
        parser.error("argument --draws: at least 4, for the diagnostics")
    try:
        demo.main(**vars(options))
    except KeyboardInterrupt:
        print("\nInterrupted: nothing was written.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
