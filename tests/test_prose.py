"""What the notebooks say: references lead to what exists, formulas render, markup is plain."""

import re

import pytest
from latex2mathml.converter import convert

from course_utils.checks.exercise import EXERCISES as REGISTERED
from stored_notebooks import (
    EXERCISES,
    LESSONS,
    ROOT,
    SOLUTIONS,
    WITH_EXERCISES,
    name_of,
    number_of,
    prose,
    read,
)

NUMBERS = {exercise.number for exercise in REGISTERED.values()}
LESSON = {number_of(path): path for path in LESSONS}
FIRST_SIX = {"00", "01", "02", "03", "04", "05"}  # which README asks everyone to do first
PAGES = [ROOT / name for name in ["README.md", "LEARNING.md", "TEACHING.md", "CONTRIBUTING.md"]]


def text_of(path):
    if path.suffix == ".md":
        return re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
    return "\n\n".join(cell.source for cell in prose(read(path)))


each_page = pytest.mark.parametrize("path", LESSONS + SOLUTIONS + EXERCISES + PAGES, ids=name_of)


@each_page
def test_references_and_links_lead_to_what_they_name(path):
    text = text_of(path)
    for number in re.findall(r"(?i:exercise) (\d+b?\.\d+)", text):
        assert number in NUMBERS, f"{name_of(path)}: there is no exercise {number}"
    for number in re.findall(r"(?i:lessons?|exercises) (\d\db?)\b", text):
        assert number in LESSON, f"{name_of(path)}: there is no lesson {number}"
    for words, target in re.findall(r"\[([^][\n]*)\]\((?!https?:|#)([^)#]+)", text):
        assert (path.parent / target).exists(), (
            f"{name_of(path)}: there is no file {target}; make exercises writes exercises/"
        )
        if target.endswith(".ipynb"):
            (number,) = re.findall(r"(\d\db?)_", target)
            named = set(re.findall(r"\b\d\db?\b", words))
            assert named <= {number}, f"{name_of(path)}: [{words}] leads to {target}"
    torn = [line for line in text.splitlines() if line.count("](") > line.count("[")]
    assert not torn, f"{name_of(path)}: a link without its [: {torn}"


@each_page
def test_formulas_render_and_prose_holds_no_raw_markup(path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(path), flags=re.S)
    tags = set(re.findall(r"<(\w+)", text))
    tags -= {"kbd", "details", "summary"}  # known to all viewers
    assert not tags, f"{name_of(path)} holds HTML, which some viewers show as it is: {tags}"
    for display, inline in re.findall(r"\$\$(.+?)\$\$|(?<!\\)\$([^$\n]+)\$", text, re.S):
        formula = display or inline
        braces = re.sub(r"\\[{}]", "", formula)
        assert braces.count("{") == braces.count("}"), f"{name_of(path)}: braces in {formula}"
        unknown = re.findall(r"\\\w+", convert(formula))
        assert not unknown, f"{name_of(path)}: {unknown} in {formula} is not drawn"
    assert text.count("$") % 2 == 0, f"{name_of(path)}: a formula has only one of its two $"


# The way through the course


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=name_of)
def test_a_notebook_leads_to_its_other_half_and_to_the_next_lesson(path):
    lesson = LESSON[number_of(path)]
    halves = [
        f"../{folder}/{lesson.name.replace('_', f'_{folder}_', 1)}"
        for folder in ["exercises", "solutions"]
    ]
    links = re.findall(r"\]\(([^)]*\.ipynb)\)", text_of(path))
    after = [other for other in WITH_EXERCISES if number_of(other) > number_of(path)]
    following = [other.name for other in after[:1] if number_of(path) != "00b"]  # leads to any
    if path in LESSONS:
        expected = halves[: path in WITH_EXERCISES] + following
    else:
        expected = [f"../notebooks/{name}" for name in [lesson.name, *following]] + halves[1:]
        assert f"# Exercises {number_of(path)} · " in text_of(path)
    missing = [link for link in expected if link not in links]
    assert not missing, f"{name_of(path)}: add links to {missing}"


@pytest.mark.parametrize("path", [LESSONS[0], ROOT / "README.md"], ids=name_of)
def test_a_map_names_each_lesson_once_as_it_names_itself_and_what_it_needs(path):
    entries = re.findall(r"\[(\d\db?) · (.+?)\]\([\w/]*?\w+\.ipynb\)(.*)", text_of(path))
    entries = entries[: len(LESSON)]  # what follows in lesson 00 is the link to the next lesson
    numbers = [number for number, _, _ in entries]
    assert sorted(numbers) == list(LESSON), f"{name_of(path)}: its map lists the lessons {numbers}"
    for number, question, after in entries:
        head = prose(read(LESSON[number]))[0].source
        assert head.startswith(f"# {number} · {question}\n"), (
            f"{name_of(path)}: lesson {number} calls itself {head.splitlines()[0]!r}"
        )
        needs = re.search(r"\*\*Needs:\*\* lessons? ([\db, and]+)", head)
        listed = re.search(r"[Nn]eeds lessons? ([\db, and]+)", after)
        needs, listed = (
            set(re.findall(r"\d\db?", found[1] if found else "")) for found in (needs, listed)
        )
        if path.suffix == ".md":
            needs -= FIRST_SIX  # README says once that all others need these
        elif not listed:
            continue  # the first six, which the lesson lists in order
        assert listed == needs, f"{name_of(path)}: lesson {number} needs lessons {sorted(needs)}"


def test_the_map_of_lesson_00_draws_each_lesson():
    text = "\n".join(cell.source for cell in prose(read(LESSONS[0])))
    drawing = "".join(re.findall(r"```.*?```", text, re.S))
    missing = LESSON.keys() - set(re.findall(r"\b\d\db?\b", drawing))
    assert not missing, f"{name_of(LESSONS[0])}: draw lessons {sorted(missing)} into the map"


@pytest.mark.parametrize("path", EXERCISES, ids=name_of)
def test_where_gradients_are_compared_an_exercise_says_so(path):
    text = "\n".join(cell.source for cell in read(path).cells)
    parts = re.split(r"^## (\d+b?\.\d+) ", text, flags=re.MULTILINE)
    named = set()
    for number, part in zip(parts[1::2], parts[2::2], strict=True):
        if re.search("[Gg]radients? ", part):
            named |= {number, *re.findall(r"\d\.\d", part)}
    compared = {
        exercise.number
        for exercise in REGISTERED.values()
        if exercise.differentiable and exercise.lesson == number_of(path)
    }
    assert compared <= named, (
        f"{name_of(path)}: say in solutions/ that gradients must flow back, in "
        f"{sorted(compared - named)}; then run: make exercises"
    )


@pytest.mark.parametrize("path", SOLUTIONS, ids=name_of)
def test_each_exercise_says_how_hard_it_is_and_how_long_it_takes(path):
    for heading in re.findall(r"^## \d+b?\.\d+ .*\n\n.*", text_of(path), re.M):
        assert re.search(r"\n\*(Easy|Medium|Hard), \d+ minutes\.\*$", heading), (
            f"{name_of(path)}: below the heading, write for example *Easy, 5 minutes.*: {heading}"
        )


@pytest.mark.parametrize("path", SOLUTIONS, ids=name_of)
def test_all_exercises_of_a_lesson_take_as_long_as_their_notebook_says(path):
    first, *others = prose(read(path))
    said = re.search(r"take about \d+ (hours?|minutes)( and \d+ minutes)?", first.source)
    if said is None:
        return  # it need not say so
    parts = re.findall(r"(\d+) (hour|minute)", said[0])
    minutes = sum(int(number) * {"hour": 60, "minute": 1}[unit] for number, unit in parts)
    times = re.findall(r"^\*\w+, (\d+) minutes\.\*$", "\n".join(c.source for c in others), re.M)
    total = sum(map(int, times))
    assert abs(minutes - total) < 10, (
        f"{name_of(path)}: its first cell says that the exercises {said[0]}. Their minutes add up "
        f"to {total}, which is {total // 60} hours and {total % 60} minutes: correct one of them"
    )
