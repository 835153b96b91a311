"""The report in a real browser: it is drawn, it asks nobody for anything, and no name becomes part of the page."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.cli.recommend.report.charts import Bar, Markup, bars, cut, joined, memory, tag
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendations, RecommendedAction
from tests.cli.browser import Page, browser
from tests.cli.commands import advised
from tests.cli.recommend import advice

SIZES = """[...document.querySelectorAll('svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    const inside = [...svg.querySelectorAll('rect, text, line, circle')].map(each => each.getBoundingClientRect());
    return {
        width: box.width, height: box.height, bars: svg.querySelectorAll('rect.bar').length,
        over: inside.filter(each => each.left < box.left - 1 || each.right > box.right + 1
            || each.top < box.top - 1 || each.bottom > box.bottom + 1).length,
    };
})"""
"""Of every chart; `over`: parts of it that stick out."""


@pytest.fixture(scope="module")
def page():
    with browser() as page:
        yield page


def written(body: Recommendations, place: Path) -> Path:
    found = advised(body, "recommend", "-o", "html")
    assert found.exit_code == 0, found.stderr
    file = place / "report.html"
    file.write_text(found.stdout)
    return file


@pytest.fixture
def report(page: Page, tmp_path: Path) -> Page:
    """That of everything there is to say, opened."""
    page.media()
    return page.open(written(advice.everything(), tmp_path))


def test_every_chart_is_drawn_and_nothing_sticks_out(report: Page):
    charts = report.value(SIZES)
    measured = sum(bool(each.evidence.peaks) for each in advice.everything().items)
    assert len(charts) == measured + 2
    assert all(chart["width"] > 200 and chart["height"] > 40 and chart["bars"] > 0 for chart in charts), charts
    assert [chart for chart in charts if chart["over"]] == []


def test_bars_are_as_long_as_what_they_stand_for(report: Page):
    widths = report.value(
        "[...document.querySelector('.charts svg').querySelectorAll('rect.bar')]"
        ".map(bar => bar.getBoundingClientRect().width)"
    )
    assert [width / widths[0] for width in widths] == pytest.approx([1.0, 1.0, 17.1 / 24.0], abs=0.01)


def test_the_size_offered_is_a_line_above_the_peaks(report: Page):
    inside = "document.getElementById('mig-fit-1f3a9c')"
    offered, needed = (
        report.value(f"{inside}.querySelector('line.{kind}').getBoundingClientRect().y")
        for kind in ("offered", "needed")
    )
    tops = report.value(
        f"[...{inside}.querySelector('svg').querySelectorAll('rect.bar')].map(bar => bar.getBoundingClientRect().y)"
    )
    assert offered < needed < min(tops)
    assert "19.5 GiB offered" in report.value(f"{inside}.textContent")


def test_nobody_is_asked_for_anything_and_the_browser_complains_of_nothing(report: Page, tmp_path: Path):
    assert report.requests == [(tmp_path / "report.html").as_uri()]
    assert report.troubles == []


def test_the_test_would_notice_a_request_and_the_policy_forbids_it(page: Page, tmp_path: Path):
    file, other = tmp_path / "leaks.html", tmp_path / "other.png"
    other.write_bytes(b"")
    file.write_text(f"<img src={other.as_uri()}>")
    assert other.as_uri() in page.open(file).requests
    report = written(advice.everything(), tmp_path)
    report.write_text(report.read_text().replace("</main>", f"<img src={other.as_uri()}></main>"))
    assert any("Content Security Policy" in trouble for trouble in page.open(report).troubles)


def test_a_pod_named_as_html_is_text(report: Page):
    assert advice.HOSTILE in report.value("document.body.innerText").replace("\n", "")
    assert report.value("document.title") == "GPU right-sizing"
    assert report.value("document.querySelectorAll('script, img, iframe, link, object').length") == 0


def test_the_sums_and_the_commands_are_there(report: Page):
    tiles = report.value("[...document.querySelectorAll('.tile b')].map(each => each.textContent)")
    assert tiles == ["65.1", "3,516 USD", "510 W", "7", "31"]
    folded = "document.getElementById('mig-fit-1f3a9c').querySelector('details')"
    assert report.value(f"{folded}.open") is False
    report.value(f"{folded}.open = true")
    assert "kubectl -n nlp patch deployment" in report.value(f"{folded}.innerText")
    assert report.value(f"{folded}.querySelector('pre').getBoundingClientRect().height") > 10


def contrast(page: Page) -> float:
    """Of the text and the paper, by WCAG 2."""
    luminance = """(colour => {
        const part = colour.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255)
            .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    })"""
    ink, paper = (
        page.value(f"{luminance}(getComputedStyle({of}).{name})")
        for of, name in (("document.querySelector('.soft')", "color"), ("document.body", "backgroundColor"))
    )
    return (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_the_light_and_in_the_dark(report: Page, scheme: str):
    report.media(prefers_color_scheme=scheme)
    paper = report.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")
    assert contrast(report) >= 4.5


def test_print_shows_the_commands_on_white_paper(report: Page):
    report.media("print", prefers_color_scheme="dark")
    assert report.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert report.value("Math.min(...[...document.querySelectorAll('pre')].map(each => each.offsetHeight))") > 10


def test_a_telephone_need_not_scroll_sideways(page: Page, tmp_path: Path):
    page.media()
    page.open(written(advice.everything(), tmp_path), width=400)
    assert page.value("document.documentElement.scrollWidth") <= 400
    assert [chart["over"] for chart in page.value(SIZES) if chart["over"]] == []


def test_every_card_can_be_reached_from_a_line(report: Page):
    there = "!!document.getElementById(link.getAttribute('href').slice(1))"
    links = report.value(f"[...document.querySelectorAll('table a')].map(link => {there})")
    assert links == [True] * len(advice.everything().items)


def test_bars_that_come_to_more_than_the_sum_say_why(page: Page, tmp_path: Path):
    both = replace(advice.one(FindingKind.DUTY_CYCLED, RecommendedAction.SHARE), id="duty-cycled-1f3a9c")
    note = "in each of their bars"
    assert note in page.open(written(advice.body(advice.mig(), both), tmp_path)).value("document.body.innerText")
    assert note not in page.open(written(advice.body(advice.mig()), tmp_path)).value("document.body.innerText")


def test_who_has_learned_nothing_yet_does_not_say_that_all_is_well(page: Page, tmp_path: Path):
    text = page.open(written(replace(advice.nothing(), learning=31), tmp_path)).value("document.body.innerText")
    assert "all workloads are still being learned" in text
    assert "No workload was found" not in text


def test_nothing_to_say_is_said(page: Page, tmp_path: Path):
    page.open(written(advice.nothing(), tmp_path))
    assert "No workload was found to hold more than it uses." in page.value("document.body.innerText")
    assert page.value("document.querySelectorAll('svg').length") == 0


def test_a_single_day_a_missing_price_and_a_hundred_namespaces_are_drawn(page: Page, tmp_path: Path):
    one_day = replace(advice.mig(), evidence=advice.evidence(peaks=advice.peaks(3.0), sm=None, dram=None))
    many = tuple(
        replace(advice.mig(), id=f"n{n}", target=replace(one_day.target, namespace=f"team-{n:03}-{'x' * 40}"))
        for n in range(100)
    )
    page.open(written(advice.body(one_day, *many), tmp_path))
    charts = page.value(SIZES)
    assert [chart for chart in charts if chart["over"]] == []
    assert charts[1]["bars"] == 15, "the rest are one bar"


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "<b>", class_='"x"', id=None) == '<p class="&quot;x&quot;">&lt;b&gt;</p>'
    assert joined(tag("b", "1 & 2"), None, "&") == "<b>1 &amp; 2</b>&amp;"
    assert tag("rect", x=1.25, stroke_width=2) == '<rect x="1.2" stroke-width="2"/>'
    assert isinstance(joined("a"), Markup)


def test_a_chart_says_what_it_is_to_those_who_cannot_see_it():
    assert "<title>Savings</title>" in bars("Savings", [Bar("a", 1.0, "1")])
    assert "Sep 21: 3.0 GiB" in memory(advice.peaks(3.0), ())
    assert cut("a-very-long-namespace", 9) == "a-ve…pace"
