"""``python -m tests.file_map``: the last section of ARCHITECTURE.md anew, each file and its first sentence."""

import ast
from pathlib import Path

import pymc_kameleon

PACKAGE = Path(pymc_kameleon.__file__).parent
PAGE = PACKAGE.parent / "ARCHITECTURE.md"
HEADING = "## Every file\n"


def section() -> str:
    """From the sources; a folder's own sentence is that of its ``__init__``."""
    lines = [HEADING, "Made by `python -m tests.file_map`.\n", "```"]
    files = sorted(PACKAGE.rglob("*.py"), key=lambda f: (len(f.parent.parts) > len(PACKAGE.parts), f))
    for file in files:
        *folders, name = file.relative_to(PACKAGE).parts
        depth = "  " * (len(folders) - (name == "__init__.py"))
        shown = (folders[-1] + "/" if folders else "pymc_kameleon/") if name == "__init__.py" else name
        lines.append(f"{depth}{shown:<{26 - len(depth)}} {sentence(file)}".rstrip())
    return "\n".join([*lines, "```", ""])


def sentence(file: Path) -> str:
    """The first of ``file``'s docstring, in plain text."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    text = " ".join(text.split("\n\n")[0].split()).replace("``", "")
    return text.replace(":mod:", "").replace("`", "").removesuffix(".")


def page() -> str:
    """The whole page, its last section as it should be."""
    return PAGE.read_text("utf-8").partition(HEADING)[0] + section()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
