"""What the notebooks say: numbers, claims, references and thresholds are held to what is shown."""

import ast
import difflib
import re

import nbformat
import pytest

from course_utils.checks.engine import EXERCISES as REGISTERED
from stored import EXERCISES, LESSONS, ROOT, SOLUTIONS, code, ignored, kept, prose, shown, stated

NUMBERS = {exercise.number: name for name, exercise in REGISTERED.items()}
LESSON = {path.stem[:2]: nbformat.read(path, as_version=4) for path in LESSONS}


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_a_notebook_states_changes_only_on_purpose(path):
    before = kept(path).read_text(encoding="utf-8").splitlines()
    now = stated(nbformat.read(path, as_version=4))
    difference = "\n".join(difflib.unified_diff(before, now, "kept", "now", n=0, lineterm=""))
    assert not difference, (
        f"{path.name} states something else than when it was last read through; the lines begin "
        "with the cells' ids, a checksum after => stands for outputs. If the new version is right, "
        f"and the prose beside it still is, run: python tests/stored.py\n{difference}"
    )


# Numbers

# What stands in no output and no line of code: minutes, years of papers, and these.
SAID_ONLY = {
    "00": {30, 2021, 2023},
    "01": {90, 2014, 2017},  # an angle
    "02": {2017, 576, 2020, 2022, 2023, 0.06},  # 512 + 64; 1/16
    "03": {45, 88, 1e-7, 2000, 2018},  # e^88 is the last; 1000 and -1000 lie 2000 apart
    "04": {45},
    "05": {45, 2019, 2023, 2024},
    "06": {60, 4.8, 206, 2022, 2024},  # a data sheet; 989 / 4.8
    "07": {45, 2021, 2022},
    "08": {45, 2019, 2020},
}


SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def numbers(text):
    """Return the values of all numbers: 80,000 as 80_000, and 3·10⁻⁷ as 3e-7."""
    power = r"(?<![\d.])(?:([\d.]+)·)?10([⁻⁰¹²³⁴-⁹]+)"
    text = re.sub(power, lambda m: f"{m[1] or 1}e{m[2].translate(SUPERSCRIPTS)}", text)
    found = re.findall(r"\d+(?:[,_]\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?", text)
    return {float(number.replace(",", "").replace("_", "")) for number in found}


@pytest.mark.parametrize("number", LESSON)
def test_a_number_in_the_prose_stands_in_an_output_or_in_code(number):
    notebook = LESSON[number]
    known = numbers("\n".join(cell.source + "\n" + shown(cell) for cell in code(notebook)))
    referred = (
        r"\$[^$]*\$|\]\([^)]*\)|(?i:lessons?|exercises?) \d\d?(?:\.\d+)?(?: and \d\d)?|^# \d\d"
    )
    said = {}
    for cell in prose(notebook):
        for value in numbers(re.sub(referred, "", cell.source, flags=re.S | re.M)):
            said.setdefault(value, cell.source)
    unknown = {f"{value:g}": said[value] for value in said.keys() - known - SAID_ONLY[number]}
    assert not unknown, f"shown nowhere: mend them, or add them to SAID_ONLY: {unknown}"


# References


@pytest.mark.parametrize(
    "path", [*LESSONS, *SOLUTIONS, ROOT / "README.md"], ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_references_lead_to_what_they_name(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in nbformat.reads(text, as_version=4).cells)
    for number in re.findall(r"(?i:exercise) (\d+\.\d+)", text):
        assert number in NUMBERS, f"there is no exercise {number}"
    for number in re.findall(r"(?i:lessons?|exercises) (\d\d)\b", text):
        assert number in LESSON, f"there is no lesson {number}"
    for words, target in re.findall(r"\[([^]]*)\]\((?:[\w./]*/)?(\d\d)_\w+\.ipynb\)", text):
        for number in re.findall(r"\b\d\d\b", words):
            assert number == target, f"[{words}] leads to {target}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_bears_its_number_and_leads_to_its_exercises_and_the_next_lesson(path):
    number, cells = path.stem[:2], prose(LESSON[path.stem[:2]])
    assert cells[0].source.startswith(f"# {number} · ")
    links = re.findall(r"\]\(([^)]*\.ipynb)\)", "\n".join(cell.source for cell in cells))
    exercises = [f"../exercises/{path.name}"] if number != "00" else []
    assert links == exercises + [
        each.name for each in LESSONS if int(each.stem[:2]) == int(number) + 1
    ]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_exercises_are_asked_in_order_under_their_registered_numbers(path):
    lesson = str(int(path.stem[:2]))
    asked, number = {}, None
    for cell in nbformat.read(path, as_version=4).cells:
        if heading := re.match(r"## (\d+\.\d+) ", cell.source):
            number = heading[1]
        if answered := re.match(r"check\((\w+)\)", cell.source):
            assert number not in asked, f"{number} is checked twice"
            asked[number] = answered[1]
            assert shown(cell) == f"✅ {number} {answered[1]}: correct\n"
    registered = {
        number: name for number, name in NUMBERS.items() if number.split(".")[0] == lesson
    }
    assert list(asked.items()) == list(registered.items())
    title = nbformat.read(path, as_version=4).cells[0].source
    assert title.startswith(f"# Exercises {path.stem[:2]} · ")
    assert f"[lesson {path.stem[:2]}](../notebooks/{path.name})" in title


# Claims: what is said, the verdict, and the compared output that decides it

CLAIMS = {
    "00": [
        ("RNNs cannot be parallelised", "Holds when", "equal: True"),
        ("Attention has no memory bottleneck", "False", "16,384          64         2,097,152"),
    ],
    "01": [
        ("Each output is a probability of words", "False", "row sums [0.08, 0.08]"),
        ("Cosine and Euclidean distance rank alike", "Holds when", "71 of 71 at length 1"),
        ("Self-attention knows the order of the words", "False", "shuffled the same way: True"),
    ],
    "02": [
        ("Variance and standard deviation of q·k grow linearly with d_k", "False",
         "d_k × 64: variance × 63, standard deviation × 8"),
        ("Without scaling, the gradients vanish", "Holds when",
         "median falls more than 1000 times: True\nmean falls more than 10 times:     False"),
        ("Attention without √d_k does not learn", "Holds when", "unscaled ahead with 5 of 5 seeds"),
    ],
    "03": [
        ("Subtracting the maximum makes softmax approximate", "False",
         "ours: every weight is right to 3e-7: True"),
        ("Softmax never gives exactly zero", "Holds", "float16   weight 0 at a gap of 20"),
        ("−1e9 is as good as −inf", "Holds when", "by -1e9, the mean of all v: True"),
        ("PyTorch's own functions take care of all this", "Holds when", "torch.logsumexp: inf"),
    ],
    "04": [
        ("A window of w means that the model sees w tokens", "Holds for",
         "1 layers: the last output hears 3 tokens\n2 layers: the last output hears 5"),
        ("A causal model needs no padding mask", "Holds when",
         "at the end: outputs changed 0 of 5\npadding at the start: outputs changed 5 of 5"),
        ("What is masked cannot do harm", "Holds when",
         "value =   nan: attention False, SDPA False"),
    ],
    "05": [
        ("More heads means more parameters", "False", "H = 4, 11640 parameters"),
        ("reshape and view do the same", "Holds when",
         "reshape after transpose True : the original changed False"),
        ("Each head specialises, and removing one breaks the model", "Holds when",
         "H = 4: answers served [1, 1, 1, 1], least cost 0.2"),
        ("GQA makes attention cheaper to compute", "False",
         " 1 key heads: projections 0.27, attention 4.29 GFLOP"),
    ],
    "06": [
        ("FlashAttention is approximate.", "False", "less than twice as far as naive: True"),
        ("It is faster because it saves arithmetic.", "False",
         "tiled does 1.17 times the matrix arithmetic"),
        ("Memory traffic becomes O(N).", "False", "to 16384 tokens: 3.9 times the traffic"),
        ("Tiling alone saves training memory.", "False",
         "naive 98 MiB; autograd through the tiles 84 MiB"),
        ("SDPA always uses FlashAttention.", "False", "learned bias           MATH"),
    ],
    "07": [
        ("The head's picture shows how the model gets its answer", "False",
         "weight on the right cell, < 0.5:  True"),
        ("A perfect score shows that the rule was learned", "False",
         "tested on period 12: above 95% False, below 10% True"),
        ("Induction takes two layers", "Holds when", "one layer, below 25%:        True"),
        ("Models have *an* induction head, and it is this one", "False",
         "an induction head in 3 of 3"),
    ],
    "08": [
        ("It looks at dog, so this head resolves the pronoun", "False", "such a head: 15 of 20"),
        ("Attention weights tell why", "Holds when", "attention  in over 40% of reviews: False"),
        ("A model with attention needs its attention", "Holds when",
         "even weights    right in over 95%: False; under 75%: True"),
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


def compared(source):
    """Return the constants some code compares with, as (is the other side larger?, value)."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for a, operation, b in zip(sides, node.ops, sides[1:], strict=False):
                for side, larger in ((b, ast.Gt | ast.GtE), (a, ast.Lt | ast.LtE)):
                    constants = (each for each in ast.walk(side) if isinstance(each, ast.Constant))
                    found |= {(isinstance(operation, larger), each.value) for each in constants}
    return found


@pytest.mark.parametrize("number", LESSON)
def test_what_a_cell_says_it_compares_with_is_what_it_compares_with(number):
    for cell in code(LESSON[number]):
        texts = [
            node.value
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for word, value, unit in SAYS.findall("\n".join(texts)):
            limit = float(value) / (100 if unit in ("%", " points") else 1)
            larger = word in ("above", "over", "more than", ">")
            assert (larger, limit) in compared(cell.source), f"{word} {value}{unit}: {cell.source}"


@pytest.mark.parametrize(
    "path", EXERCISES + LESSONS + SOLUTIONS, ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_prose_holds_no_markup_but_keys(path):
    for cell in prose(nbformat.read(path, as_version=4)):
        assert set(re.findall(r"<(\w+)", cell.source)) <= {"kbd"}, cell.source
