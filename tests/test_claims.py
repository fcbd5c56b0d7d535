"""Verdicts and thresholds: what a lesson calls false, equal or above 95% is what it measured."""

import ast
import re
from decimal import Decimal

import pytest

from stored import LESSONS, SOLUTIONS, code, ignored, number_of, prose, read, shown

LESSON = {number_of(path): read(path) for path in LESSONS}

# Claims: what is said, the verdict, and the compared output that decides it

CLAIMS = {
    "00": [
        ("RNNs cannot be parallelised", "Holds when", "equal: True"),
        ("Attention has no memory bottleneck", "False", "16,384          64         2,097,152"),
    ],
    "01": [
        ("Each output is a probability of words", "False", "row sums [0.08, 0.08]"),
        ("Cosine and Euclidean distance rank alike", "Holds when", "71 of 71, keys at length 1"),
        ("Self-attention knows the order of the words", "False", "it shuffles them alike: True"),
    ],
    "02": [
        ("Variance and standard deviation of q·k grow linearly with d_k", "False",
         "d_k × 64: variance × 63, standard deviation × 8"),
        ("Without scaling, the gradients vanish", "Holds when",
         "the median falls about 20,000 times, the mean 6 times"),
        ("Attention without √d_k does not learn", "Holds when",
         "d_k =   8, 100 steps: mean scaled 0.6, unscaled 0.7; unscaled ahead with 5 of 5 seeds"),
    ],
    "03": [
        ("Subtracting the maximum makes softmax approximate", "False",
         "ours: every weight is right to 7 decimal places"),
        ("Softmax never gives exactly zero", "Holds", "float16   weight 0 from a gap of 18 on"),
        ("PyTorch's own functions take care of all this", "Holds when", "torch.logsumexp: inf"),
    ],
    "04": [
        ("A window of w means that the model sees w tokens", "Holds for",
         "1 layers: the last output hears 3 tokens\n2 layers: the last output hears 5"),
        ("A causal model needs no padding mask", "Holds when",
         "at the end: outputs changed 0 of 5\npadding at the start: outputs changed 5 of 5"),
        ("What is masked cannot do harm", "Holds when",
         "value =   nan:  attention: output gradient  SDPA: output gradient"),
    ],
    "05": [
        ("More heads means more parameters", "Holds when",
         "16 heads: d_model / H wide 16,384, each d_model wide 262,144"),
        ("Each head specialises, and removing one breaks the model", "Holds when",
         "H = 4: least cost in whole answers 0 0 0 0 0, error left 0 0 0 0 0"),
    ],
    "06": [
        ("FlashAttention is approximate.", "False", "less than twice as far as naive: True"),
        ("It is faster because it saves arithmetic.", "False",
         "tiled does 1.17 times the matrix arithmetic"),
        ("Memory traffic becomes O(N).", "False", "to 16384 tokens: 3.9 times the traffic"),
        ("Tiling alone saves training memory.", "False",
         "naive 100 MiB; autograd through the tiles 84 MiB"),
        ("SDPA always uses FlashAttention.", "False", "learned bias           MATH"),
    ],
    "06b": [
        ("A mask that forbids half of the pairs saves half of the work.", "Holds when",
         "random mask: empty blocks 0 of 256"),
        ("FlashAttention makes decoding fast, since it avoids the matrix.", "False",
         "group of  1: with the rows 1.02 times as many"),
        ("A larger batch lifts decoding off the memory limit.", "False",
         "64 texts at once: attention 4 FLOP/byte"),
    ],
    "07": [
        ("The head's picture shows how the model gets its answer", "False",
         "It came: clearly less than half"),
        ("A perfect score shows that the rule was learned", "False",
         "fixed period 95% to 100%, the last, on period 12 0% to 10%, "
         "the last, on period 20 0% to 10%"),
        ("Induction takes two layers", "Holds when", "one layer 10% to 25%"),
        ("Every training makes the same heads", "False",
         "an induction head in 5 of 5"),
    ],
    "08": [
        ("It looks at dog, so this head resolves the pronoun", "False", "such a head: 15 of 20"),
        ("Attention weights tell why", "Holds when",
         "mean τ over 0.25 behind none, recurrent, block; not behind the other"),
        ("A model with attention needs its attention", "Holds when",
         "even weights    right on average 0.6"),
    ],
    "09": [
        ("Sinusoids extrapolate", "False", "sinusoids at 64 places: each below 60%: True"),
        ("RoPE makes attention decay with distance", "Holds when",
         "q = k turned back by 20  largest at distance 20"),
        ("Without positions a transformer is a bag of words", "Holds when",
         "causal: stays with one layer True - with two False"),
        ("Rotary changes the length of q", "False", "largest relative change below 1e-6: True"),
    ],
    "10": [
        ("A lower loss means a better model", "Holds when",
         "in one pass: lower by more than 0.1 on 5 of 5 texts"),
        ("If the text reads well, the code is right", "False",
         "pairs of halves  ' Paris."),
        ("Greedy choosing finds the most probable text", "False",
         "The old man looked at: greedy ' the old man, and' 0.05%, better: 5"),
    ],
    "10b": [
        ("Attention goes where the information is", "False",
         "its share of all weight 0.49, of what is moved 0.22"),
        ("The model needs its first token", "Holds when",
         "all but the first: 2.4; all: 2.2"),
        ("A head that looks one token back feeds the induction heads", "False",
         "without (11, 1), which looks back 0.9: 18.6 scores 0.9"),
        ("This head resolves the pronoun", "False",
         "on the other ten: above 5.5: True, above 7.5: False"),
    ],
    "11": [
        ("Ring attention is approximate", "False", "ring        largest error below 1e-6: True"),
        ("Twice the devices, half the time", "Holds when", "2 ranks, in order: 75% of the time"),
        ("Tensor parallel needs no communication in attention", "False",
         "forward 36,864 bytes a rank, with the backward 73,728"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("number", LESSON)
def test_a_verdict_on_a_claim_is_what_the_outputs_say(number):
    text = "\n\n".join(cell.source for cell in prose(LESSON[number]))
    text = text[text.index("## Claims, checked") :]
    found = re.findall(
        r'^(?:### |\*\*)"([^"\n]+)".*?\*\*(False|True|Holds(?: \w+)?)\b', text, re.M | re.S
    )
    assert found == [(claim, verdict) for claim, verdict, _ in CLAIMS[number]], (
        "claims and verdicts of the lesson and of CLAIMS differ"
    )
    compared = "\n".join(shown(cell) for cell in code(LESSON[number]) if not ignored(cell))
    for claim, verdict, evidence in CLAIMS[number]:
        assert evidence in compared, (
            f"{claim!r} is called {verdict!r}, but its evidence has changed"
        )


# Thresholds

SAYS = re.compile(
    r"(above|over|more than|>|below|under|less than|<) (\d[\d.]*+(?:e-\d+)?+)(%| points| times)?+"
    r"(?! of \d| steps| lists| in float32)"
)


def constants(node):
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]


def compared(tree):
    """Return the constants some code compares with, as (is the other side larger?, value)."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for a, operation, b in zip(sides, node.ops, sides[1:], strict=False):
                for side, larger in ((b, ast.Gt | ast.GtE), (a, ast.Lt | ast.LtE)):
                    found += [(isinstance(operation, larger), value) for value in constants(side)]
    return found


@pytest.mark.parametrize("number", LESSON)
def test_what_a_cell_says_it_compares_with_is_what_it_compares_with(number):
    for cell in code(LESSON[number]):
        tree = ast.parse(cell.source)
        texts = "\n".join(value for value in constants(tree) if isinstance(value, str))
        left = compared(tree)
        for word, value, unit in SAYS.findall(texts):
            limit = float(value) / (100 if unit in ("%", " points") else 1)
            larger = word in ("above", "over", "more than", ">")
            assert (larger, limit) in left, f"{word} {value}{unit}: {cell.source}"
            left.remove((larger, limit))  # said twice, compared twice


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_is_called_equal_is_close(path):
    for cell in code(read(path)):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.keyword) and node.arg in ("atol", "rtol"):
                assert node.value.value <= 1e-5 or "weights, right, atol=0.01" in cell.source


# Times: no test can repeat them, but what is said of them is read off the stored picture


def rounded_from(number):
    """Return the least and the largest value that are written like this."""
    value = Decimal(number.replace(",", ""))
    half = Decimal((0, (5,), value.as_tuple().exponent - 1))  # of a unit of the last digit
    return value - half, value + half


@pytest.mark.parametrize("number", ["00", "01"])
def test_a_stored_ratio_of_times_is_that_of_the_picture_beside_it(number):
    text = "\n".join(shown(cell) for cell in code(LESSON[number]) if ignored(cell))
    first, last = re.search(r"goes from (\d+) to (\d+): ", text).groups()
    times = {}
    for name, *ends in re.findall(r"(\w+) from ([-\d.e+]+) to ([-\d.e+]+)", text):
        times[name] = dict(zip((first, last), map(rounded_from, ends), strict=True))
    said = re.findall(r"(\d+)(?: tokens)?: (\w+) takes +([\d,.]+)× the time of (\w+)", text)
    told = [(at, *rest) for at, *rest in said if at in (first, last)]
    assert len(told) == 2
    for at, slow, ratio, fast in told:
        (slow_least, slow_most), (fast_least, fast_most) = times[slow][at], times[fast][at]
        least, most = rounded_from(ratio)
        assert least <= slow_most / fast_least and slow_least / fast_most <= most
