"""What a right answer to an exercise does in lesson 10's language model, if its file is here."""

import functools

from course_utils.checks.judge import check
from course_utils.language_model import load
from course_utils.model_file import ModelMissing

_loaded = functools.cache(load)  # once in a notebook


def in_the_model(answer, use):
    """Let an answer to an exercise do something in the language model, once it is correct.

    Where it is not correct yet, or the model's file is not here, a sentence says so instead.

    Parameters
    ----------
    answer : function
        The learner's, called as its exercise is.
    use : callable
        ``use(model, tokenizer)`` calls the answer, and prints what comes of it.
    """
    if check(answer).status != "correct":
        print(f"When {answer.__name__} is correct, this cell puts it into the model.")
        return
    try:
        model, tokenizer = _loaded()
    except ModelMissing as missing:
        print(missing)
        return
    use(model, tokenizer)
