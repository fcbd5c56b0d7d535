"""A widget that is stored with words beside it, whichever ipywidgets shows it."""


class WithText:
    """The live widget as a bundle, to which a class adds its words; stands before a widget's class.

    ipywidgets 8 shows a widget by such a bundle. ipywidgets 7, which Colab has, knows none, and
    shows the live widget alone by a method of its own.
    """

    _ipython_display_ = None

    def _repr_mimebundle_(self, **kwargs):
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {"application/vnd.jupyter.widget-view+json": view}
