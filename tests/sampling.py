"""How many cases the slow tests run: a sample or, with EVERY_CASE=1, all."""

import os

EVERY_CASE = bool(os.environ.get("EVERY_CASE"))


def some(cases, number):
    """Return a sample of the cases, evenly spread, or all of them."""
    cases = list(cases)
    return cases if EVERY_CASE else cases[:: -(-len(cases) // number)]
