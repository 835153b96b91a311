"""docs/threat-model.md names tests that exist, and a test for each defence."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "threat-model.md").read_text()
ATTACKERS = ("a pod", "a user of the node", "a file of a stranger", "a stolen token", "the network", "the supply chain")
LINK = re.compile(r"\[`(?P<test>test_\w+)`\]\((?P<file>\.\./tests/[\w/]+\.py)\)")
TESTED = [f"Attacker: {each}" for each in ATTACKERS]


def section(title):
    """The text below a heading of the second level."""
    _, _, rest = PAGE.partition(f"\n## {title}\n")
    assert rest, f"no section {title}"
    return rest.partition("\n## ")[0]


def rows(text):
    """The cells of a table's rows, without its head."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


@pytest.mark.parametrize(("test", "file"), sorted({(found["test"], found["file"]) for found in LINK.finditer(PAGE)}))
def test_a_named_test_exists(test, file):
    path = (DOCS / file).resolve()
    assert path.is_file()
    assert re.search(rf"^\s*(async )?def {test}\(", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("title", TESTED)
def test_every_defence_names_its_test(title):
    found = rows(section(title))
    assert found
    assert [cells[0] for cells in found if not LINK.search(cells[-1])] == []


def test_no_test_is_named_without_a_link():
    assert re.findall(r"(?<!\[)`test_\w+`", PAGE) == []


def test_the_security_page_leads_to_it_and_its_links_lead_somewhere():
    page = (DOCS.parent / "SECURITY.md").read_text()
    for text, folder in ((page, DOCS.parent), (PAGE, DOCS)):
        targets = [each.partition("#") for each in re.findall(r"\]\(([^)h][^)]*)\)", text)]
        assert [path for path, _, _ in targets if path and not (folder / path).exists()] == []
    assert "(docs/threat-model.md)" in page
