"""Every way to name a GPU is read to the same record, and nothing a plugin may send breaks the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.workloads.devices import DeviceId, compact_profile, parse_device_id

UUID = "d0a3ad8c-5f2c-4f6c-9f0e-0123456789ab"
CLAIM = "3f1c7c1e-8d2b-4f7e-9a55-5a2f0e6f7c11"

FORMS = {
    f"GPU-{UUID}": DeviceId(uuid=f"GPU-{UUID}"),
    f"MIG-{UUID}": DeviceId(uuid=f"MIG-{UUID}"),
    f"MIG-GPU-{UUID}/7/0": DeviceId(uuid=f"GPU-{UUID}", gi=7, ci=0),
    f"GPU-{UUID}::3": DeviceId(uuid=f"GPU-{UUID}", replica="3"),
    f"MIG-{UUID}::0": DeviceId(uuid=f"MIG-{UUID}", replica="0"),
    f"MIG-GPU-{UUID}/2/0::1": DeviceId(uuid=f"GPU-{UUID}", gi=2, ci=0, replica="1"),
    "0": DeviceId(index=0),
    "12::5": DeviceId(index=12, replica="5"),
    "0:1": DeviceId(index=0, mig_index=1),
    "nvidia0": DeviceId(minor=0),
    "nvidia3/gi3": DeviceId(minor=3, gi=3),
    "nvidia0/vgpu1": DeviceId(minor=0, replica="vgpu1"),
    "nvidia0/gi3/vgpu1": DeviceId(minor=0, gi=3, replica="vgpu1"),
    "gpu-4": DeviceId(minor=4),
    "gpu-0-mig-19-3-1": DeviceId(minor=0, mig_start=3),
    "gpu-0-mig-1g5gb-19-3": DeviceId(minor=0, mig_profile="1g5gb", mig_start=3),
    "gpu-1-mig-1g5gb-me-20-6": DeviceId(minor=1, mig_profile="1g5gb-me", mig_start=6),
    f"nvidia.com/gpu=GPU-{UUID}": DeviceId(uuid=f"GPU-{UUID}"),
    f"nvidia.com/mig=MIG-{UUID}": DeviceId(uuid=f"MIG-{UUID}"),
    "nvidia.com/gpu=0:1": DeviceId(index=0, mig_index=1),
    "k8s.gpu.nvidia.com/device=gpu-2": DeviceId(minor=2),
    f"k8s.gpu.nvidia.com/claim={CLAIM}-gpu-2": DeviceId(minor=2),
}


@pytest.mark.parametrize("text", FORMS)
def test_each_known_form_is_read_to_its_parts(text: str) -> None:
    assert parse_device_id(text) == FORMS[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU-",
        "MIG-GPU-x",
        "gpu",
        "nvidia",
        "nvidia.com/gpu=all",
        "-1",
        "1.5",
        "0:1:2",
        "٣",
        "nvidia0/gi",
        "GPU-a\n",
    ],
)
def test_an_unknown_form_is_none(text: str) -> None:
    assert parse_device_id(text) is None


def test_ids_of_mig_instances_show_it() -> None:
    assert {text for text in FORMS if FORMS[text].names_mig} == {
        text for text in FORMS if "MIG" in text or "mig-" in text or "gi" in text or "0:1" in text
    }


@given(st.text() | st.from_regex(r"(MIG-|GPU-|gpu-|nvidia|[0-9])[-:/0-9a-z]{0,30}(::[0-9]+)?"))
def test_any_text_is_parsed_or_refused_and_names_exactly_one_gpu(text: str) -> None:
    found = parse_device_id(text)
    if found is not None:
        assert [found.uuid, found.index, found.minor].count(None) == 2


@given(st.integers(0, 31), st.integers(1, 7), st.sampled_from(["", "+me", "+gfx", "+me.all"]), st.integers(0, 20))
def test_a_dynamic_mig_name_gives_the_profile_back(minor: int, slices: int, attribute: str, start: int) -> None:
    profile = compact_profile(f"{slices}g.{slices * 10}gb{attribute}")
    assert parse_device_id(f"gpu-{minor}-mig-{profile}-{slices}-{start}") == DeviceId(
        minor=minor, mig_profile=profile, mig_start=start
    )
