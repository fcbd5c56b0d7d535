"""The website's settings, for Sphinx. `python site/build.py` lays out the pages, then runs it."""

from latex2mathml.converter import convert

project = "Attention, step by step"
html_title = project
language = "en"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "sphinx_book_theme"
html_static_path = ["static"]
html_css_files = ["course.css"]
html_js_files = ["course.js"]
html_show_copyright = False
html_copy_source = False
html_theme_options = {"home_page_in_toc": True, "use_download_button": False}

nb_execution_mode = "off"  # the stored outputs are shown
nb_merge_streams = True
# No widgets: they would need a kernel, and ask another host for their code.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"
html_math_renderer = "mathml"


def setup(app):
    """Draw formulas as MathML, which browsers draw themselves."""

    def inline(self, node):
        self.body.append(convert(node.astext()))
        raise StopIteration

    app.add_html_math_renderer("mathml", (_math("inline"), None), (_math("block"), None))


def _math(display):
    def visit(translator, node):
        from docutils.nodes import SkipNode

        translator.body.append(convert(node.astext(), display=display))
        raise SkipNode

    return visit
