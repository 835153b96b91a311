"""docs/configuration.md is what the source says, and the source says something of every key."""

from pathlib import Path

from gpuwatch.config import Config
from tests.config.page import keys, page, sections

PAGE = Path(__file__).parents[2] / "docs/configuration.md"


def test_the_page_is_what_make_generate_writes() -> None:
    assert PAGE.read_text() == "\n".join(page()).rstrip() + "\n"


def test_every_key_says_what_it_means() -> None:
    rows = [key for path, section in sections() for key in keys(section, path)]
    assert [".".join(key.path) for key in rows if not key.meaning or not key.values] == []
    assert {key.path[0] for key in rows} == set(Config.__struct_fields__)
