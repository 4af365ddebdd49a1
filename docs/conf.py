"""Sphinx settings of the site; `docs/build.py` puts the sources together and runs this. Nothing is fetched."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

project = "mxfp4lab"
author = "mxfp4lab contributors"
project_copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "mxfp4lab"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

highlight_language = "none"  # a plain block is plain
nb_execution_mode = "off"  # notebooks come executed
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # a page shows what papermill's run shows; no script from elsewhere
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = [
    "mystnb.unknown_mime_type",  # a pick's own JSON beside its HTML
    "misc.highlighting_failure",  # %%submission above Python
    "myst.header",  # a notebook may go from H1 to a closing bold line
]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say types, shapes and units
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!mxfp4lab).*")]  # names of other projects: their sites are not asked


SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields", "Example", "Examples", "Note", "Notes")


def _plain_marks(app, what, name, obj, options, lines):
    """Docstrings are written for people.

    |C - ref| and *u8 mean themselves, not a substitution and emphasis; lines set in below one that ends with a colon
    are a table in plain text.
    """
    if what == "property" and lines:  # else napoleon takes what stands before a colon for a type
        lines[0] = lines[0].replace(": ", " - ", 1)
    found, inside = [], -1  # columns that the head of a plain table is set in, while inside one
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if inside >= 0 and line.strip() and indent <= inside:
            found.append("")
            inside = -1
        following = lines[i + 1] if i + 1 < len(lines) else ""
        deeper = bool(following.strip()) and len(following) - len(following.lstrip()) > indent
        head = line.rstrip().endswith(":") and line.strip()[:-1] not in SECTIONS and deeper
        if inside < 0 and not head:
            parts = re.split(r"(``.*?``|`.*?`)", line)
            parts[::2] = [re.sub(r"(?<!\\)([|*])", r"\\\1", part) for part in parts[::2]]
            line = "".join(parts)
        elif head and inside < 0:
            line, inside = line.rstrip() + ":", indent
            found += [line, ""]
            continue
        found.append(line)
    lines[:] = found


def setup(app):
    """Called by Sphinx; before napoleon, whose own marks must stay."""
    app.connect("autodoc-process-docstring", _plain_marks, priority=100)
