"""Try a correct answer to an exercise in lesson 10's language model, if the file is here."""

import functools

from course_utils.checks.judge import check
from course_utils.language_model import load
from course_utils.model_file import ModelMissing

_loaded = functools.cache(load)  # loaded once per notebook


def in_the_model(answer, use):
    """Use an answer to an exercise in the language model, once it is correct.

    If it is not correct yet, or the model's file is missing, print a message instead.

    Parameters
    ----------
    answer : function
        The learner's answer, named as its exercise.
    use : callable
        ``use(model, tokenizer)`` calls the answer and prints the result.
    """
    if check(answer).status != "correct":
        print(f"Once {answer.__name__} is correct, this cell tries it in the real model.")
        return
    try:
        model, tokenizer = _loaded()
    except ModelMissing as missing:
        print(missing)
        return
    use(model, tokenizer)
