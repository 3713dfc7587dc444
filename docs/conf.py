"""Sphinx: `sphinx-build -W -b html docs docs/_build`."""

from __future__ import annotations

import importlib.metadata

project = "autograd_opt"
author = "the autograd_opt authors"
release = importlib.metadata.version("autograd_opt")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "results"]
html_theme = "furo"
html_title = "autograd_opt"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
# tables that other commands write are linked, not built
suppress_warnings = ["myst.xref_missing"]
nitpicky = False
