"""How many cases the dear tests take: some, or with EVERY_CASE=1 all, as `make test-everywhere`."""

import os

EVERY_CASE = bool(os.environ.get("EVERY_CASE"))


def some(cases, number):
    """Return so many of the cases, evenly spread, or all of them."""
    cases = list(cases)
    return cases if EVERY_CASE else cases[:: -(-len(cases) // number)]
