"""What the notebooks say: numbers are held to what is shown, references to what there is."""

import difflib
import re

import pytest

from course_utils.checks.exercise import EXERCISES as REGISTERED
from stored_notebooks import (
    EXERCISES,
    LESSONS,
    ROOT,
    SOLUTIONS,
    kept,
    last_problem,
    number_of,
    prose,
    read,
    shown,
    stated,
)

IN_ORDER = sorted(REGISTERED.values(), key=lambda exercise: exercise.place)
NUMBERS = {exercise.number: exercise.name for exercise in IN_ORDER}
LESSON = {number_of(path): read(path) for path in LESSONS}


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_a_notebook_states_changes_only_on_purpose(path):
    before = kept(path).read_text(encoding="utf-8").splitlines()
    now = stated(read(path))
    difference = "\n".join(difflib.unified_diff(before, now, "kept", "now", n=0, lineterm=""))
    assert not difference, (
        f"{path.name} states something else than when it was last read through; the lines begin "
        "with the cells' ids, a checksum after => stands for outputs. If the new version is right, "
        f"and the prose beside it still is, run: python tests/stored.py\n{difference}"
    )


# Numbers

# Numbers that stand in no output and no line of code, or not in that of their section
SAID_ONLY = {
    # lessons 07 and 09; 32 - 1 steps; minutes; papers
    "00": {7, 9, 31, 40, 2013, 2014, 2015, 2021, 2023},
    "01": {55, 90, 2014, 2017},  # minutes; an angle
    "02": {2010, 2017, 576, 2020, 2022, 2023, 0.06},  # papers; 512 + 64; 1/16
    "03": {60, 88, 1e-7, 2000, 2018, 2021, 2022, 0.001},  # e^88; 1000 and -1000 lie 2000 apart
    "04": {60, 1.5},
    "05": {60, 3.2, 2017, 2019, 2023, 2024},  # section 3.2.2
    # minutes; a data sheet; 989 / 4.8; compute capabilities and a GPU; a paper
    "06": {60, 989, 4.8, 206, 1.5, 7.5, 8.0, 2020, 2022},
    # minutes; papers and what they report; compute capabilities; 38%, 34% and 37% are read off a
    # picture; counted for 64 heads; a B200
    "06b": {50, 3.9, 740, 75, 1613, 71, 38, 34, 37, 1.02, 512, 7.5, 8.0, 8.9, 9.0, 2.5, 3.2,
            2022, 2023, 2024, 2026},
    # minutes; benchmarks/induction_seeds.py; papers
    "07": {60, 15, 19, 37, 79, 82, 2000, 2021, 2022},
    # 0.25: √ is a half; 0.14, 0.52, 0.26: τ over 15 seeds
    "08": {22, 65, 2019, 2020, 2023, 0.01, 0.11, 0.14, 0.25, 0.26, 0.34, 0.52},
    # minutes; 2π / 0.5; sections and papers; benchmarks/induction_seeds.py; five seeds each: 2000
    # steps, and a table begun at zero
    "09": {60, 13, 3.5, 3.2, 2.1, 2017, 2020, 2021, 2022, 2023, 35, 37, 66, 72, 79, 82, 88, 92,
           1200, 4400, 400, 2000, 90, 70, 85, 30, 40},
    # minutes; papers; the download; bits of a weight as published and here; lesson 09's base
    "10": {45, 2018, 2019, 2020, 2025, 93, 16, 5, 10_000},
    "10b": {60, 2023, 1.4, 3.2, 11.1, 16.0, 16.1, 17.8, 18.6, 23.4},  # minutes; a paper; heads
    # minutes; papers, products and their figures; what the explorer says when it is found
    "11": {60, 2019, 2023, 2024, 900, 40},
}  # fmt: skip

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def numbers(text):
    """Return the values of all numbers: 80,000 as 80_000, and 3·10⁻⁷ as 3e-7."""
    power = r"(?<![\d.])(?:([\d.]+)·)?10([⁻⁰¹²³⁴-⁹]+)"
    text = re.sub(power, lambda m: f"{m[1] or 1}e{m[2].translate(SUPERSCRIPTS)}", text)
    found = re.findall(r"\d+(?:[,_]\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?", text)
    return {float(number.replace(",", "").replace("_", "")) for number in found}


def sections(notebook):
    """Return the notebook's cells in lists, each of which begins at a heading."""
    found = [[]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and re.search("^## ", cell.source, re.M):
            found.append([])
        found[-1].append(cell)
    return found


def shown_numbers(cells):
    texts = [cell.source + "\n" + shown(cell) for cell in cells if cell.cell_type == "code"]
    return numbers("\n".join(texts))


@pytest.mark.parametrize("number", LESSON)
def test_a_number_in_the_prose_stands_in_an_output_or_in_code(number):
    formula, link, title = r"\$[^$]*\$", r"\]\([^)]*\)", r"^# \d\db?"
    reference = r"(?i:lessons?|exercises?) \d\d?b?(?:\.\d+)?(?: and \d\db?)?"
    unsaid = re.compile("|".join((formula, link, title, reference)), re.S | re.M)
    anywhere = SAID_ONLY[number] | shown_numbers(LESSON[number].cells)
    for section in sections(LESSON[number]):
        here = SAID_ONLY[number] | shown_numbers(section)
        for cell in section:
            if cell.cell_type == "markdown":
                for value in numbers(unsaid.sub("", cell.source)):
                    # Small whole numbers are everywhere; one with decimals is read off nearby.
                    known = anywhere if value.is_integer() else here
                    assert value in known, (
                        f"{value:g} is shown nowhere: mend it or add it to SAID_ONLY\n{cell.source}"
                    )


SUM = re.compile(r"(?<![\w.$])(\d[\d.]*(?: ?[·/+−] ?\d[\d.]*)+) = (\d+(?:\.\d+)?)")


def test_a_sum_in_the_prose_comes_out():
    cells = [cell for path in LESSONS + SOLUTIONS for cell in prose(read(path))]
    sums = [found for cell in cells for found in SUM.findall(cell.source)]
    assert len(sums) > 3
    for sum_, result in sums:
        value = eval(sum_.translate(str.maketrans("·−", "*-")))  # of numbers and signs alone
        assert f"{value:.{len(result.partition('.')[2])}f}" == result, (sum_, result)


# References


@pytest.mark.parametrize(
    "path", [*LESSONS, *SOLUTIONS, ROOT / "README.md"], ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_references_lead_to_what_they_name(path):
    if path.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in read(path).cells)
    else:
        text = path.read_text(encoding="utf-8")
    for number in re.findall(r"(?i:exercise) (\d+b?\.\d+)", text):
        assert number in NUMBERS, f"there is no exercise {number}"
    for number in re.findall(r"(?i:lessons?|exercises) (\d\db?)\b", text):
        assert number in LESSON, f"there is no lesson {number}"
    for words, target in re.findall(r"\[([^]]*)\]\((?:[\w./]*/)?(\d\db?)_\w+\.ipynb\)", text):
        for number in re.findall(r"\b\d\db?\b", words):
            assert number == target, f"[{words}] leads to {target}"


def named(lesson, kind):
    """Return the file name of a lesson's exercises or solutions."""
    return lesson.name.replace("_", f"_{kind}_", 1)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_bears_its_number_and_leads_to_its_exercises_and_the_next_lesson(path):
    number, cells = number_of(path), prose(LESSON[number_of(path)])
    assert cells[0].source.startswith(f"# {number} · ")
    links = re.findall(r"\]\(([^)]*\.ipynb)\)", "\n".join(cell.source for cell in cells))
    before = [f"../exercises/{named(path, 'exercises')}"]
    if number == "00":
        before = [each.name for each in LESSONS]  # the map
    assert links == before + [each.name for each in LESSONS[LESSONS.index(path) + 1 :][:1]]


MAPS = {
    "lesson 00": "\n".join(cell.source for cell in prose(LESSON["00"])[:-1]),
    "README": (ROOT / "README.md").read_text(encoding="utf-8"),
}


@pytest.mark.parametrize("text", MAPS.values(), ids=MAPS)
def test_a_map_names_each_lesson_once_as_it_names_itself_and_what_it_needs(text):
    entries = re.findall(r"\[(\d\db?) · (.+?)\]\([\w/]*?\w+\.ipynb\)(.*)", text)
    assert [number for number, _, _ in entries] == list(LESSON)
    for number, question, after in entries:
        head = prose(LESSON[number])[0].source
        assert head.startswith(f"# {number} · {question}\n")
        needed = re.search(r"\*\*Needs:\*\* lessons? ([\db, and]+)", head)
        own = set(re.findall(r"\d\db?", needed[1])) if needed else set()
        if told := re.search(r"[Nn]eeds lessons? ([\db, and]+)", after):
            assert set(re.findall(r"\d\db?", told[1])) == own
        else:
            # taken in order: it stands on the one before it, of which 06b is only the other half
            before = [each for each in LESSON if each < number and each.isdigit()]
            assert number == "00" or before[-1] in own


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_exercises_are_asked_in_order_under_their_registered_numbers(path):
    solutions = read(path)
    asked, number, unsolved = {}, None, last_problem(solutions)
    for cell in solutions.cells:
        if heading := re.match(r"## (\d+b?\.\d+) ", cell.source):
            number = heading[1]
        if answered := re.match(r"check\((\w+)\)", cell.source):
            assert number not in asked, f"{number} is checked twice"
            asked[number] = answered[1]
            solved, empty = ("✅", "correct"), ("⏳", "not attempted yet")
            sign, verdict = empty if answered[1] == unsolved else solved
            assert shown(cell) == f"{sign} {number} {answered[1]}: {verdict}\n"
    registered = [(e.number, e.name) for e in IN_ORDER if e.lesson == number_of(path)]
    assert list(asked.items()) == registered
    title = solutions.cells[0].source
    assert title.startswith(f"# Exercises {number_of(path)} · ")
    lesson = path.name.replace("_solutions_", "_")
    assert f"[lesson {number_of(path)}](../notebooks/{lesson})" in title


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_only_the_last_problem_is_unsolved_and_each_exercise_says_how_hard_and_long_it_is(path):
    solutions = read(path)
    headings = [cell.source for cell in solutions.cells if re.match(r"## \d+b?\.\d", cell.source)]
    marks = [re.match(r".*\n\n\*(Easy|Medium|Hard), (\d+) minutes\.\*\n\n", h) for h in headings]
    assert all(marks), [h for h, mark in zip(headings, marks, strict=True) if not mark]
    names = [e.name for e in IN_ORDER if e.lesson == number_of(path)]
    assert names[-1] == last_problem(solutions)
    assert re.match(r"## \d+b?\.\d+ Last problem: ", headings[-1])
    assert marks[-1][1] == "Hard" and 20 <= int(marks[-1][2]) <= 40


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_where_gradients_are_compared_an_exercise_says_so(path):
    text = "\n".join(cell.source for cell in read(path).cells)
    parts = re.split(r"^## (\d+b?\.\d+) ", text, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    said = [number for number, part in pairs if re.search("[Gg]radients? ", part)]
    for others in re.findall(r"Gradients must get through, here and in (.+)\.", text):
        said += re.findall(r"\d\.\d", others)
    asked = [e.number for e in IN_ORDER if e.differentiable and e.lesson == number_of(path)]
    assert set(asked) <= set(said)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_exercises_begin_with_what_is_solved_and_end_with_where_to_go(path):
    cells = read(path).cells
    (lesson,) = (each for each in LESSONS if number_of(each) == number_of(path))
    asked = [place for place, cell in enumerate(cells) if cell.source.startswith("progress(")]
    assert asked == [2, len(cells) - 2]
    name = number_of(path).lstrip("0")
    name = name if name.isdigit() else f'"{name}"'
    assert {cells[place].source for place in asked} == {f"progress({name})"}
    following = LESSONS[LESSONS.index(lesson) + 1 :][:1]
    assert re.findall(r"\]\(\.\./(\w+/\w+\.ipynb)\)", cells[-1].source) == [
        f"notebooks/{lesson.name}",
        f"solutions/{path.name}",
        *(f"notebooks/{each.name}" for each in following),
    ]


@pytest.mark.parametrize(
    "path", EXERCISES + LESSONS + SOLUTIONS, ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_prose_holds_no_markup_but_keys(path):
    for cell in prose(read(path)):
        assert set(re.findall(r"<(\w+)", cell.source)) <= {"kbd"}, cell.source
