"""Answers to the exercises, written apart from the checks: right ones and wrong ones."""

import importlib
import pkgutil

_LESSONS = [
    importlib.import_module(f"answers.{each.name}") for each in pkgutil.iter_modules(__path__)
]

RIGHT = [(name, f) for lesson in _LESSONS for name, all_f in lesson.RIGHT.items() for f in all_f]
WRONG = [each for lesson in _LESSONS for each in lesson.WRONG]
