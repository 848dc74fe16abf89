"""The documentation as a site: `sphinx-build -W --keep-going -n docs build/site`."""

import sys
from pathlib import Path

from dp_polars import __version__

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "dp_polars"
author = "The dp_polars developers"
copyright = "The dp_polars developers, Apache-2.0"  # noqa: A001 - the name that Sphinx reads
version = release = __version__

extensions = [
    "myst_nb",  # Markdown pages; the tutorial is executed while the site is built
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_copybutton",  # copies examples without their prompts
    "pages",  # docs/_site/pages.py
    "pictures",  # docs/_site/pictures.py
]
exclude_patterns = ["_site", "_static", "README.md"]
html_theme = "furo"
html_title = "dp_polars"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "friendly"

# Headings get the same anchors as on GitHub, so that links to them work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_dmath_double_inline = False

# Only pages that are notebooks are executed. Blocks with `>>>` are run by pytest.
nb_execution_mode = "cache"
nb_execution_excludepatterns = ["examples/*"]  # run by pytest, and stored with their outputs
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_show_tb = True
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "image/svg+xml", 0)]

numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "code"
smartquotes = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

# Types of other packages and internal ones are named without a link: the build needs no network.
nitpick_ignore_regex = [("py:.*", r"(?!dp_polars\.).*|dp_polars\.(.*\.)?_.*|dp_polars\.mechanisms\.additive\.N")]
