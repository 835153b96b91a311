"""A key that was renamed is named with its name of today, and that one exists."""

import pytest

from gpuwatch.config import Config, parse
from gpuwatch.config.errors import RENAMED
from gpuwatch.model.errors import UsageError


@pytest.mark.parametrize(("before", "now"), RENAMED.items())
def test_the_error_names_the_new_key(before: str, now: str):
    section, key = before.split(".")
    with pytest.raises(UsageError, match=f"unknown key {before}") as caught:
        parse({section: {key: []}}, "a file")
    assert f"it is {now} now" in str(caught.value)
    assert hasattr(getattr(Config(), section), now.split(".")[1])
