"""Numbers that make no sense as settings: each row of the table refuses what is beyond, and nothing else."""

import math

import pytest

from gpuwatch.config import parse
from gpuwatch.config.errors import RANGES
from gpuwatch.model.errors import UsageError

MAPPINGS = {("rightsizing", "prices"): "NVIDIA H100*"}
"""Settings whose values are ranged, with a key for the test."""


def document(path, value):
    if path in MAPPINGS:
        value = {MAPPINGS[path]: value}
    for name in reversed(path):
        value = {name: value}
    return value


def setting(config, path):
    for name in path:
        config = getattr(config, name)
    return config[MAPPINGS[path]] if path in MAPPINGS else config


@pytest.mark.parametrize("path", RANGES, ids=".".join)
def test_both_ends_of_a_range_are_taken_and_nothing_beyond(path):
    low, high = RANGES[path]
    for end in (low, high):
        assert setting(parse(document(path, end), "here"), path) == end
    for beyond in (low - 1, high + 1):
        with pytest.raises(UsageError, match=rf"at {'.'.join(path)}.* in here; .* no sense; use {low} to {high}"):
            parse(document(path, beyond), "here")


@pytest.mark.parametrize("path", [path for path in RANGES if path[0] == "rightsizing"], ids=".".join)
def test_no_number_at_all_is_none_either(path):
    for value in (math.nan, math.inf):
        with pytest.raises(UsageError, match="wrong value at"):
            parse(document(path, value), "here")
