"""Nothing here depends on what lies outside the checkout."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1].parent
OUTSIDE = re.compile(
    r"(?<![\w.:/])/(?:work|home|root|Users|mnt|opt)/\w"  # a path of one machine
    r"|parents\[[2-9]\]|\.parent\.parent\.parent|\.\./\.\./\.\."  # above the checkout
)


def tracked():
    """The checkout's text files, as git has them."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0"):
        path = ROOT / name
        if (
            path.suffix in {".py", ".md", ".toml", ".ipynb", ".csv", ".json", ".cff", ".yaml"}
            or path.name == "Makefile"
        ):
            yield name, path.read_text("utf-8")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_nothing_points_outside_the_checkout():
    this = Path(__file__).name
    wrong = [
        f"{name}: {match[0]}" for name, text in tracked() for match in OUTSIDE.finditer(text) if not name.endswith(this)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text", ["Path(__file__).parents[2] / 'x'", "open('/home/me/data')", "see ../../../data", '"/work/x"']
)
def test_the_rule_would_notice(text):
    assert OUTSIDE.search(text)
    assert not OUTSIDE.search("https://a.org/home/me, Path(__file__).parents[1], ../x, benchmarks/work/x")
