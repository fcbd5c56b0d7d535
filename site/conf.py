"""The website's settings, for Sphinx. `python site/build.py` lays out the pages, then runs it."""

import html
import json

from docutils import nodes
from latex2mathml.converter import convert
from myst_nb.sphinx_ import HideCodeCellNode

from addresses import website
from course_utils.predictions import ON_A_PAGE, SAYS

project = "Attention, step by step"
html_title = project
language = "en"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.githubpages",
    "sphinx.ext.napoleon",
]
templates_path = ["templates"]
exclude_patterns = [
    "README.md",
    "LEARNING.md",
    "TEACHING.md",
    "CONTRIBUTING.md",
    "first.md",
    "answers.md",
    "templates",
]  # parts of pages

html_theme = "sphinx_book_theme"
html_static_path = ["static"]
html_css_files = ["course.css"]
html_favicon = "static/icon.svg"
html_show_copyright = False
html_copy_source = False
html_use_index = html_domain_indices = False
html_context = {"default_mode": "auto", "repository": ""}
html_theme_options = {
    "logo": {"text": project},
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the search is in the left column
    "show_navbar_depth": 1,
}

nb_execution_mode = "off"  # the stored outputs are shown
nb_merge_streams = True
# No widgets: they would need a kernel, and ask another host for their code.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
html_math_renderer = "mathml"


def setup(app):
    # Formulas as MathML, which browsers draw by themselves.
    app.add_html_math_renderer("mathml", (formula("inline"), None), (formula("block"), None))
    app.add_node(HideCodeCellNode, override=True, html=(open_fold, close_fold))
    app.connect("doctree-resolved", load_late)
    app.connect("doctree-read", address_terms)
    app.add_js_file(None, body=f"const SAYS = {json.dumps(SAYS)}, HOW = {json.dumps(ON_A_PAGE)}")
    app.add_js_file("course.js", defer="defer")
    app.connect("config-inited", name_repository)
    app.connect("html-page-context", title_first_page)


def name_repository(app, config):
    """Set what needs the website's address: the button, descriptions, pictures and the sitemap."""
    repository = config.html_context["repository"]
    if repository:
        config.html_baseurl = website(repository)
        for extension in ["sphinxext.opengraph", "sphinx_sitemap"]:
            app.setup_extension(extension)
        config.ogp_site_url = config.html_baseurl
        # Matplotlib's own font, which has a √
        config.ogp_social_cards = {"font": "DejaVu Sans", "image_mini": "static/icon.png"}
        config.sitemap_url_scheme = "{link}"
        config.sitemap_excludes = ["search.html"]
        config.html_theme_options |= {
            "repository_url": f"https://github.com/{repository}",
            "use_repository_button": True,
        }


def title_first_page(app, name, template, context, doctree):
    if name == app.config.root_doc:  # elsewhere the name of the course stands behind the title
        context["docstitle"] = "an interactive course with PyTorch"


def formula(display):
    def visit(translator, node):
        drawn = convert(node.astext(), display=display)
        if display == "block":
            drawn = f'<div class="formula">{drawn}</div>\n'
        translator.body.append(drawn)
        raise nodes.SkipNode

    return visit


def open_fold(translator, node):
    label = html.escape(node["prompt_show"])
    translator.body.append(f'<details class="fold"><summary>{label}</summary>\n')


def close_fold(translator, node):
    translator.body.append("</details>\n")


def address_terms(app, doctree):
    """Give each term of the glossary an address of its own: glossary.html#causal-mask."""
    for term in doctree.findall(nodes.term):
        term["ids"].append(nodes.make_id(term.astext()))


def load_late(app, doctree, name):
    """Let pictures wait until they are near the screen."""
    for image in doctree.findall(nodes.image):
        image["loading"] = "lazy"
