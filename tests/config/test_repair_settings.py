"""Commands of the operator: an absolute path, arguments, and for a reset the UUID of the GPU."""

from typing import Any

import pytest

from gpuwatch.config import parse
from gpuwatch.model.errors import UsageError


def refusal(**sections: Any) -> str:
    with pytest.raises(UsageError) as found:
        parse(sections, "test.yaml")
    return str(found.value)


def test_a_reset_that_does_not_name_the_gpu_is_refused() -> None:
    said = refusal(repair={"command": ["/usr/bin/nvidia-smi", "--gpu-reset"]})
    assert "repair.command" in said
    assert "{uuid}" in said


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"repair": {"command": ["nvidia-smi", "-i", "{uuid}"]}}, "repair.command"),
        ({"repair": {"nvidia_smi": "nvidia-smi"}}, "repair.nvidia_smi"),
        ({"remediation": {"validation": {"command": ["dcgmi", "diag"]}}}, "remediation.validation.command"),
    ],
)
def test_a_program_without_its_whole_path_is_refused(section: dict[str, Any], key: str) -> None:
    said = refusal(**section)
    assert key in said
    assert "no absolute path" in said


@pytest.mark.parametrize("repair", [{"deadline": 5}, {"tries": 0}, {"window": 1}, {"mode": "on"}])
def test_values_that_make_no_sense_are_refused(repair: dict[str, Any]) -> None:
    assert f"repair.{next(iter(repair))}" in refusal(repair=repair)


def test_the_defaults_are_safe() -> None:
    config = parse({}, "test.yaml")
    assert (config.repair.mode, config.repair.quarantined_only) == ("off", True)
    assert config.remediation.validate == "passive"
