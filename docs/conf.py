"""Sphinx settings of the site; `docs/build.py` puts the sources together and runs this. Nothing is fetched."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # replaced by the built copy's own path in build.py

project = "mxfp4lab"
author = "mxfp4lab contributors"
project_copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "mxfp4lab"
html_copy_source = False
html_show_sourcelink = False
html_static_path: list[str] = []

nb_execution_mode = "off"  # notebooks come executed
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
