"""The website, built as `make site` builds it, and read in a real browser: wide, narrow, dark."""

import functools
import http.server
import importlib
import inspect
import json
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import build
from course_utils.explorers import similarity_explorer
from course_utils.predictions import ON_A_PAGE, SAYS, Prediction
from stored_notebooks import EXERCISES, LESSONS, ROOT, SOLUTIONS, code, read
from tools.notebooks import VEIL

pytestmark = pytest.mark.slow  # the website is built first
OWN = "http://127.0.0.1", "data:", "blob:"  # where a page asks for its files
SIMILARITY = "notebooks/01_dot_product_similarity.html"
OF_EACH_KIND = [
    "index.html",
    "glossary.html",
    "teaching.html",
    "reference/course_utils.tiled.html",
    "search.html?q=mask",
    SIMILARITY,
    "exercises/01_exercises_dot_product_similarity.html",
    "solutions/01_solutions_dot_product_similarity.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a fork's website. Every warning is an error."""
    folder = tmp_path_factory.mktemp("website")
    command = [sys.executable, ROOT / "site" / "build.py", "--folder", folder]
    command += ["--repository", "You/fork"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0 and not run.stderr, run.stdout + run.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browse(chromium, address):
    """A function that opens a page of the website; what the page asked for is in ``.responses``."""
    contexts = []

    def open_page(path, width=1280, **settings):
        size = {"width": width, "height": 800}
        contexts.append(chromium.new_context(viewport=size, **settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.errors, page.responses = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on(
            "console", lambda told: page.errors.append(told.text) if told.type == "error" else 0
        )
        page.on("response", lambda response: page.responses.append(response))
        page.goto(f"{address}/{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()


def first_choice(page):
    """Return the form of a page's first question, its result, and an option that is wrong."""
    form, result = page.locator("#ask-0"), page.locator("#result-0")
    options = [each.input_value() for each in form.get_by_role("radio").all()]
    value = result.get_attribute("data-result")
    return form, result, next(each for each in options if each != value)


class Links(HTMLParser):
    """The ids of a page, its links, and what a browser fetches for it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag in ("link", "img", "script") and attributes.get("rel") != "canonical":
            self.fetched += filter(None, [attributes.get("href"), attributes.get("src")])


@pytest.fixture(scope="module")
def pages(site):
    """The pages of the website, by their path."""
    own = [path for path in sorted(site.rglob("*.html")) if site / "_static" not in path.parents]
    found = {path: Links(path) for path in own}
    assert len(found) > len(LESSONS + EXERCISES + SOLUTIONS)
    return found


def test_every_link_leads_somewhere(site, pages):
    assert (site / ".nojekyll").exists()  # else GitHub leaves out _static
    assert "causal-mask" in pages[site / "glossary.html"].ids  # as a link from elsewhere may say
    dead = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme:
                assert parts.scheme in ("https", "http"), link
            elif not target.is_file() or target.suffix == ".ipynb":
                dead.append((path.name, link))
            elif parts.fragment and target.suffix == ".html":
                if unquote(parts.fragment) not in pages[target].ids:
                    dead.append((path.name, link))
    assert not dead


def test_nothing_is_fetched_from_another_host(site, pages):
    for path, page in pages.items():
        assert not [link for link in page.fetched if "//" in link], path
    for style in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import )["']?(?:https?:)?//""", style.read_text()), style


def test_every_notebook_is_a_page_that_the_left_column_reaches(site, pages):
    reached = {unquote(urlsplit(link).path) for link in pages[site / "index.html"].links}
    for path in LESSONS:
        assert f"notebooks/{path.stem}.html" in reached
    for path in EXERCISES + SOLUTIONS:
        number = path.stem.split("_")[0]
        lesson = next(site.glob(f"notebooks/{number}_*.html"))
        assert f"../{path.parent.name}/{path.stem}.html" in pages[lesson].links


def test_each_page_of_a_forks_site_is_found_under_the_forks_address(site):
    address = "https://you.github.io/fork/"
    listed = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    assert len(listed) > len(LESSONS + EXERCISES + SOLUTIONS)
    seen = set()
    for url in listed:
        page = (site / url.removeprefix(address)).read_text(encoding="utf-8")
        title = re.search("<title>(.*?)</title>", page)[1]
        kinds = 'name="description', 'property="og:description'
        metas = [re.search(f'<meta [^>]*{kind}"[^>]*>', page)[0] for kind in kinds]
        description, shared = (re.search('content="(.*?)"', meta)[1] for meta in metas)
        picture = re.search('<meta property="og:image" content="(.*?)"', page)[1]
        assert (site / picture.removeprefix(address)).is_file()
        assert f'<link rel="canonical" href="{url}"' in page
        assert shared == description  # what a search and a shared link say
        assert not {title, description} & seen, f"{url} has the title or description of another"
        seen |= {title, description}


def rendered(site, path):
    return (site / path.relative_to(ROOT)).with_suffix(".html").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=lambda path: path.stem)
def test_a_page_folds_results_and_answers_asks_questions_and_shows_explorers(site, path):
    cells, page = code(read(path)), rendered(site, path)
    outputs = [[output for output in cell.outputs if output != VEIL] for cell in cells]
    hidden = [
        shown
        for cell, shown in zip(cells, outputs, strict=True)
        if shown and cell.metadata.get("jupyter", {}).get("outputs_hidden")
    ]
    explorers = [output for shown in outputs for output in shown if build.is_explorer(output)]
    source = "\n".join(cell.source for cell in cells)
    asked, answers = source.count(" = predict_first("), source.count("### BEGIN SOLUTION")
    expected = {
        "<summary>The result</summary>": len(hidden),
        "<summary>The answer</summary>": len([1 for c in cells if "BEGIN SOL" in c.source]),
        '<form class="prediction"': asked,
        'class="result"': asked,
        "Predict first: ": 0,
        "BEGIN SOLUTION": 0,
        "vnd.jupyter": 0,
    }
    assert {piece: page.count(piece) for piece in expected} == expected
    assert page.count('class="explorer"') + page.count('class="still"') == len(explorers)
    assert asked if path in LESSONS else answers and "<title>Solutions" in page


LESSON = ROOT / "notebooks" / "01_dot_product_similarity.ipynb"


def run_with_predictions(notebook):
    for cell in code(notebook):
        for output in cell.outputs:
            if "result" in output.get("metadata", {}).get("prediction", {}):
                output.data["text/plain"] = "You predicted near. The result is long."


def without_a_result(notebook):
    for cell in code(notebook):
        if "largest.compare" in cell.source:
            cell.outputs = []


@pytest.mark.parametrize(
    "change, complaint",
    [
        (run_with_predictions, ""),
        (without_a_result, "git checkout notebooks/"),
        (lambda notebook: notebook.clear(), "take it from git again"),
    ],
)
def test_the_site_of_a_course_in_use_is_made_or_says_what_to_do(
    tmp_path, monkeypatch, capsys, change, complaint
):
    (tmp_path / "site" / "static").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    for name in build.PARTS:
        (tmp_path / name).write_text("# A title\n\nA text.")
    notebook = nbformat.read(LESSON, as_version=4)
    change(notebook)
    (tmp_path / "notebooks" / LESSON.name).write_text(json.dumps(notebook))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr("sphinx.cmd.build.build_main", lambda _: 0)
    exit_code = build.main(["--folder", str(tmp_path / "build"), "--repository", ""])
    errors = capsys.readouterr().err
    assert exit_code == bool(complaint) == bool(errors) and complaint in errors
    if not complaint:
        page = (tmp_path / "build" / "pages" / "notebooks" / LESSON.name).read_text()
        assert "You predicted near." not in page


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_is_light_and_can_be_read_on_a_phone_and_its_pictures_have_words(
    site, browse, path
):
    page = browse(path.relative_to(ROOT).with_suffix(".html"), width=390)
    open_folds(page)
    page.evaluate(
        """() => Promise.all([...document.images].map(image => {
            image.loading = "eager"
            return image.decode()
        }))"""
    )
    page.wait_for_load_state("networkidle")
    assert sum(len(response.body()) for response in page.responses) < 2_000_000
    assert not [each.url for each in page.responses if not each.url.startswith(OWN)]
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    source, sizes = rendered(site, path), letters(page)
    assert min(sizes, default=11) >= 11 and bool(sizes) == ('class="explorer"' in source)
    pictures = re.findall(r"<img [^>]*_images[^>]*>", source)
    assert len(pictures) == page.locator("article img").count()
    for picture in pictures:
        alt = re.search('alt="([^"]*)"', picture)[1]
        assert alt and ".png" not in alt and 'loading="lazy"' in picture
    assert not page.errors


def open_folds(page):
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")


def letters(page):
    """Return the heights of the letters in a page's explorers, in pixels of the screen."""
    return page.locator(".explorer svg[role=img]").evaluate_all(
        """all => all.flatMap(svg => {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return [...svg.querySelectorAll("text")].map(
                text => scale * parseFloat(getComputedStyle(text).fontSize));
        })"""
    )


def test_no_other_page_is_wider_than_a_phone(site, address, pages, browse):
    page, lessons = browse("index.html", width=390), {path.stem for path in LESSONS}
    for path in pages:
        if path.stem not in lessons:
            page.goto(f"{address}/{path.relative_to(site)}")
            open_folds(page)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= 390, path


def test_a_search_finds_the_lesson(browse):
    page = browse("index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("causal mask")
    page.keyboard.press("Enter")
    icon = page.locator(".bd-search-container form i").bounding_box()
    field = page.locator(".bd-search-container input")
    letters = field.bounding_box()["x"] + field.evaluate(
        "box => parseFloat(getComputedStyle(box).paddingLeft)"
    )
    assert icon["x"] + icon["width"] <= letters  # the icon is beside them
    page.locator("#search-results p.context").first.wait_for()
    excerpts = page.locator("#search-results p.context").all_inner_texts()
    assert not [each for each in excerpts if "System Settings" in each]
    found = page.locator("#search-results li a").filter(has_text="04 · Masking")
    found.first.click()
    page.wait_for_url("**/notebooks/04_masking.html*")
    assert not page.errors


def test_a_prediction_is_made_by_keys_its_result_opens_and_both_are_kept(browse):
    page = browse(SIMILARITY)
    form, result, wrong = first_choice(page)
    question = form.locator("legend span").inner_text()
    assert not result.is_visible()
    form.get_by_role("radio", name=wrong, exact=True).focus()
    page.keyboard.press("Space")
    form.get_by_text(SAYS["noted"].format(**ON_A_PAGE)).wait_for()
    assert not result.is_visible()  # one may think again
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    result.wait_for()
    fold = page.locator("details.fold", has=result)
    expect(fold.locator("summary")).to_be_focused()
    words = SAYS["wrong"].format(predicted=wrong, result=result.get_attribute("data-result"))
    assert result.inner_text() == words
    assert form.get_by_role("radio").last.is_disabled()
    assert form.get_by_role("status").inner_text() == SAYS["fixed"]
    assert form.get_by_role("button").count() == 0  # it is hidden
    end = page.locator(".surprises")
    asked = page.locator("[id^=ask-]").count()
    counted = SAYS["count"].format(predicted=1, asked=asked, wrong=1)
    assert counted in end.inner_text()
    end.get_by_role("link", name=question).click()
    assert page.url.endswith("#ask-0")
    page.reload()
    assert form.get_by_role("radio", name=wrong, exact=True).is_checked()
    assert not result.is_visible() and counted in end.inner_text()
    assert result.text_content() == words
    assert not page.errors


def test_a_choice_after_the_result_was_seen_does_not_count(browse):
    page = browse(SIMILARITY)
    form, result, _ = first_choice(page)
    value = result.get_attribute("data-result")
    fold = page.locator("details", has=result)
    fold.locator("summary").click()
    expect(fold).to_have_attribute("open", "")
    assert result.inner_text() == ""  # the cell shows its result
    form.get_by_label(value, exact=True).check()
    form.get_by_text(SAYS["late"]).wait_for()
    for _ in range(2):  # closed and opened again
        page.locator("details", has=result).locator("summary").click()
    assert result.inner_text() == SAYS["too late"].format(predicted=value, result=value)
    asked = page.locator("[id^=ask-]").count()
    counted = SAYS["count"].format(predicted=0, asked=asked, wrong=0)
    assert page.locator(".surprises").inner_text() == counted


def test_a_result_that_is_no_option_is_nearest_to_one(browse):
    page = browse("notebooks/12_a_smaller_cache.html")
    form, result, _ = first_choice(page)
    value = result.get_attribute("data-result")
    form.get_by_label(value, exact=True).check()
    form.get_by_role("button").click()
    shown = SAYS["nearest"].format(result=value)
    assert result.inner_text() == SAYS["right"].format(predicted=value, result=shown)


NUMBERS = [("20", 30, 2), ("20", 9.9, 2), ("20", 41, 2), ("1e3", 999, 2), ("-4", -2, 2)]
NUMBERS += [("4", -2, 2), ("0", 0, 2), ("0", 1e-9, 2), ("20", 30, 1.2), ("3", 3.5, 1.2)]


def test_a_number_is_judged_as_the_notebook_does_and_what_is_none_is_asked_for_again(browse):
    page = browse(SIMILARITY)
    for predicted, result, factor in NUMBERS:
        question = Prediction("How many?", None, factor)
        question.control.value = predicted
        judged = page.evaluate("given => isRight(...given)", [predicted, str(result), factor])
        assert judged == question._is_right(result), (predicted, result, factor)
    form = page.locator("form.prediction", has=page.get_by_label("Your number:")).first
    field = form.get_by_label("Your number:")
    field.fill("some")
    form.get_by_text(SAYS["no number"]).wait_for()
    result = page.locator("#" + form.get_attribute("data-result"))
    value = result.get_attribute("data-result")
    field.fill(value)
    field.press("Enter")
    result.wait_for()
    assert result.inner_text() == SAYS["right"].format(predicted=value, result=value)


def test_the_first_page_begins_with_what_moves_and_shows_what_a_check_says(browse):
    page = browse("index.html")
    words = page.locator(".explorer [role=status]")
    assert "hen 0.69" in words.inner_text()
    assert words.bounding_box()["y"] < 800  # in the first window
    first, *others = page.locator("details.answer").all()
    expect(first.get_by_text("❌ 1.1 dot: ")).to_be_in_viewport()
    page.get_by_label("last word").select_option("wide")
    assert "road 0.69" in words.inner_text()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    assert "every word" in words.inner_text() and not page.errors
    others[-1].locator("summary").click()
    others[-1].get_by_text("✅ 1.1 dot: correct").wait_for()
    expect(first.get_by_text("❌ 1.1 dot: ")).not_to_be_visible()
    page.get_by_role("link", name="Start with lesson 00").click()
    page.wait_for_url("**/notebooks/00_start_here.html")


def test_without_javascript_explorers_are_pictures_with_words_and_results_open(browse):
    page = browse(SIMILARITY, java_script_enabled=False)
    explorer = page.locator(".explorer")
    assert explorer.locator("p").inner_text() == similarity_explorer().state
    image = explorer.get_by_role("img", name="dot product 1.50")
    image.scroll_into_view_if_needed()
    assert image.bounding_box()["width"] == pytest.approx(440, abs=10)  # and its white rim
    assert explorer.locator("input").count() == 0
    assert not page.locator("#ask-0 button").is_visible()
    result = page.locator("#result-0")
    fold = page.locator("details", has=result)
    fold.locator("summary").click()
    expect(fold.locator("img, pre").first).to_be_visible()


def serious(page, rules=None):
    page.wait_for_load_state("networkidle")
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    found = Axe().run(page, options=options).response["violations"]
    return [
        (each["id"], each["nodes"][0]["html"][:200])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("path", OF_EACH_KIND)
def test_axe_finds_nothing_serious(browse, path):
    assert not serious(browse(path))


@pytest.mark.parametrize("path", ["index.html", "search.html?q=mask", SIMILARITY])
def test_colors_can_be_told_apart_in_the_dark(browse, path):
    page = browse(path, color_scheme="dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert not serious(page, ["color-contrast"])


def test_a_page_is_printed_with_its_results_and_without_its_controls(browse):
    page = browse(SIMILARITY)
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    result = page.locator("details", has=page.locator("#result-0")).locator("img, pre").first
    result.wait_for()
    assert result.bounding_box()["height"] > 10
    assert not page.locator("#ask-largest button").is_visible()
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator(".explorer svg").is_visible()
    assert not page.locator(".explorer input").first.is_visible()
    page.emulate_media(media="screen")
    assert not result.is_visible()


def test_the_reference_has_every_public_function(site):
    pages = sorted((site / "reference").glob("*.html"))
    assert len(pages) > 10
    for page in pages:
        module, ids = importlib.import_module(page.stem), Links(page).ids
        for name, member in vars(module).items():
            public = inspect.isfunction(member) and name[0] != "_"
            if public and member.__module__ == page.stem:
                assert f"{page.stem}.{name}" in ids


@pytest.mark.parametrize("repository", ["", "me/course"])
def test_links_to_other_files_go_to_the_repository_if_there_is_one(repository):
    text = "[all](../Makefile), [lesson](01_dot_product_similarity.ipynb), `x[0](y)`"
    makefile = "[all](https://github.com/me/course/blob/HEAD/Makefile)" if repository else "all"
    linked = build.linked(text, ROOT / "notebooks", repository)
    assert linked == text.replace("[all](../Makefile)", makefile)
