"""Answers on the page, in a real browser: each shown as what it is."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import PIL.Image
import pytest

from support.archives import pack, stand_in_archive
from support.stack import Stack, serving

pytest.importorskip("selenium")
from support.browser import IN_BROWSER, NEEDS_AXE, Browser

pytestmark = IN_BROWSER
SCRIPT = """
import json
import pathlib

PICTURE = pathlib.Path(__file__).with_name("picture.png").read_bytes()


def handler(data, context):
    if "image" in context.accept_header:
        return PICTURE, "image/png"
    ramp = [[column + 8 * row for column in range(8)] for row in range(8)]
    return json.dumps({"predictions": [ramp]}), "application/json"
"""
SIZE = (12, 9)


DESCRIBED = """
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

import tfs_proxy


class Studio(Struct):
    name: str
    founded: int | None


class Film(Struct):
    title: str
    years: list[int]
    studio: Studio
    genre: Literal["crime", "comedy"]
    stars: Annotated[int, Meta(ge=1, le=5, description="Of the critics.")]
    minutes: float | None = None
    coloured: bool = True


EXAMPLE = Film("Heat", [1995], Studio("Regency", 1982), "crime", 4)
tfs_proxy.describe(examples={"application/json": msgspec.json.encode(EXAMPLE)})


def handler(film: Film, context):
    if film.minutes:
        return {"film": film}
    return {"predictions": [{"labels": [film.title, "other"], "probabilities": [0.75, 0.25]}] * len(film.years)}
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A script that declares its body, and answers labels by rank as `pack --labels --top` does."""
    archive = stand_in_archive(tmp_path_factory.mktemp("described") / "m.tar.gz", script=DESCRIBED)
    with serving(str(archive)) as stack:
        yield stack


def test_a_declared_type_fills_form_and_editor(described: Stack, browser: Browser) -> None:
    """A field for each member, the example as text; what is sent is what the fields say."""
    browser.visit(described)
    example = json.loads(browser.element("#body").get_attribute("value") or "")
    assert (example["title"], example["years"]) == ("Heat", [1995])
    browser.fill("#panel-form [data-input=title]", "Alien")
    browser.fill("#panel-form [data-input=years]", "[1979, 1992]")

    assert browser.send().startswith("200 OK")

    bars = [line.text for line in browser.driver.find_elements("css selector", "#answer .name")]
    assert bars == ["Alien", "other"] * 2
    assert browser.text("#answer .label") == "Record 1: Alien"
    assert browser.text("#answer .number") == "75.00 %"


def test_each_member_has_the_control_of_its_type(described: Stack, browser: Browser) -> None:
    """A choice, a number with its range, a checkbox, objects below their name; what is empty is left out."""
    browser.visit(described)
    controls = browser.driver.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#panel-form [data-input]')].map((each) =>"
        " [each.dataset.input, [each.type, each.required, each.closest('.field').innerText]]))"
    )
    assert controls == {
        "title": ["text", True, "title required"],
        "years": ["textarea", True, "years required\nList as JSON"],
        "studio.name": ["text", True, "name required"],
        "studio.founded": ["number", True, "founded required\nWhole number"],
        "genre": ["select-one", True, "genre required\ncomedy\ncrime"],
        "stars": ["number", True, "stars required\nOf the critics. Whole number, 1 to 5"],
        "minutes": ["number", False, "minutes"],
        "coloured": ["checkbox", False, "coloured"],
    }
    browser.choose("[data-input=genre]", "comedy")
    browser.fill("[data-input='studio.founded']", "")
    browser.click("[data-input=coloured]")
    browser.fill("[data-input=minutes]", "90.5")

    assert browser.send().startswith("200 OK")
    browser.click("#views button:last-child")
    assert json.loads(browser.text("#answer pre"))["film"] == {
        "title": "Heat",
        "years": [1995],
        "studio": {"name": "Regency", "founded": None},
        "genre": "comedy",
        "stars": 4,
        "minutes": 90.5,
        "coloured": False,
    }


def test_the_page_s_own_requests_are_no_figures(described: Stack, browser: Browser) -> None:
    """It asks for /ping and /metrics all the time, and for files that may be missing; inferences count."""
    described.ask("GET", "/nowhere")
    browser.visit(described)
    before = int(browser.text("#errors-note").split()[1])
    assert browser.text("#errors") == "0"
    browser.send()

    browser.wait(lambda: int(browser.text("#errors-note").split()[1]) == before + 1, "one request is counted")


@pytest.mark.parametrize(("name", "given"), [("stars", "9"), ("studio.founded", "1.5"), ("stars", "")])
def test_a_fault_stands_at_its_field(described: Stack, browser: Browser, name: str, given: str) -> None:
    """Where the server's details place it, without the rest of the sentence; the field has the focus."""
    browser.visit(described)
    browser.fill(f"[data-input='{name}']", given)
    assert browser.send().startswith("400")
    field = browser.wait(lambda: browser.find("[aria-invalid=true]"), "a field is marked")
    assert field == browser.driver.switch_to.active_element == browser.element(f"[data-input='{name}']")
    details = json.loads(browser.text("#answer pre"))["details"]
    assert browser.text(".field .error") == details[0]["msg"]


@NEEDS_AXE
@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_use_a_typed_form(described: Stack, browser: Browser, dark: bool) -> None:
    """On a phone, with a fault at a field, axe-core finds nothing serious."""
    browser.look(375, 812, dark=dark)
    browser.visit(described)
    browser.fill("[data-input=stars]", "9")
    browser.send()
    browser.wait(lambda: browser.find(".field .error"), "the sentence is there")
    assert browser.barriers() == []


@pytest.fixture(scope="module")
def plain(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A model without a script."""
    archive = pack(
        tmp_path_factory.mktemp("plain") / "m.tar.gz", {}, {"half": saved_models / "half_plus_two"}
    )
    with serving(str(archive), "--model-server", "embedded") as stack:
        yield stack


@pytest.fixture(scope="module")
def pictures(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A script that answers with a picture, or with its pixels as numbers."""
    drawn = io.BytesIO()
    PIL.Image.new("RGB", SIZE, (200, 30, 30)).save(drawn, "PNG")
    files: dict[str, str | bytes] = {"code/inference.py": SCRIPT, "code/picture.png": drawn.getvalue()}
    archive = pack(
        tmp_path_factory.mktemp("pictures") / "m.tar.gz", files, {"half": saved_models / "half_plus_two"}
    )
    with serving(str(archive), "--model-server", "embedded") as stack:
        yield stack


def cells(browser: Browser) -> list[list[str]]:
    """The rows of the answer's table, without their numbers."""
    rows: list[list[str]] = browser.driver.execute_script(
        "return [...document.querySelectorAll('#answer tbody tr')].map((row) =>"
        " [...row.querySelectorAll('td')].map((cell) => cell.textContent))"
    )
    return rows


def send_csv(browser: Browser, accept: str) -> str:
    """Send three records of the model as CSV, for an answer of this type."""
    browser.click("#tab-text")
    browser.fill("#content-type", "text/csv")
    browser.fill("#body", "1\n3\n5")
    browser.fill("#accept", accept)
    return browser.send()


def test_csv_is_a_table(plain: Stack, browser: Browser) -> None:
    """A row for each record, and the text beside it."""
    browser.visit(plain)
    assert send_csv(browser, "text/csv").startswith("200 OK")
    assert cells(browser) == [["2.5"], ["3.5"], ["4.5"]]
    assert browser.text("#answer thead") == "# y"
    assert "text/csv" in browser.text("#facts")
    browser.click("#views button:last-child")
    assert browser.text("#answer pre").split() == ["2.5", "3.5", "4.5"]
    assert browser.complaints() == []


def test_npy_is_read(plain: Stack, browser: Browser) -> None:
    """The page reads numpy's bytes: dtype, shape and values."""
    browser.visit(plain)
    assert send_csv(browser, "application/x-npy").startswith("200 OK")
    browser.click("#views button:not([aria-pressed=true]):nth-last-child(2)")
    assert cells(browser) == [["2.5"], ["3.5"], ["4.5"]]
    assert "float32 [3]" in browser.text("#facts")
    assert "x: float32 [3]" in browser.text("#facts")
    assert browser.complaints() == []


def test_what_can_t_be_shown_can_be_saved(plain: Stack, browser: Browser) -> None:
    """An npz is a link to its bytes."""
    browser.visit(plain)
    assert send_csv(browser, "application/x-npz").startswith("200 OK")
    assert browser.text("#answer a").startswith("Save ")
    assert browser.complaints() == []


def test_a_picture_is_a_picture(pictures: Stack, browser: Browser) -> None:
    """A PNG that the script returns is drawn, in its own size, under the strict policy."""
    browser.visit(pictures)
    browser.click("#tab-text")
    browser.fill("#body", "{}")
    browser.fill("#accept", "image/png")
    assert browser.send().startswith("200 OK")
    size = "const image = document.querySelector('#answer img'); return [image.naturalWidth, image.naturalHeight]"
    browser.wait(lambda: browser.driver.execute_script(size) == list(SIZE), "the picture is drawn")
    assert browser.complaints() == []


def test_pixels_are_a_picture_too(pictures: Stack, browser: Browser) -> None:
    """Numbers of a picture's shape are drawn from black to white; a table and JSON are a button away."""
    browser.visit(pictures)
    browser.click("#tab-text")
    browser.fill("#body", "{}")
    browser.fill("#accept", "application/json")
    assert browser.send().startswith("200 OK")
    names = [button.text for button in browser.driver.find_elements("css selector", "#views button")]
    assert names == ["Picture", "Table", "JSON"]
    drawn = browser.driver.execute_script(
        "const canvas = document.querySelector('#answer canvas');"
        "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "return [canvas.width, canvas.height, data[0], data[data.length - 4], data[3]]"
    )
    assert drawn == [8, 8, 0, 255, 255]
    assert browser.complaints() == []
