"""Every form of device id leads to the same GPU or instance, and a wrong or ambiguous one to none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.snapshot import Gpu, Identity, MigInstance
from gpuwatch.workloads.devices import devices_of, is_ambiguous, on_instance, resolve


def gpu(index: int, *mig: MigInstance, minor: int | None = None) -> Gpu:
    identity = Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"00000000:{index:02X}:00.0", minor=minor)
    return Gpu(identity=identity, mig=mig)


def instance(index: int, gi: int, ci: int = 0, profile: str = "1g.10gb", start: int | None = None) -> MigInstance:
    return MigInstance(index=index, uuid=f"MIG-{gi}-{ci}", gi=gi, ci=ci, profile=profile, start=start)


WHOLE = gpu(0, minor=1)
CUT = gpu(1, instance(0, 1, profile="3g.40gb"), instance(1, 7), instance(2, 8), instance(3, 8, 1), minor=0)
NODE = (WHOLE, CUT)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("GPU-0", ("GPU-0", None)),
        ("GPU-0::2", ("GPU-0", None)),
        ("0", ("GPU-0", None)),
        ("nvidia1", ("GPU-0", None)),
        ("gpu-1", ("GPU-0", None)),
        ("nvidia.com/gpu=GPU-0", ("GPU-0", None)),
        ("MIG-7-0", ("GPU-1", "MIG-7-0")),
        ("MIG-7-0::1", ("GPU-1", "MIG-7-0")),
        ("MIG-GPU-1/8/1", ("GPU-1", "MIG-8-1")),
        ("1:1", ("GPU-1", "MIG-7-0")),
        ("nvidia0/gi7", ("GPU-1", "MIG-7-0")),
        ("nvidia0/gi8/vgpu0", ("GPU-1", "MIG-8-0")),
        ("gpu-0-mig-3g40gb-9-4", ("GPU-1", "MIG-1-0")),
    ],
)
def test_each_form_finds_its_device(text: str, key: tuple[str, str | None]) -> None:
    assert [device.key for device in resolve(text, NODE)] == [key]


@pytest.mark.parametrize(
    "text", ["GPU-9", "MIG-9-0", "7", "nvidia7", "1:9", "nvidia0/gi2", "gpu-0-mig-19-3-1", "gpu-0-mig-7g80gb-0-0", "?"]
)
def test_what_is_not_here_or_not_certain_finds_nothing(text: str) -> None:
    assert resolve(text, NODE) == ()


@pytest.mark.parametrize(
    ("text", "uuids"),
    [
        ("gpu-2-mig-19-0-1", ["MIG-1-0"]),
        ("gpu-2-mig-1g10gb-19-1", ["MIG-2-0"]),
        ("k8s.gpu.nvidia.com/device=gpu-2-mig-9-4-4", ["MIG-3-0"]),
        ("gpu-2-mig-19-2-1", []),
        ("gpu-2-mig-3g40gb-9-0", []),
    ],
)
def test_a_dra_name_is_certain_where_the_driver_reports_placements(text: str, uuids: list[str]) -> None:
    placed = gpu(2, *(instance(at, at + 1, start=at) for at in range(2)), instance(2, 3, 0, "3g.40gb", 4), minor=2)
    assert [device.key[1] for device in resolve(text, [*NODE, placed])] == uuids
    assert not is_ambiguous(text, [placed])


def test_without_placements_a_dra_name_is_ambiguous_not_gone() -> None:
    assert is_ambiguous("gpu-0-mig-19-3-1", NODE)
    assert not any(
        is_ambiguous(text, NODE) for text in ("gpu-1-mig-19-3-1", "gpu-7-mig-19-3-1", "MIG-9-0", "gpu-0", "?")
    )


def test_a_whole_gpu_that_is_cut_means_all_its_instances() -> None:
    assert resolve("GPU-1", NODE) == devices_of(CUT)


def test_without_minor_numbers_the_index_stands_in() -> None:
    assert [device.key for device in resolve("nvidia1", (gpu(0), gpu(1)))] == [("GPU-1", None)]


@pytest.mark.parametrize(
    ("gi", "ci", "uuid"), [(7, 0, "MIG-7-0"), (8, 1, "MIG-8-1"), (8, None, "MIG-8-0"), (None, None, None), (3, 0, None)]
)
def test_a_process_on_a_cut_gpu_is_placed_by_its_ids(gi: int | None, ci: int | None, uuid: str | None) -> None:
    device = on_instance(CUT, gi, ci)
    assert (device.key[1] if device else None) == uuid


@given(st.text(max_size=40))
def test_any_text_is_resolved_without_an_error(text: str) -> None:
    assert all(device.gpu in NODE for device in resolve(text, NODE))
