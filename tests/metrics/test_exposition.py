"""The encoder, judged by the parsers of prometheus_client and by promtool."""

import math
import shutil
import subprocess
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.metric import Family, Sample, label_text
from gpuwatch.metrics.native import collect
from gpuwatch.metrics.page_cache import PROFILES, Profiles
from gpuwatch.model.text import visible
from tests.metrics.golden_pages import PAGES, render
from tests.model.view_factory import full_view

Series = set[tuple[str, frozenset[tuple[str, str]], float]]


def gauge(*samples: Sample, name: str = "some_bytes", labels: tuple[str, ...] = ()) -> Family:
    return Family(name, "gauge", "Help.", labels, list(samples))


def series(parsed: Iterable[object]) -> Series:
    return {(s.name, frozenset(s.labels.items()), s.value) for family in parsed for s in family.samples}  # type: ignore[attr-defined]


def expected(families: Iterable[Family]) -> Series:
    """What the rows say, in the parser's terms. Subjects of these tests hold neither quotes nor commas."""
    found = set()
    for family in families:
        for (subject, own), value in family.samples:
            labels = {part.partition("=")[0]: part.partition("=")[2].strip('"') for part in subject.split(",") if part}
            labels |= {name: text for name, text in zip(family.labels, own, strict=True) if text}
            found.add((family.name, frozenset(labels.items()), float(value)))
    return found


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("workload_labels", ["info", "inline"])
def test_the_parsers_read_back_what_the_rows_say(openmetrics: bool, workload_labels: str) -> None:
    families = collect(full_view(2), MetricsConfig(processes=True, workload_labels=workload_labels))  # type: ignore[arg-type]
    page = Encoder().encode(families, openmetrics=openmetrics).decode()
    assert series((parse_openmetrics if openmetrics else parse_text)(page)) == expected(families)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_all_profiles_on_one_page_have_each_family_once(openmetrics: bool) -> None:
    families = Profiles(MetricsConfig(), "n").collect(full_view(2), PROFILES)
    page = Encoder().encode(families, openmetrics=openmetrics).decode()
    types = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len({line.split()[2] for line in types}) == len(types)
    parsed = list((parse_openmetrics if openmetrics else parse_text)(page))
    assert sum(len(family.samples) for family in parsed) == sum(len(family.samples) for family in families)


@given(text=st.text(), value=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**64), 2**64))
def test_any_label_value_comes_back_without_control_characters_and_any_number(text: str, value: float) -> None:
    family = gauge((("", (text,)), value), labels=("name",))
    for openmetrics, parse in ((False, parse_text), (True, parse_openmetrics)):
        page = Encoder().encode([family], openmetrics=openmetrics)
        [(_, labels, number)] = series(parse(page.decode()))
        assert dict(labels).get("name", "") == visible(text)
        assert float(number) == float(value)


def test_bytes_that_are_not_utf8_do_not_stop_the_page() -> None:
    name = b"bad\xff".decode("utf-8", "surrogateescape")
    page = Encoder().encode([gauge((("", (name,)), 1), labels=("name",))])
    assert b'some_bytes{name="bad\\\\udcff"} 1\n' in page


def test_what_is_not_finite_is_left_out() -> None:
    values = [1.0, math.nan, math.inf, 2.0, -math.inf]
    samples = [((label_text(n=position), ()), value) for position, value in enumerate(values)]
    page = Encoder().encode([gauge(*samples)]).decode()
    assert {value for _, _, value in series(parse_text(page))} == {1.0, 2.0}
    assert Encoder().encode([gauge((("", ()), math.nan))]) == b""


def test_numbers_are_as_short_as_they_can_be() -> None:
    values = {
        0.1: "0.1",
        1e22: "1e+22",
        63.421: "63.421",
        2**63: "9223372036854775808",
        True: "1",
        False: "0",
        1e9: "1000000000.0",
    }
    for value, written in values.items():
        assert Encoder().encode([gauge((("", ()), value))]).decode().splitlines()[-1] == f"some_bytes {written}"


def test_empty_and_unknown_labels_are_not_written() -> None:
    page = Encoder().encode([gauge((('gpu="0"', (None, "", "x")), 1), labels=("a", "b", "c"))])
    assert b'some_bytes{gpu="0",c="x"} 1\n' in page


def test_openmetrics_names_types_and_units() -> None:
    one: list[Sample] = [(("", ()), 1)]
    families = [
        Family("a_joules_total", "counter", "H.", (), one),
        Family("DCGM_COUNT", "counter", "H.", (), one),
        Family("b_info", "info", "H.", (), one),
        Family("c_bytes", "gauge", "H.", (), one),
        Family("d_state", "stateset", "H.", (), one),
    ]
    text, openmetrics = (Encoder().encode(families, openmetrics=form).decode() for form in (False, True))
    parsed = {family.name: (family.type, family.unit) for family in parse_openmetrics(openmetrics)}
    assert parsed == {
        "a_joules": ("counter", "joules"),
        "DCGM_COUNT": ("unknown", ""),
        "b": ("info", ""),
        "c_bytes": ("gauge", "bytes"),
        "d_state": ("gauge", ""),
    }
    assert openmetrics.endswith("# EOF\n")
    assert [line for line in text.splitlines() if line.startswith("# TYPE")] == [
        "# TYPE a_joules_total counter",
        "# TYPE DCGM_COUNT counter",
        "# TYPE b_info gauge",
        "# TYPE c_bytes gauge",
        "# TYPE d_state gauge",
    ]


def test_label_text_is_forgotten_with_its_series() -> None:
    encoder = Encoder()
    for count in (3, 1, 0):
        encoder.encode([gauge(*((("", (str(n),)), 1) for n in range(count)), labels=("n",))])
        assert len(encoder) == count
    for n in range(100):
        encoder.encode([gauge((("", (str(n),)), 1), labels=("n",))])
    assert len(encoder) == 1


def test_remembered_text_gives_the_same_page() -> None:
    encoder, view = Encoder(), full_view(2)
    pages = {encoder.encode(collect(view, MetricsConfig())) for _ in range(3)}
    assert pages == {Encoder().encode(collect(view, MetricsConfig()))}


BILLED = "gpuwatch_recommendation_gpu_hours_per_day use base unit"
"""GPU-hours are what GPUs are billed by; promtool would have seconds."""


@pytest.mark.parametrize("page", [name for name in PAGES if name.startswith("native") and "openmetrics" not in name])
def test_promtool_finds_nothing_to_complain_about(page: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=render(page), capture_output=True, check=False, timeout=30
    )
    said = [line for line in done.stderr.decode().splitlines() if not line.startswith(BILLED)]
    assert (done.stdout.decode(), said) == ("", [])
