"""Sphinx configuration: ``sphinx-build -W docs docs/_build``."""

import os
import sys
from importlib.metadata import version as installed

# dumps.py stands beside this file
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

project = "pnc_vol"
author = "the pnc_vol developers"
release = version = installed("pnc-vol")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "dumps"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
default_role = "code"

html_theme = "furo"
html_title = f"pnc_vol {version}"
html_static_path = ["_static"]


def setup(app):
    # Napoleon takes what stands before a colon in the first line of a property's docstring for its type.
    app.connect("autodoc-process-docstring", begin_with_nothing, priority=400)


def begin_with_nothing(app, what, name, found, options, lines):
    if what == "property":
        lines.insert(0, "\\ ")
