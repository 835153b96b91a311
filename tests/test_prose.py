"""The rules of plain English find what they are for, in text and not in code."""

import pytest

from tests import prose


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Memory is taken, and nobody owns it.", "nobody"),
        ("The node is given back once the GPU is healthy.", "given back"),
        ("It gives the whole node back.", "gives the whole node back"),
        ("The reader is started anew.", "anew"),
        ("A broken value is told as such.", "told"),
        ("Please note the unit.", "Please"),
        ("GPUs, links, etc. are read.", "etc."),
    ],
)
def test_a_rule_finds_its_words(line: str, found: str):
    (each,) = prose.findings("docs/page.md", f"# Page\n\n{line}\n")
    assert (each.place, each.text) == ("docs/page.md:3", found)


@pytest.mark.parametrize(
    "text",
    [
        "```\nsomebody\n```",
        "    echo nobody\n",
        "The user `nobody` runs it.",
        "[alert](runbooks/etc.md)",
        "The agent gives up; the copy stays back.",
        "Nobodies, tellers and saidness are other words.",
        "| not | but |\n|---|---|\n| nobody reads it | the agent does not read it |",
    ],
)
def test_code_and_examples_are_left_alone(text: str):
    assert list(prose.findings("docs/page.md", text)) == []


def test_a_table_of_examples_ends_with_the_table():
    text = "| not | but |\n|---|---|\n| nobody | the agent |\n\n| who | what |\n|---|---|\n| somebody | it |"
    assert [each.text for each in prose.findings("docs/page.md", text)] == ["somebody"]


def test_every_kind_of_page_is_read():
    kinds = {page.suffix for page in prose.pages()}
    assert kinds == {".md", ".yaml", ".json", ".py"}


def test_docstrings_and_comments_of_a_module_are_read_and_its_code_is_not():
    text = '''"""Why nobody\n\nis told."""\nsaid = "nobody"  # given back\n"""Anew, in `told`."""\n'''
    found = [(each.place.rpartition(":")[2], each.text) for each in prose.findings("gpuwatch/one.py", text)]
    assert found == [("1", "nobody"), ("3", "told"), ("4", "given back"), ("5", "Anew")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpuwatch/one.py", "class HostLook: ..."),
        ("gpuwatch/one.py", "def poll(patience): ..."),
        ("gpuwatch/one.py", "LOOK_AGAIN = 1.0"),
        ("gpuwatch/one.py", "self.said_by = name"),
        ("tests/test_one.py", "def test_a_fault_is_told_once(): ..."),
    ],
)
def test_a_name_that_is_no_term_is_found(name: str, text: str):
    assert [each.place for each in prose.names(name, text)] == [f"{name}:1"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpuwatch/one.py", "LOOK_AT_INPUT = lookup(agent.told)"),
        ("tests/test_one.py", "def test_a_path_may_look_like_a_url(told): said = told"),
    ],
)
def test_terms_uses_and_what_tests_keep_for_themselves_are_left_alone(name: str, text: str):
    assert list(prose.names(name, text)) == []
