"""Sphinx: `sphinx-build -W -b html docs docs/_build`."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# the notebooks stand beside the scripts that they are made from; Sphinx reads only what is below this folder
shutil.copytree(HERE.parent / "examples" / "notebooks", HERE / "notebooks", dirs_exist_ok=True)

project = "autograd_opt"
author = "the autograd_opt authors"
release = importlib.metadata.version("autograd_opt")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "docstrings"]
nb_execution_mode = "off"           # they were run when they were made
nb_merge_streams = True
exclude_patterns = ["_build", "results", "jupyter_execute"]
html_theme = "furo"
html_title = "autograd_opt"
html_show_copyright = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
napoleon_use_ivar = True
# tables that other commands write are linked, not built
suppress_warnings = ["myst.xref_missing"]
nitpicky = False
