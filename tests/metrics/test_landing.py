"""The landing page is whole, safe and self-contained HTML."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.metrics.process_pages import landing_page
from gpuwatch.model.text import visible
from tests.model.hostile import HOSTILE, unsafe

VOID = {"meta", "link", "br"}


class Reader(HTMLParser):
    """Collects text, links and every attribute that could fetch something; checks that tags close in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.texts, self.links, self.fetched = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name == "href"]
        self.fetched += [(tag, name) for name, _ in attrs if name in ("src", "srcset", "style", "onload")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


def test_it_says_what_it_was_given():
    links = [("/metrics", "for Prometheus"), ("/api/v1/view", "for programs")]
    response = landing_page("gpuwatch", "1.2.3", links, [("GPUs", "8 of 8"), ("Health", "healthy")])
    page = Reader(response.body.decode())
    assert response.content_type == "text/html; charset=utf-8"
    assert page.links == ["/metrics", "/api/v1/view"]
    for text in ("gpuwatch", "version 1.2.3", "GPUs", "8 of 8", "Health", "healthy"):
        assert text in page.texts
    assert page.fetched == []


def test_it_can_be_read_by_all_users():
    page = landing_page("gpuwatch", "1", [], [("GPUs", "8")]).body.decode()
    for wanted in (
        '<html lang="en">',
        "<main>",
        '<th scope="row">',
        "prefers-color-scheme: dark",
        "width=device-width",
    ):
        assert wanted in page


def test_without_a_summary_there_is_no_empty_table():
    assert b"<table>" not in landing_page("gpuwatch", "1", [("/metrics", "")]).body


def test_the_browser_is_asked_to_fetch_and_run_nothing():
    headers = dict(landing_page("gpuwatch", "1", []).headers)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


@given(st.text(st.characters().filter(str.isprintable), min_size=1))
def test_nothing_given_becomes_markup(text):
    page = Reader(landing_page(text, text, [(text, text)], [(text, text)]).body.decode())
    assert page.links == [text]
    assert "".join(page.texts).count(text) >= 5
    assert page.fetched == []


def test_control_characters_of_a_value_show_as_escapes():
    page = landing_page("gpuwatch", "1", [], [("Node", HOSTILE)]).body.decode()
    assert visible(HOSTILE) in Reader(page).texts
    assert unsafe(page) == set()
