"""Widgets stored with a text beside them, with ipywidgets 8 and with Colab's ipywidgets 7."""


class WithText:
    """A mixin that displays a widget by a MIME bundle, to which the class adds its text.

    It must come before the widget's class. ipywidgets 8 displays widgets this way. Version 7,
    which Colab has, displays the live widget alone by ``_ipython_display_``, so that is removed.
    """

    _ipython_display_ = None

    def _repr_mimebundle_(self, **kwargs):
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {"application/vnd.jupyter.widget-view+json": view}
