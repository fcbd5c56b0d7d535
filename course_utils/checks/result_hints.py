"""Say what wrong results themselves show, where no known mistake fits.

Each sentence is true of all inputs that were compared, and says nothing about the answer's code.
"""

import numbers
from dataclasses import dataclass

import torch

from course_utils.checks.compare import (
    CAUSES_OF_SMALL_ERRORS,
    TOLERANCE,
    as_float,
    family,
    is_close,
    of_numpy,
    read,
)
from course_utils.checks.result_relations import relation
from course_utils.checks.where_right import differing_region, where_right


@dataclass
class Probe:
    """One input, with what an answer gave for it.

    Attributes
    ----------
    args : dict
        The arguments by their names.
    got : torch.Tensor or None
        The result in double precision; None if it cannot be compared entry by entry.
    target : torch.Tensor
        The right result in double precision, or of booleans.
    wrong : torch.Tensor
        Which entries are wrong; all if ``got`` is None.
    sizes : dict
        The sizes of the result's dimensions by their names, such as {"L": 4}.
    eps : float
        How coarse the numbers are.
    """

    args: dict
    got: torch.Tensor | None
    target: torch.Tensor
    wrong: torch.Tensor
    sizes: dict
    eps: float

    @property
    def right(self):
        return self.got is not None and not self.wrong.any()


def probe(names, args, got, target):
    """Return the `Probe` of a result and of the right one; ``names`` are those of dimensions."""
    right = torch.as_tensor(target).detach()
    tolerance = TOLERANCE.get(torch.float64 if isinstance(target, float) else right.dtype, 0)
    got = as_float(got) if isinstance(got, numbers.Real) else of_numpy(got)
    values, is_bool = read(got), right.dtype == torch.bool
    wrong = torch.ones(right.shape, dtype=torch.bool)
    if values is not None and values.shape == right.shape and _is_kind_of(got, target):
        wrong = ~is_close(values, right.double(), tolerance)
        dtypes = [right.dtype, got.dtype]
    else:
        values, dtypes = None, [right.dtype]
    eps = max([torch.finfo(each).eps for each in dtypes if each.is_floating_point], default=0)
    eps = max(eps, tolerance)
    sizes = dict(zip(reversed(names.split()), reversed(right.shape), strict=False))
    return Probe(args, values, right if is_bool else right.double(), wrong, sizes, eps)


def _is_kind_of(got, target):
    """Tell whether both hold truth values, or neither does, and so on; a number may be any."""
    if isinstance(target, torch.Tensor) and target.ndim:
        return family(got) == family(target)
    return not got.is_complex() and got.dtype != torch.bool


def hint(probes, subject):
    """Return sentences on what the results have in common, "" if nothing is sure."""
    bad = [probe for probe in probes if not probe.right]
    if not bad:  # wrong in another way, such as its type
        return ""
    comparable = all(probe.got is not None for probe in bad)
    if comparable and (found := relation(probes)):
        return f"{subject} is {found}"
    where = where_right(probes)
    sentences = [f"{subject} is {where}."] if where else []
    if comparable and len(bad) < len(probes) and (found := relation(bad)):
        subject = f"{subject[0].lower()}{subject[1:]}"
        inputs = f"For {len(bad)} of {len(probes)} inputs, {subject}"
        sentences.append(f"{'Where it is wrong, it' if where else inputs} is {found}")
    elif comparable and (small := _small_errors(bad, len(probes))):
        sentences.append(small)
    elif comparable and (region := differing_region(bad)):
        only = f"only entries {_without_rows(bad, region)} differ."
        is_item = subject.startswith("Item")
        sentences.append(f"In item{subject[4:]}, {only}" if is_item else only.capitalize())
    elif not where and len(bad) < len(probes) / 2:
        sentences.append(
            f"{subject} is right for {len(probes) - len(bad)} of {len(probes)} inputs."
        )
    return " ".join(sentences)


def _small_errors(bad, inputs):
    """Say that errors are small, if they are so on most inputs, as those of rounding are.

    If over half of the first result's entries are wrong, `compare.difference` says so.
    """
    near = sum(map(_near, bad))
    told = bad[0].target.numel() > 2 and bad[0].wrong.double().mean() > 0.5
    if told or near < 3 or near < len(bad) - 1 or len(bad) <= inputs / 2:
        return ""
    subject = "All errors are" if near == len(bad) else "Except for one input, all errors are"
    return f"{subject} below 1%, {CAUSES_OF_SMALL_ERRORS}."


def _near(probe):
    """Tell whether all errors are small."""
    right = probe.target.double()
    return bool((probe.got - right).abs().max() < 2**-7 * right.abs().max())


def _without_rows(probes, words):
    """Say "position" in place of "column" where results are lists of numbers."""
    lists = all(probe.target.ndim < 2 for probe in probes)
    return words.replace("in the", "at the").replace("column", "position") if lists else words
