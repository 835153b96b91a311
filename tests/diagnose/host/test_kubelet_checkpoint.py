"""The kubelet's checkpoint is read, and its checksum is the one that kubelets compute."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.kubelet_files import parse_checkpoint, sealed

EMPTY = (
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":'
    '["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}'
)
ONE_POD = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",'
    '"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":'
    '"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},'
    '"Checksum":3660592824}'
)
TWO_DEVICES = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app",'
    '"ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65",'
    '"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0'
    "OS1iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRp"
    "YWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0t"
    "dG9vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoM"
    'L2Rldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],'
    '"RegisteredDevices":{"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c",'
    '"GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}'
)
REAL = {"no pod": EMPTY, "one pod": ONE_POD, "two devices on NUMA node 1": TWO_DEVICES}
"""Published by people who printed theirs."""


@pytest.mark.parametrize("content", REAL.values(), ids=REAL)
def test_real_checkpoints_fit_their_checksums(content: str) -> None:
    assert parse_checkpoint(content).is_intact


@pytest.mark.parametrize("content", REAL.values(), ids=REAL)
def test_what_was_changed_does_not(content: str) -> None:
    changed = content.replace('"RegisteredDevices":{"nvidia.com/gpu":["', '"RegisteredDevices":{"nvidia.com/gpu":["x')
    assert parse_checkpoint(changed).is_intact is False


def test_registered_devices_by_resource() -> None:
    assert parse_checkpoint(EMPTY).registered == {"nvidia.com/gpu": ("GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0",)}
    assert len(parse_checkpoint(TWO_DEVICES).registered["nvidia.com/gpu"]) == 3
    assert parse_checkpoint('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}').registered == {}


def test_a_copy_without_the_rows_of_containers_cannot_be_summed_up() -> None:
    copy = json.loads(ONE_POD)
    del copy["Data"]["PodDeviceEntries"][0]["AllocResp"]
    assert parse_checkpoint(json.dumps(copy)).is_intact is None


def test_old_kubelets_sum_up_otherwise() -> None:
    old = json.loads(ONE_POD)
    old["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = ["tegra"]
    found = parse_checkpoint(json.dumps(old))
    assert found.is_intact is None
    assert found.registered == {"nvidia.com/gpu": ("tegra",)}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "{}", '{"Data":{}}', "[" * 100_000, EMPTY[:80], "\x00" * 40]
)
def test_what_is_no_checkpoint_reports_it(content: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_checkpoint(content)


@given(st.dictionaries(st.text(max_size=6), st.lists(st.text(max_size=6), max_size=3), max_size=4))
def test_a_sealed_one_is_intact_and_shows_the_same(registered: dict[str, list[str]]) -> None:
    found = parse_checkpoint(sealed(registered))
    assert found.is_intact
    assert found.registered == {name: tuple(sorted(ids)) for name, ids in registered.items()}


@given(st.integers(0, len(TWO_DEVICES) - 1), st.binary(max_size=3))
def test_a_damaged_one_is_refused_or_read(at: int, noise: bytes) -> None:
    damaged = TWO_DEVICES.encode()[:at] + noise + TWO_DEVICES.encode()[at + len(noise) :]
    try:
        found = parse_checkpoint(damaged)
    except ValueError:
        return
    assert found.is_intact in (True, False, None)
