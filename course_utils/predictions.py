"""Questions to answer before a result is shown; what was said is compared with what came.

No answer is written down: a lesson hands over the value that its cell has computed.
"""

import html
from pathlib import Path

import anywidget
import ipywidgets as widgets
from IPython import get_ipython
from IPython.display import display
from traitlets import Bool, List, Unicode

from course_utils import json_store
from course_utils.mime_bundle import WithText

FILE = ".predictions.json"
# What is said beside a question and its result, here and on the website; there `go_on` is another.
GO_ON = "run the next cell"
SAYS = {
    "choose": "Choose by mouse, or with Tab, arrow keys and Space. Then {go_on}.",
    "give": "Choose a number. Then {go_on}.",
    "no number": "Please give a number, such as 20 or 0.5.",
    "noted": "Noted. Now {go_on}.",
    "late": "The result was on the screen already, so this does not count.",
    "fixed": "This is what you said.",
    "alone": "It came: {came}. Nothing was predicted.",
    "too late": "It came: {came}. You said {said} when that was on the screen already.",
    "right": "You said {said}, and it came {came}: as predicted.",
    "wrong": "You said {said}, and it came {came}: a surprise.",
    "count": "You predicted {met} of {asked} results; {wrong} came as a surprise.",
}

_asked = {}  # what this kernel has asked: the newest Prediction of each question


class Choice(anywidget.AnyWidget):
    """A question with options, of which at most one is chosen.

    Parameters
    ----------
    question : str
    options : list of str
    value : str or None
    disabled : bool
    """

    _esm = Path(__file__).with_name("choice.js")
    question = Unicode().tag(sync=True)
    options = List(Unicode()).tag(sync=True)
    value = Unicode(None, allow_none=True).tag(sync=True)
    disabled = Bool(False).tag(sync=True)


class Prediction(WithText, widgets.VBox):
    """A question with options to choose from, or with a field for a number.

    See `predict_first`. What counts is the choice that stands when the result is first shown.
    """

    def __init__(self, question, options, factor):
        self.options, self.factor = [str(option) for option in options or []], factor
        self.question = question
        if not options:
            self.question += f" (Within a factor of {factor:g} is near enough.)"
        self._person, self.cell = _who_asks()
        known = _asked.get(self.question, self)
        self.surprised = None  # True or False once the choice and its result have met
        self.shown = getattr(known, "shown", False)  # the result, before anything was chosen
        self.words = widgets.HTML()
        if options:
            self.control = Choice(question=self.question, options=self.options)
            asked = [self.control]
        else:
            self.control = widgets.Text(description="Your number:", placeholder="a number")
            self.control.style.description_width = "initial"
            text = f"<b>Predict first:</b> {html.escape(self.question)}"
            asked = [widgets.HTML(text), self.control]
        if known is not self:
            self._restore({"said": known.said, "surprised": known.surprised})
        elif self._person:
            self._restore(_load().get(self.question))
        self.control.observe(lambda _: self._chosen(), names="value")
        words = SAYS["choose" if options else "give"].format(go_on=GO_ON)
        self._tell(words if self.said is None else SAYS["fixed"])
        super().__init__([*asked, self.words])

    @property
    def said(self):
        """What is chosen, as text; None if it is nothing, or no number where one is asked for."""
        if not self.options and _number(self.control.value) is None:
            return None
        return self.control.value

    def compare(self, value):
        """Print what was said and that ``value`` came.

        Parameters
        ----------
        value : str, int, float or Tensor of one element
            One of the options, or the number asked for.
        """
        came = str(value) if self.options else f"{float(value):.3g}"
        if self.said is None:
            self.shown = True
            print(SAYS["alone"].format(came=came))
        elif self.shown:
            print(SAYS["too late"].format(came=came, said=self.said))
        else:
            right = self._is_right(value)
            if self.surprised is None:
                self.surprised = not right
                self._keep()
            self.control.disabled = True
            self._tell(SAYS["fixed"])
            print(SAYS["right" if right else "wrong"].format(said=self.said, came=came))

    def _is_right(self, value):
        if self.options:
            return self.said == str(value)
        said, came = _number(self.said), float(value)
        times_off = max(said / came, came / said) if said * came > 0 else float("inf")
        return said == came or times_off <= self.factor

    def _chosen(self):
        if self.shown:
            self._tell(SAYS["late"])
        elif self.said is None:
            self._tell(SAYS["no number"])
        else:
            self._tell(self._keep() or SAYS["noted"].format(go_on=GO_ON))

    def _keep(self):
        """Save the choice; return what went wrong, in words."""
        entry = {"said": self.said, "surprised": self.surprised}
        if self._person and json_store.working_directory().name == "notebooks":
            try:
                json_store.update(FILE, lambda entries: entries | {self.question: entry})
            except OSError as error:
                return f"Noted, but it could not be saved: {error}"

    def _restore(self, entry):
        """Choose what was chosen earlier, if it still is an answer to this question."""
        said = entry.get("said") if isinstance(entry, dict) else None
        if not isinstance(said, str):
            return
        if said in self.options if self.options else _number(said) is not None:
            self.control.value = said
            if isinstance(entry.get("surprised"), bool):
                self.surprised = entry["surprised"]
                self.control.disabled = True

    def _tell(self, words):
        self.words.value = f'<span role="status">{html.escape(words)}</span>'

    def _repr_mimebundle_(self, **kwargs):
        # The question stands beside the live widget, for viewers that run nothing.
        bundle = super()._repr_mimebundle_(**kwargs)
        lines = [f"Predict first: {self.question}"]
        bundle["text/plain"] = "\n".join(lines + [f"  ○ {option}" for option in self.options])
        return bundle


def predict_first(question, options=None, factor=2):
    """Ask a question whose answer a later cell computes and hands to ``compare``.

    Parameters
    ----------
    question : str
        Plain text, no other in the course.
    options : list, optional
        To choose from; without them a number is asked for.
    factor : float
        How many times too large or too small a number may be and is still right.

    Returns
    -------
    Prediction
        With the method ``compare(value)``.
    """
    prediction = Prediction(question, options, factor)
    _asked[prediction.question] = prediction
    display(prediction)
    return prediction


def surprises():
    """Show how many results were predicted, and link to the questions that surprised."""
    met = [each for each in _asked.values() if each.surprised is not None]
    wrong = [each for each in met if each.surprised]
    words = SAYS["count"].format(met=len(met), asked=len(_asked), wrong=len(wrong))
    items = []
    for each in wrong:
        item = html.escape(each.question)
        if each.cell:  # else there is nothing to lead to, as on Colab
            item = f'<a href="#cell-id={each.cell}">{item}</a>'
        items.append(f"<li>{item}</li>")
    page = f"<p>{words}</p>" + (f"<ul>{''.join(items)}</ul>" if items else "")
    display({"text/plain": words, "text/html": page}, raw=True)


def _who_asks():
    """Return whether a person runs the present cell, and the cell's id if it is known.

    A front end lets a cell ask for input. What runs a notebook without anybody there does not;
    nobody's earlier choices belong into what it stores or compares.
    """
    request = getattr(get_ipython(), "get_parent", dict)()
    person = request.get("content", {}).get("allow_stdin", False)
    return person, request.get("metadata", {}).get("cellId")


def _load():
    try:
        return json_store.load(FILE)
    except OSError:
        return {}


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
