"""Sphinx: the package's documentation.

Pages are Markdown (MyST); notebooks are shown with their stored outputs and not run. Tables of results and notebooks
live elsewhere in the repository, are copied here before a build, and are not committed here.
"""

import re
import shutil
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "pymc_kameleon"
author = "The pymc_kameleon developers"
copyright = author
version = release = installed_version("pymc-kameleon")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath", "deflist", "fieldlist"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True
smartquotes_action = "De"  # dashes and ellipses: quotes are code's, mostly, and are copied from here
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header", "misc.highlighting_failure"]

napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("For experiments", "params_style"), ("Of every step", "params_style")]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Every link to something of this package has to lead somewhere; the words of a parameter's type are no links.
nitpicky = True
nitpick_ignore_regex = [(r"py:(class|exc)", r"(?!pymc_kameleon).*"), (r"py:class", r".*[\s{}\"].*")]

html_math_renderer = "mathml"  # see setup: formulas without a script from elsewhere
html_theme = "pydata_sphinx_theme"
html_title = f"pymc_kameleon {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_copyright = False
html_sidebars = {"contributing": []}  # a section of one page
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "header_links_before_dropdown": 6,
    # not beside results, notebooks and these pages, whose tables need the room
    "secondary_sidebar_items": {
        "*": ["page-toc", "sourcelink"],
        "api/*": ["page-toc", "sourcelink"],
        "papers": [],
        "corrections": [],
        "choosing": [],
    },
}
linkcheck_timeout = 20
linkcheck_ignore = [r"https://doi\.org/.*"]  # publishers refuse robots

COPIED = {"notebooks": ("*.ipynb",), "results": ("*.md", "*.png")}
# In the sidebar; the other results are found by their links.
LISTED = re.findall(r"^results/(\w+)$", (HERE / "benchmarks.md").read_text("utf-8"), re.MULTILINE)
SOURCES = {"notebooks": ROOT / "notebooks", "results": ROOT / "benchmarks" / "results"}


def copy_sources() -> None:
    """Copy notebooks and results here, and drop what is no longer there."""
    for name, patterns in COPIED.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        kept = {path.name for pattern in patterns for path in SOURCES[name].glob(pattern)}
        for path in folder.iterdir():
            if path.name not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for file in kept:
            source, target = SOURCES[name] / file, folder / file
            if not target.exists() or target.read_bytes() != source.read_bytes():
                shutil.copy(source, target)


def follow_links(app, name, source) -> None:
    """Links that are right in the repository are made right here."""
    here = "../" if name.startswith("notebooks/") else ""
    text = source[0].replace("](../docs/", "](" + here)
    text = text.replace("](../benchmarks/results/", f"]({here}results/")
    text = text.replace("](../notebooks/", f"]({here}notebooks/")
    if not here:
        text = re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"`\1`", text)  # other files: their names
    if name.startswith("results/"):
        text = text.replace("](../../docs/", "](../")
        text = re.sub(r"(?<= )docs/(\w+\.md)", r"[docs/\1](../\1)", text)
        text = re.sub(r"\[([^\]]*)\]\((?!http|#)[^)]*\.json\)", r"`\1`", text)
        if name.removeprefix("results/") not in LISTED:
            title, _, rest = text.partition("\n")
            text = f"---\norphan: true\n---\n\n{title}\n\n[All benchmarks](../benchmarks.md)\n{rest}"
    # the column of tests is for the repository, which has them
    text = re.sub(r"\| held by \|\n(.*)\|---\|", r"|\n\1|", text)
    text = re.sub(r"\| (?:`\w+/\w+\.py::\w+`(?:, )?)+ \|$", "|", text, flags=re.MULTILINE)
    if name == "reference" and not (HERE / "corrections.md").exists():
        text = text.replace("\ncorrections\n", "\n")
    source[0] = re.sub(r"^\|.*\|$", with_whole_numbers, text, flags=re.MULTILINE)


def with_whole_numbers(row: re.Match) -> str:
    """A row of a table in which no line ends within "1.2 ± 0.3" or "3e-04"."""
    parts = re.split(r"(`.*?`)", row[0])
    number = r"[^\s|]+ ± [^\s|;,)]+|\b\d[\d.]*e-\d+"
    parts[::2] = [re.sub(number, r'<span class="number">\g<0></span>', part) for part in parts[::2]]
    return "".join(parts)


def with_tables_as_they_are(lines: list[str]) -> list[str]:
    """Paragraphs in columns, made by hand with spaces, are shown as they are."""
    result = []
    for paragraph in "\n".join(lines).split("\n\n"):
        rows = paragraph.splitlines()
        if any(re.search(r"\S {3,}\S", row) for row in rows) and not rows[0].startswith(" "):
            rows = [f"    {row}".replace("``", "") for row in rows]  # as_prose makes a literal block of it
        result += [*rows, ""]
    return result


def with_references_apart(lines: list[str]) -> list[str]:
    """Each reference is a paragraph: it begins on a line with a year, after one that has ended."""
    result: list[str] = []
    within = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if re.fullmatch(r" *-+", below):
            within = line.strip() == "References"
        ended = result and result[-1].rstrip().endswith((".", ")"))
        if within and ended and re.match(r" *[A-Z].*\(\d{4}\)", line):
            result.append("")
        result.append(line)
    return result


def as_prose(app, what, name, obj, options, lines) -> None:
    """Docstrings are written to be read: indented formulas stay as they are, bars and underscores are no markup.

    Initials of an author number no list, and what a property says before a colon is not its type.
    """
    if what == "module":
        lines[:] = with_tables_as_they_are(lines)
    lines[:] = with_references_apart(lines)
    result: list[str] = []
    indent = 0  # of the last line that had any text
    literal = None
    for line in lines:
        here = len(line) - len(line.lstrip())
        if line.strip():
            if literal is not None and here < literal:
                literal = None
            if literal is None and result and not result[-1].strip() and here >= indent + 4:
                literal = here
                result += [" " * indent + ".. code-block:: none", ""]
            indent = here if literal is None else indent
        parts = re.split(r"(``.*?``|`.*?`_?)", line)
        if literal is None:
            parts[::2] = [re.sub(r"(\||(?<=\w)_+(?=\W|$))", r"\\\1", part) for part in parts[::2]]
            parts[::2] = [re.sub(r"\bdocs/(\w+)\.md", r":doc:`/\1`", part) for part in parts[::2]]
            parts[0] = re.sub(r"^( *)(?=[A-Z]\. )", r"\1\\", parts[0])
        result.append("".join(parts))
    lines[:] = ["..", "", *result] if what == "property" else result


def without_fields(app, what, name, obj, skip, options) -> bool | None:
    """A named tuple says of its fields their number alone."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def write_formula(translator, node) -> None:
    """A formula as MathML, which browsers draw by themselves."""
    block = isinstance(node, nodes.math_block)
    # the converter knows alignments and no arrays, as which PyMC prints a model
    text = re.sub(r"(begin|end)\{array\}(\{\w+\})?", r"\1{aligned}", node.astext())
    text = text.replace(r"\_", "_") if r"\text{" in text else text
    formula = tex2mathml(text.replace(r"\dots", r"\ldots"), as_block=block)
    # the space between log and p, which some browsers leave out
    formula = re.sub(r"(<mi>log</mi>\s*<mo>&ApplyFunction;</mo>)(?=\s*<m(?!o))", r'\1<mspace width="0.17em"/>', formula)
    translator.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app) -> None:
    """Sphinx calls this first."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("autodoc-process-docstring", as_prose, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", without_fields)
    copy_sources()
    app.connect("source-read", follow_links)
