"""The MIG profile table is consistent with itself, with what real drivers printed, and cheap until it is needed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.rightsizing.model.mig_profiles import GIB, GpuModel, Profile, instance, model_of, of, table

CAPTURE = Path(__file__).parents[2] / "captures" / "h200-mig__590.48.01.txt"
MODELS = table().gpus
ROWS = [(model, profile) for model in MODELS for profile in model.profiles]
IDS = [f"{model.name}/{profile.name}" for model, profile in ROWS]

SEVEN = {19: "{0,1,2,3,4,5,6}:1", 15: "{0,2,4,6}:2", 14: "{0,2,4}:2", 9: "{0,4}:4", 5: "{0}:4", 0: "{0}:8"}
PRINTED = {
    "NVIDIA A100-SXM4-40GB": SEVEN,
    "NVIDIA H100 80GB HBM3": SEVEN,
    "NVIDIA H100 NVL": SEVEN,
    "NVIDIA A30": {14: "{0,1,2,3}:1", 5: "{0,2}:2", 0: "{0}:4"},
}
"""What `nvidia-smi mig -lgipp` printed on machines with these GPUs, by profile id."""

SHAPES = {
    "NVIDIA A30": {14: (1, 1), 5: (2, 2), 0: (4, 4)},
    "": {19: (1, 1), 15: (1, 2), 14: (2, 2), 9: (3, 4), 5: (4, 4), 0: (7, 8)},
}
"""Compute and memory slices of each profile id."""


@pytest.mark.parametrize(("model", "profile"), ROWS, ids=IDS)
def test_a_profile_agrees_with_its_name_and_its_model(model: GpuModel, profile: Profile) -> None:
    compute, gigabytes = map(int, re.match(r"(\d)g\.(\d+)gb(\+me)?$", profile.name).group(1, 2))
    assert profile.compute_slices == compute <= model.compute_slices
    assert profile.size == profile.memory_slices <= model.memory_slices
    assert profile.memory_fraction == pytest.approx(profile.memory_slices / model.memory_slices)
    assert profile.sm_fraction_nominal == pytest.approx(compute / model.compute_slices, abs=1e-4)
    assert all(start >= 0 and start + profile.size <= model.memory_slices for start in profile.starts)
    assert 0.8 * gigabytes <= profile.memory / GIB <= gigabytes <= model.memory_gb
    assert profile.memory_gib_usable in (None, profile.planning_gib)
    assert profile.resource == f"nvidia.com/mig-{profile.name.replace('+', '.')}"


@pytest.mark.parametrize(("model", "profile"), ROWS, ids=IDS)
def test_as_many_instances_fit_as_the_table_says(model: GpuModel, profile: Profile) -> None:
    taken, count = -1, 0
    for start in sorted(profile.starts):
        if start > taken:
            taken, count = start + profile.size - 1, count + 1
    fit = min(count, model.compute_slices // profile.compute_slices)
    assert profile.max_instances == (1 if profile.media else fit)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_larger_profile_never_has_less(model: GpuModel) -> None:
    plain = model.plain()
    assert [profile.memory for profile in plain] == sorted(profile.memory for profile in plain)
    assert len({(each.memory_slices, each.compute_slices) for each in plain}) == len(plain)
    by_compute = sorted(plain, key=lambda each: (each.compute_slices, each.memory_slices))
    assert [each.sm_count or 0 for each in by_compute if each.sm_count] == sorted(
        each.sm_count for each in by_compute if each.sm_count
    )
    assert plain[-1].memory_slices == model.memory_slices, "the last takes the whole GPU"
    assert model.share(plain[-1]) == 1


@pytest.mark.parametrize(("model", "profile"), ROWS, ids=IDS)
def test_known_multiprocessors_give_the_fraction(model: GpuModel, profile: Profile) -> None:
    if profile.sm_count is None or model.sm_total is None:
        assert profile.sm_fraction is None
        assert profile.sm_share == profile.sm_fraction_nominal
        assert profile.estimated
    else:
        assert profile.sm_fraction == pytest.approx(profile.sm_count / model.sm_total, abs=1e-4)
        assert profile.sm_share == profile.sm_fraction
    assert not profile.estimated or None in (profile.sm_fraction, profile.memory_gib_usable)


@pytest.mark.parametrize("name", PRINTED)
def test_placements_are_those_that_drivers_print(name: str) -> None:
    shapes = SHAPES.get(name, SHAPES[""])
    printed = {shapes[number]: placement for number, placement in PRINTED[name].items()}
    ours = {
        (profile.compute_slices, profile.memory_slices): f"{{{','.join(map(str, profile.starts))}}}:{profile.size}"
        for profile in of(name)
    }
    assert ours == printed


def test_memory_and_multiprocessors_are_those_of_a_real_h200() -> None:
    text = CAPTURE.read_text()
    names = re.findall(r"^  MIG (\S+) ", text, re.MULTILINE)
    offered = [int(size) << 20 for size in re.findall(r"Shared FB Memory Usage\s+Total\s+: (\d+) MiB", text)]
    counts = [int(count) for count in re.findall(r"Multiprocessor count\s+: (\d+)", text)]
    assert len({*names}) == 4
    for name, size, count in zip(names, offered, counts, strict=False):
        profile = instance("NVIDIA H200", None, name)
        assert profile is not None
        assert 0.97 * size <= profile.memory <= size, name
        assert profile.sm_count == count, name


@pytest.mark.parametrize(
    ("name", "memory_mib", "model"),
    [
        ("NVIDIA A30", 24576, "A30-24GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
        ("A100-SXM4-40GB", 40536, "A100-40GB"),
        ("NVIDIA A100-PCIE-40GB", None, "A100-40GB"),
        ("NVIDIA A800 40GB Active", None, "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe", None, "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB-SXM5"),
        ("NVIDIA-H100-80GB-HBM3", None, "H100-80GB-SXM5"),
        ("NVIDIA H800", 81559, "H100-80GB-SXM5"),
        ("NVIDIA H100 PCIe", 81559, "H100-80GB-PCIe"),
        ("NVIDIA H100 NVL", 95830, "H100-94GB-NVL"),
        ("NVIDIA GH200 480GB", 97871, "H100-96GB"),
        ("NVIDIA H20", 97871, "H20-96GB"),
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("NVIDIA H200 NVL", 143771, "H200-141GB"),
        ("NVIDIA GH200 144G HBM3e", None, "GH200-144GB"),
        ("NVIDIA B200", 183359, "B200-180GB"),
        ("NVIDIA GB200", 189471, "GB200-186GB"),
        ("NVIDIA B300 SXM6 AC", 275040, "B300-270GB"),
        ("NVIDIA GB300", 284208, "GB300-278GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTX-PRO-6000-96GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, "RTX-PRO-6000-96GB"),
    ],
)
def test_names_as_nvml_writes_them(name: str, memory_mib: int | None, model: str) -> None:
    found = model_of(name, memory_mib and memory_mib << 20)
    assert found is not None
    assert found.name == model
    assert of(name, memory_mib and memory_mib << 20) == found.plain()


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    [
        (None, None),
        ("Tesla T4", 15360),
        ("NVIDIA L40S", 46068),
        ("NVIDIA H20-3e", 143771),
        ("NVIDIA A100-SXM-64GB", 65536),
        ("NVIDIA A100X", 81920),
        ("NVIDIA H100", 65536),
        ("NVIDIA GB200", 201326),
        ("NVIDIA RTX 6000 Ada Generation", 49140),
    ],
)
def test_others_have_no_profiles(name: str | None, memory_mib: int | None) -> None:
    assert model_of(name, memory_mib and memory_mib << 20) is None
    assert of(name, memory_mib and memory_mib << 20) == ()


def test_memory_of_an_instance_does_not_hide_its_gpu() -> None:
    for model, profile in ROWS:
        if profile.memory_slices < model.memory_slices:
            name = model.names[0].replace("*", "Server Edition")
            assert model_of(name, profile.memory) is model, f"{name} {profile.name}"


def test_what_to_choose_from_is_without_media_engines_and_least_first() -> None:
    assert [profile.name for profile in of("NVIDIA A100-SXM4-40GB")] == [
        "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb",
    ]  # fmt: skip


def test_a_part_of_an_instance_has_its_memory_and_a_part_of_its_multiprocessors() -> None:
    whole = instance("NVIDIA H100 80GB HBM3", None, "3g.40gb")
    part = instance("NVIDIA H100 80GB HBM3", None, "2c.3g.40gb")
    assert whole
    assert part
    assert part.memory == whole.memory
    assert part.memory_fraction == whole.memory_fraction
    assert part.sm_count == 2 * of("NVIDIA H100 80GB HBM3")[0].sm_count < whole.sm_count
    assert part.sm_share == pytest.approx(part.sm_count / 132, abs=1e-4)
    assert instance("NVIDIA H100 80GB HBM3", None, "1g.10gb+me").media
    assert instance("NVIDIA H100 80GB HBM3", None, "1g.5gb") is None
    assert instance("NVIDIA H100 80GB HBM3", None, None) is None
    assert instance("Tesla T4", None, "1g.10gb") is None


def test_device_filters_name_one_model_each() -> None:
    ids = [number for model in MODELS for number in model.pci_device_ids]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"0x[0-9A-F]{4}10DE", number) for number in ids)


def test_nobody_loads_it_who_does_not_ask() -> None:
    code = (
        "import gpuwatch.rightsizing.model.mig_profiles as m, gpuwatch.rightsizing.usage.mig_slowdown; "
        "assert m.table.cache_info().currsize == 0; m.of('NVIDIA A30'); assert m.table.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
