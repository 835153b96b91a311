"""Which setting says how much memory a program takes at its start."""

import pytest

from gpuwatch.rightsizing.findings.preallocators import PREALLOCATORS, is_server, preallocator


@pytest.mark.parametrize(
    ("programs", "image", "expected"),
    [
        (("python3", "VLLM::EngineCore"), None, "vLLM"),
        (("/opt/tritonserver/bin/tritonserver",), "registry/mine:1", "Triton Inference Server"),
        (("python3",), "registry:5000/vllm/vllm-openai:v0.9", "vLLM"),
        (("python3",), "ghcr.io/huggingface/text-generation-inference@sha256:00", "Text Generation Inference"),
        (("python3",), "nvcr.io/nvidia/jax:24.01", "JAX"),
        (("tritonserver",), "vllm/vllm-openai", "Triton Inference Server"),
        (("python3",), "registry:5000/train", None),
        ((), None, None),
    ],
)
def test_the_program_counts_before_the_image(
    programs: tuple[str, ...], image: str | None, expected: str | None
) -> None:
    known = preallocator(programs, image)

    assert (known and known.name) == expected


def test_every_one_can_be_recognized_and_has_a_setting() -> None:
    assert all(each.setting and (each.programs or each.images) for each in PREALLOCATORS)


def test_a_server_is_known_by_its_program_or_image() -> None:
    assert is_server(("uvicorn",), None)
    assert is_server((), "lmsysorg/sglang:latest")
    assert not is_server(("python",), "nvcr.io/nvidia/jax:24.01")
    assert not is_server((), None)
