"""Questions to answer before a result is shown, and the comparison of prediction and result.

No right answer is stored here. A lesson passes the value that its cell has computed.

The question and the result are in the metadata of the output, under "prediction". The website
reads them there.
"""

import html
import itertools
import math
from pathlib import Path

import anywidget
import ipywidgets as widgets
from IPython import get_ipython
from IPython.display import display
from traitlets import Bool, List, Unicode

from course_utils import json_store
from course_utils.mime_bundle import WithText
from course_utils.widget_keys import take_keys

FILE = ".predictions.json"
# The words next to a question and its result, here and on the website.
IN_JUPYTER = {
    "keys": "Shift+Tab, arrow keys and Space",
    "go_on": "press Shift+Enter until the result appears",
}
ON_A_PAGE = {"keys": "Tab, arrow keys and Space", "go_on": "open the result below"}
SAYS = {
    "choose": "Choose by mouse, or with {keys}. Then {go_on}.",
    "give": "Type a number. Then {go_on}.",
    "no number": "Please type a number, such as 20 or 0.5.",
    "noted": "Noted. Now {go_on}.",
    "late": "The result was on the screen already, so this does not count.",
    "fixed": "This is what you predicted.",
    "nearest": "nearest to {result}",  # of numbers to choose from, where none is the result
    "too late": "The result is {result}. You chose {predicted} after you had seen it.",
    "right": "You predicted {predicted}. The result is {result}. You were right.",
    "wrong": "You predicted {predicted}. The result is {result}.",
    "count": "You predicted {predicted} of {asked} results; {wrong} came as a surprise.",
}

_asked = {}  # what this kernel has asked: the newest Prediction of each question


class Choice(anywidget.AnyWidget):
    """A question with options, of which at most one can be chosen, or with a field for a number.

    Parameters
    ----------
    question : str
    options : list of str
        If empty, there is a field instead.
    value : str or None
        The chosen option, or the text in the field.
    disabled : bool
        Whether the answer can no longer be changed.
    """

    _esm = Path(__file__).with_name("choice.js")
    question = Unicode().tag(sync=True)
    options = List(Unicode()).tag(sync=True)
    # the browser has it already
    value = Unicode(None, allow_none=True).tag(sync=True, echo_update=False)
    disabled = Bool(False).tag(sync=True)


class Prediction(WithText, widgets.VBox):
    """A question with options to choose from, or with a field for a number.

    See `predict_first`. The choice counts that is made when the result is first shown.
    """

    def __init__(self, question, options, factor):
        self._results = options  # what a result is compared with
        self._labels = {str(option): _label(option) for option in options or []}
        self.options, self.factor = list(self._labels.values()), factor
        self.question = question
        if not options:
            self.question += f" (Within a factor of {factor:g} is near enough.)"
        self._person, self.cell = _who_asks()
        earlier = _asked.get(self.question)
        self.surprised = None  # True or False once the choice was compared with the result
        self.seen_before = bool(earlier) and earlier.seen_before  # the result, before any choice
        self.status = widgets.HTML()
        self.control = Choice(question=self.question, options=self.options)
        if earlier:
            self._restore({"said": earlier.predicted, "surprised": earlier.surprised})
        elif self._person:
            self._restore(_load().get(self.question))
        self.control.observe(lambda _: self._on_choice(), names="value")
        if self.predicted is None:
            words = "choose" if options else "give"
        elif self.seen_before:
            words = "late"
        else:
            words = "fixed" if self.control.disabled else "noted"
        self._set_status(SAYS[words].format(**IN_JUPYTER))
        super().__init__([self.control, self.status])
        take_keys(self)

    @property
    def predicted(self):
        """The answer as text, or None if there is none, or it should be a number and is not."""
        if not self.options and _number(self.control.value) is None:
            return None
        return self.control.value

    def compare(self, value):
        """Show the result ``value`` next to the prediction.

        Parameters
        ----------
        value : str, int, float or Tensor of one element
            One of the options, a number that belongs to one of them, or, without options, the
            number that was asked for.

        Raises
        ------
        ValueError
            If the result does not belong to any option.
        """
        result = self._option(value) if self.options else f"{float(value):.3g}"
        info = {"question": self.question, "result": result}
        shown = result
        if self._is_only_near(value):
            shown, info["nearest"] = SAYS["nearest"].format(result=result), True
        if self.predicted is None:
            self.seen_before = True
            words = ""  # the cell shows its result already
        elif self.seen_before:
            words = SAYS["too late"]
        else:
            right, trouble = self._is_right(value), None
            if self.surprised is None:
                self.surprised = not right
                trouble = self._save()
            self.control.disabled = True
            self._set_status(trouble or SAYS["fixed"])
            words = SAYS["right" if right else "wrong"]
        text, page = in_words(words, predicted=self.predicted, result=shown)
        _show(text or f"The result is {shown}.", page, info)  # nbval compares the text

    def _option(self, value):
        """Return the option that a result belongs to. Among numbers, it is the nearest."""
        if str(value) in self._labels:
            return self._labels[str(value)]
        try:
            number = float(value)
            if isinstance(self._results, dict):
                belongs = (low <= number < high for low, high in self._results.values())
                return next(itertools.compress(self.options, belongs))
            return _label(min(self._results, key=lambda option: abs(option - number)))
        except (StopIteration, TypeError, ValueError):
            raise ValueError(f"the result {value} belongs to no option of {self.options}") from None

    def _is_only_near(self, value):
        """Return whether the options are numbers and none of them is the result."""
        if not self.options or isinstance(self._results, dict) or str(value) in self._labels:
            return False
        number = float(value)
        return not any(math.isclose(number, option, rel_tol=1e-6) for option in self._results)

    def _is_right(self, value):
        if self.options:
            return self.predicted == self._option(value)
        predicted, result = _number(self.predicted), float(value)
        same_sign = predicted * result > 0
        times_off = max(predicted / result, result / predicted) if same_sign else float("inf")
        return predicted == result or times_off <= self.factor

    def _on_choice(self):
        if self.seen_before:
            self._set_status(SAYS["late"])
        elif self.predicted is None:
            self._set_status(SAYS["no number"])
        else:
            self._set_status(self._save() or SAYS["noted"].format(**IN_JUPYTER))

    def _save(self):
        """Save the choice. If this fails, return why, in words."""
        entry = {"said": self.predicted, "surprised": self.surprised}
        if self._person and json_store.working_directory().name == "notebooks":
            try:
                json_store.update(FILE, lambda entries: entries | {self.question: entry})
            except OSError as error:
                return f"Your prediction could not be saved: {error}"

    def _restore(self, entry):
        """Restore the earlier choice, if it is still an answer to this question."""
        predicted = entry.get("said") if isinstance(entry, dict) else None
        if not isinstance(predicted, str):
            return
        predicted = self._labels.get(predicted, predicted)  # 100000 was saved once
        if predicted in self.options if self.options else _number(predicted) is not None:
            self.control.value = predicted
            if isinstance(entry.get("surprised"), bool):
                self.surprised = entry["surprised"]
                self.control.disabled = True

    def _set_status(self, words):
        self.status.value = f'<span role="status">{html.escape(words)}</span>'

    def _repr_mimebundle_(self, **kwargs):
        # Store the question next to the live widget, for viewers that run nothing.
        bundle = super()._repr_mimebundle_(**kwargs)
        lines = [f"Predict first: {self.question}"]
        bundle["text/plain"] = "\n".join(lines + [f"  ○ {option}" for option in self.options])
        info = {"question": self.question, "options": self.options, "factor": self.factor}
        return bundle, {"prediction": info}


def predict_first(question, options=None, factor=2):
    """Ask a question whose answer a later cell computes and passes to ``compare``.

    Parameters
    ----------
    question : str
        Plain text, different from every other question in the course.
    options : list of str, list of numbers, or dict of str to (low, high), optional
        The answers to choose from. If not given, the question asks for a number. With a dict, a
        result belongs to the option with low <= result < high.
    factor : float
        A number counts as right if it is at most this many times too large or too small.

    Returns
    -------
    Prediction
        Pass the result to its method ``compare(value)``.
    """
    prediction = Prediction(question, options, factor)
    _asked[prediction.question] = prediction
    display(prediction)
    return prediction


def surprises():
    """Show how many results were predicted, and link to the questions answered wrongly."""
    compared = [question for question in _asked.values() if question.surprised is not None]
    wrong = [question for question in compared if question.surprised]
    words = SAYS["count"].format(predicted=len(compared), asked=len(_asked), wrong=len(wrong))
    items = []
    for question in wrong:
        item = html.escape(question.question)
        if question.cell:  # else there is nothing to link to, as on Colab
            item = f'<a href="#cell-id={question.cell}">{item}</a>'
        items.append(f"<li>{item}</li>")
    page = f"<p>{words}</p>" + (f"<ul>{''.join(items)}</ul>" if items else "")
    _show(words, page, {"count": len(_asked)})


def in_words(words, **values):
    """Return a sentence with its values filled in, as text and as HTML that emphasizes them."""
    marked = {name: f"<em>{html.escape(str(value))}</em>" for name, value in values.items()}
    return words.format(**values), words.format(**marked)


def _show(text, page, info):
    display({"text/plain": text, "text/html": page}, raw=True, metadata={"prediction": info})


def _who_asks():
    """Return whether a person runs the current cell, and the cell's id if it is known.

    A front end lets a cell ask for input. A tool that runs a notebook without a person does not,
    and what it stores or compares must not contain anyone's earlier choices.
    """
    request = getattr(get_ipython(), "get_parent", dict)()
    person = request.get("content", {}).get("allow_stdin", False)
    return person, request.get("metadata", {}).get("cellId")


def _load():
    try:
        return json_store.load(FILE)
    except OSError:
        return {}


def _label(option):
    """Return an option as text. A whole number gets separators, as in 100,000."""
    is_long = isinstance(option, (int, float)) and option >= 1000 and option % 1 == 0
    return f"{option:,.0f}" if is_long else str(option)


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
