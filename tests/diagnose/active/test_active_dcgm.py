"""What `dcgmi diag -r 1 -j` says, in the words of several versions of DCGM, and what it does when it cannot."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.active import dcgm
from gpuwatch.diagnose.active.run import run_active
from gpuwatch.model.errors import GpuwatchError
from tests.diagnose.hosts import seen


def document(top: str, *tests: dict[str, Any]) -> str:
    return json.dumps(
        {top: {"test_categories": [{"category": "Deployment", "tests": list(tests)}]}, "version": "3.3.5"}
    )


GOOD = {"name": "NVML Library", "results": [{"gpu_ids": "0,1,2,3,4,5,6,7", "status": "PASS"}]}
OLD = {
    "name": "Persistence Mode",
    "results": [
        {"gpu_id": "0", "status": "Fail", "warnings": "Persistence mode for GPU 0 is disabled."},
        {"gpu_id": "1", "status": "Pass"},
    ],
}
MIDDLE = {
    "name": "Denylist",
    "results": [{"gpu_ids": "0,1", "status": "FAIL", "warnings": ["nouveau is loaded", "nvidiafb is loaded"]}],
}
NEW = {
    "name": "software",
    "results": [
        {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entity_id": 2,
            "status": "Fail",
            "warnings": [{"error_category": 7, "error_id": 40, "error_severity": 2, "warning": "page retirement"}],
        }
    ],
    "test_summary": {"status": "Fail"},
}

SAID = {
    "3, all well": (document("DCGM GPU Diagnostic", GOOD), {}),
    "3": (
        document("DCGM GPU Diagnostic", GOOD, OLD),
        {"Persistence Mode": "GPU 0: Persistence mode for GPU 0 is disabled."},
    ),
    "2": (
        "WARNING: THIS SHOULD NOT HAPPEN\n" + document("DCGM GPU Diagnostic", MIDDLE),
        {"Denylist": "GPU 0,1: nouveau is loaded, nvidiafb is loaded"},
    ),
    "4": (document("DCGM Diagnostic", NEW, GOOD), {"software": "GPU 2: page retirement"}),
    "skipped": (document("DCGM Diagnostic", {"name": "software", "results": [{"status": "Skip"}]}), {}),
    "no words": (document("DCGM Diagnostic", {"name": "x", "results": [{"status": "Fail"}]}), {"x": "failed"}),
}


@pytest.mark.parametrize("name", SAID)
def test_what_dcgm_says(name):
    text, failures = SAID[name]
    assert dcgm.parsed(text) == failures


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error: unable to establish a connection to the specified host: localhost",
        '{"DCGM Diagnostic": {"runtime_error": "no GPUs"}}',
        "{",
        "[]",
    ],
)
def test_what_says_nothing_is_no_pass(text):
    assert dcgm.parsed(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["name", "results", "status", "warnings"]), inner),
)


@given(JSON)
def test_any_document_is_survived(value):
    found = dcgm.parsed(json.dumps({"top": value}))
    assert found is None or all(isinstance(words, str) for words in found.values())


@given(st.text())
def test_any_text_is_survived(text):
    assert dcgm.parsed(text) is None or "{" in text


@pytest.fixture
def dcgmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a dcgmi that the test writes."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "dcgmi"


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_command_is_asked_for_level_1(dcgmi):
    write(
        dcgmi, f"test \"$*\" = 'diag -r 1 -j' || exit 9\ncat <<'END'\n{document('DCGM Diagnostic', NEW)}\nEND\nexit 226"
    )
    assert dcgm.failures(10) == {"software": "GPU 2: page retirement"}


def test_without_a_host_engine_it_says_so(dcgmi):
    write(dcgmi, "echo 'Error: unable to establish a connection to the specified host: localhost'; exit 1")
    with pytest.raises(GpuwatchError, match=r"unable to establish a connection.*is nv-hostengine running"):
        dcgm.failures(10)


def test_it_is_not_waited_for_for_ever(dcgmi):
    write(dcgmi, "exec sleep 60")
    with pytest.raises(GpuwatchError, match="no answer within 0 s"):
        dcgm.failures(0.3)


def test_it_is_asked_after_the_devices(dcgmi):
    write(dcgmi, f"cat <<'END'\n{document('DCGM GPU Diagnostic', OLD)}\nEND")
    active = run_active(seen(gpus=2), library="/nonexistent")
    assert active.dcgm == {"Persistence Mode": "GPU 0: Persistence mode for GPU 0 is disabled."}
    write(dcgmi, "exit 3")
    assert run_active(seen(gpus=2), library="/nonexistent").dcgm_error.startswith(
        "dcgmi diag -r 1 -j gave no result; exit status 3"
    )
