"""The website, built as `make site` builds it, and read in a real browser: wide, narrow, dark."""

import contextlib
import functools
import http.server
import importlib
import inspect
import re
import runpy
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

from course_utils.explorers import similarity_explorer
from course_utils.predictions import Prediction
from explorer_oracles import disagreements, similarity
from stored_notebooks import EXERCISES, LESSONS, ROOT, SOLUTIONS, code
from tools import jupyterlab_server
from tools.notebooks import VEIL
from tools.render_previews import LIVE

BUILD = runpy.run_path(str(ROOT / "site" / "build.py"))
MASKING = "notebooks/04_masking.html"
SIMILARITY = "notebooks/01_dot_product_similarity.html"
QUESTION = "Which vector has the largest dot product with q?"
OF_EACH_KIND = [
    "index.html",
    "teaching.html",
    "reference/course_utils.tiled.html",
    "search.html?q=mask",
    SIMILARITY,
    "exercises/01_exercises_dot_product_similarity.html",
    "solutions/01_solutions_dot_product_similarity.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the website. Every warning is an error."""
    folder = tmp_path_factory.mktemp("website")
    command = [sys.executable, ROOT / "site" / "build.py", "--folder", folder, "--repository", ""]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0 and not run.stderr, run.stdout + run.stderr
    return folder / "site"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browse(chromium, address):
    """A function that opens a page of the website; what the page asked for is in ``.responses``."""
    with contextlib.ExitStack() as closing:

        def open_page(path, width=1280, **settings):
            size = {"width": width, "height": 800}
            context = chromium.new_context(viewport=size, **settings)
            closing.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(jupyterlab_server.PATIENCE)
            page.errors, page.asked, page.responses = [], [], []
            page.on("pageerror", lambda error: page.errors.append(str(error)))
            page.on(
                "console", lambda told: page.errors.append(told.text) if told.type == "error" else 0
            )
            page.on("request", lambda request: page.asked.append(request.url))
            page.on("response", lambda response: page.responses.append(response))
            page.goto(f"{address}/{path}")
            return page

        yield open_page


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
        elif tag in ("link", "img", "script"):
            self.fetched += filter(None, [attributes.get("href"), attributes.get("src")])


@pytest.fixture(scope="module")
def pages(site):
    """The pages of the website, by their path."""
    own = [path for path in sorted(site.rglob("*.html")) if site / "_static" not in path.parents]
    found = {path: Links(path) for path in own}
    assert len(found) > len(LESSONS + EXERCISES + SOLUTIONS)
    return found


def test_every_link_leads_somewhere(pages):
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
        asked = re.findall(r"""(?:url\(|@import )["']?(?:https?:)?//.*""", style.read_text())
        assert not asked, style


def test_every_notebook_is_a_page_that_the_left_column_reaches(site, pages):
    reached = pages[site / MASKING].links
    for path in LESSONS + EXERCISES + SOLUTIONS:
        page = path.relative_to(ROOT).with_suffix(".html")
        assert (site / page).is_file()
        assert any(link.endswith(page.name) for link in reached) or page.name == Path(MASKING).name


def rendered(site, path):
    return (site / path.relative_to(ROOT)).with_suffix(".html").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_folds_and_asks_what_its_notebook_folds_and_asks(site, path):
    cells, page = code(nbformat.read(path, as_version=4)), rendered(site, path)
    hidden = [
        cell
        for cell in cells
        if cell.metadata.get("jupyter", {}).get("outputs_hidden")
        and [output for output in cell.outputs if output != VEIL]
    ]
    asked = [cell for cell in cells if re.search(r"\bpredict_first\(", cell.source)]
    assert page.count("<summary>The result</summary>") == len(hidden) > 0
    assert page.count('<form class="prediction"') == len(asked) > 0
    assert page.count('class="came"') == len(asked)
    assert "Predict first: " not in page and "vnd.jupyter" not in page


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_answers_are_folded(site, path):
    answers = [cell for cell in code(nbformat.read(path, as_version=4)) if "BEGIN" in cell.source]
    page = rendered(site, path)
    assert page.count("<summary>The answer</summary>") == len(answers) > 0
    assert "BEGIN SOLUTION" not in page and "<title>Solutions" in page


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_an_explorer_moves_where_it_can_and_says_so_where_not(site, path):
    cells = code(nbformat.read(path, as_version=4))
    names = re.findall(r"^(\w+)_explorer\(", "\n".join(cell.source for cell in cells), re.M)
    living = [name for name in names if f"{name}_explorer" in LIVE]
    page = rendered(site, path)
    assert re.findall(r'class="explorer" id="explorer-(\w+)"', page) == living
    still = [cell for cell in cells if any(map(BUILD["is_explorer"], cell.outputs))]
    assert page.count("A still picture. In JupyterLab it moves") == len(still) - len(living)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_pictures_wait_and_have_words_and_a_lesson_is_light(site, browse, path):
    page = browse(path.relative_to(ROOT).with_suffix(".html"))
    page.evaluate(
        """async () => {
            for (const fold of document.querySelectorAll("details")) fold.open = true
            const waiting = [...document.images].map(image => {
                image.loading = "eager"
                return image.decode()
            })
            await Promise.all(waiting)
        }"""
    )
    page.wait_for_load_state("networkidle")
    assert sum(len(response.body()) for response in page.responses) < 2_000_000
    images = page.locator("article img")
    widths = images.evaluate_all(
        "all => all.map(one => [one.clientWidth, one.closest('article').clientWidth])"
    )
    assert all(width <= column for width, column in widths)
    source = rendered(site, path)
    pictures = re.findall(r"<img [^>]*_images[^>]*>", source)
    assert len(pictures) == len(widths)
    for picture in pictures:
        alt = re.search('alt="([^"]*)"', picture)[1]
        assert alt and ".png" not in alt and 'loading="lazy"' in picture
    assert not page.errors
    assert not [url for url in page.asked if not url.startswith(("http://127.0.0.1", "data:"))]


def test_a_search_finds_the_lesson(browse):
    page = browse("index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("causal mask")
    page.keyboard.press("Enter")
    found = page.locator("#search-results li a").filter(has_text="04 · Masking")
    found.first.click()
    page.wait_for_url(f"**/{MASKING}*")
    assert not page.errors


def test_a_prediction_is_made_by_keys_its_result_opens_and_both_are_kept(browse):
    page = browse(SIMILARITY)
    form = page.get_by_role("group", name=QUESTION)
    result = page.locator("#came-largest")
    assert not result.is_visible()
    form.get_by_role("radio", name="near", exact=True).focus()
    page.keyboard.press("Space")
    form.locator("xpath=..").get_by_text("Noted. Now open the result below.").wait_for()
    assert not result.is_visible()  # one may think again
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    result.wait_for()
    assert result.inner_text() == "You said near, and it came long: a surprise."
    assert form.get_by_role("radio", name="up", exact=True).is_disabled()
    end = page.locator(".surprises")
    assert "You predicted 1 of 6 results; 1 came as a surprise." in end.inner_text()
    end.get_by_role("link", name=QUESTION).click()
    assert page.url.endswith("#ask-largest")
    page.reload()
    assert form.get_by_role("radio", name="near", exact=True).is_checked()
    assert not result.is_visible() and "1 came as a surprise" in end.inner_text()
    assert result.text_content() == "You said near, and it came long: a surprise."
    assert not page.errors


def test_a_number_is_predicted_and_what_is_none_is_asked_for_again(browse):
    page = browse(SIMILARITY)
    form = page.locator("#ask-mixture")
    field = form.get_by_label("Your number:")
    field.fill("some")
    form.get_by_text("Please give a number, such as 20 or 0.5.").wait_for()
    came = page.locator("#came-mixture").get_attribute("data-came")
    field.fill(came)
    field.press("Enter")
    told = page.locator("#came-mixture")
    told.wait_for()
    assert told.inner_text() == f"You said {came}, and it came {came}: as predicted."


def test_a_result_that_was_seen_first_is_told_alone_and_then_as_too_late(browse):
    page = browse(SIMILARITY)
    result = page.locator("#came-largest")
    page.locator("details", has=result).locator("summary").click()
    result.wait_for()
    assert result.inner_text() == "It came: long. Nothing was predicted."
    page.locator("#ask-largest").get_by_label("long", exact=True).check()
    page.locator("#ask-largest").get_by_text("so this does not count").wait_for()
    for _ in range(2):  # closed and opened again
        page.locator("details", has=result).locator("summary").click()
    told = "It came: long. You said long when that was on the screen already."
    assert result.inner_text() == told
    assert "You predicted 0 of 6" in page.locator(".surprises").inner_text()


NUMBERS = [("20", 30, 2), ("20", 9.9, 2), ("20", 41, 2), ("1e3", 999, 2), ("-4", -2, 2)]
NUMBERS += [("4", -2, 2), ("0", 0, 2), ("0", 1e-9, 2), ("20", 30, 1.2), ("3", 3.5, 1.2)]


def test_the_page_judges_a_number_as_the_notebook_does(browse):
    page = browse(SIMILARITY)
    for said, came, factor in NUMBERS:
        asked = Prediction("How many?", None, factor)
        asked.control.value = said
        judged = page.evaluate("given => isRight(...given)", [said, str(came), factor])
        assert judged == asked._is_right(came), (said, came, factor)


def test_the_first_thing_on_the_first_page_moves(browse):
    page = browse("index.html")
    words = page.locator(".explorer [role=status]")
    assert "hen 0.69" in words.inner_text()
    assert words.bounding_box()["y"] < 800  # in the first window
    page.get_by_label("last word").select_option("wide")
    assert "road 0.69" in words.inner_text()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    assert "asks for nothing" in words.inner_text() and not page.errors


@pytest.mark.parametrize("width", [1280, 390])
def test_an_explorer_is_dragged_on_a_page_as_in_a_notebook(browse, width):
    page = browse(SIMILARITY, width=width)
    picture, words = page.locator(".explorer svg"), page.locator(".explorer [role=status]")
    first = similarity_explorer()
    assert words.inner_text() == first.state
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 10, steps=5)
    page.mouse.up()
    angle, length = (page.get_by_role("slider").nth(j).input_value() for j in range(2))
    told = words.inner_text()
    assert disagreements(told, similarity(float(angle), float(length))) == []
    assert "dot product 1.50" not in told and not page.errors
    assert page.locator(".explorer img").count() == 0


def test_without_javascript_an_explorer_is_its_picture_with_its_words(browse):
    page = browse(SIMILARITY, java_script_enabled=False)
    place = page.locator(".explorer")
    assert place.locator("p").inner_text() == similarity_explorer().state
    image = place.get_by_role("img", name="dot product 1.50")
    image.scroll_into_view_if_needed()
    assert image.bounding_box()["width"] == pytest.approx(440, abs=10)  # and its white rim
    assert place.locator("input").count() == 0


def test_without_javascript_a_result_opens(browse):
    page = browse(SIMILARITY, java_script_enabled=False)
    page.locator("#ask-largest").get_by_label("near", exact=True).check()
    assert not page.locator("#ask-largest button").is_visible()
    result = page.locator("#came-largest")
    page.locator("details", has=result).locator("summary").click()
    assert result.inner_text() == "It came: long. Nothing was predicted."
    assert page.locator("#ask-largest").get_by_label("near", exact=True).is_checked()


def serious(page, rules=None):
    page.wait_for_load_state("networkidle")
    found = Axe().run(page, options={"runOnly": rules} if rules else None).response["violations"]
    return [
        (each["id"], each["nodes"][0]["html"][:200])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("path", OF_EACH_KIND)
def test_axe_finds_nothing_serious(browse, path):
    assert not serious(browse(path))


@pytest.mark.parametrize("path", ["index.html", "search.html?q=mask", SIMILARITY])
def test_colours_can_be_told_apart_in_the_dark(browse, path):
    page = browse(path, color_scheme="dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert not serious(page, ["color-contrast"])


def test_nothing_is_wider_than_a_phone(site, address, pages, browse):
    page = browse("index.html", width=390)
    for path in pages:
        page.goto(f"{address}/{path.relative_to(site)}")
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        width = page.evaluate("document.scrollingElement.scrollWidth")
        assert width <= 390, path


def test_a_page_is_printed_with_its_results_and_without_its_controls(browse):
    page = browse(SIMILARITY)
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    result = page.locator("#came-largest")
    result.wait_for()
    assert result.bounding_box()["height"] > 10
    assert not page.locator("#ask-largest button").is_visible()
    assert not page.locator(".bd-sidebar-primary").is_visible()
    assert page.locator(".explorer svg").is_visible()
    assert not page.locator(".explorer input").first.is_visible()
    page.emulate_media(media="screen")
    assert not result.is_visible()
    assert result.text_content().strip() == "It came: long. Nothing was predicted."


def test_the_reference_tells_all_that_is_public(site):
    pages = sorted((site / "reference").glob("*.html"))
    assert len(pages) > 10
    for page in pages:
        module = importlib.import_module(page.stem)
        own = [
            name
            for name, each in vars(module).items()
            if inspect.isfunction(each) and each.__module__ == page.stem and name[0] != "_"
        ]
        told = Links(page).ids
        assert {f"{page.stem}.{name}" for name in own} <= told, page.stem
        assert any(each and each.startswith(f"{page.stem}.") for each in told), page.stem


def test_links_to_other_files_go_to_the_repository_if_there_is_one():
    text = "[all](../Makefile), [lesson](01_dot_product_similarity.ipynb), `x[0](y)`"
    linked, folder = BUILD["linked"], ROOT / "notebooks"
    there = text.replace("../Makefile", "https://github.com/me/course/blob/HEAD/Makefile")
    assert linked(text, folder, "me/course") == there
    assert linked(text, folder, "") == text.replace("[all](../Makefile)", "all")
