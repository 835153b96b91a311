"""Recordings of a driver: what the real readers saw on the fake library shows again in the replay."""

import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import NvmlFailure, ask
from gpuwatch.model.errors import NoGpuStack, UsageError
from gpuwatch.model.snapshot import Gpu
from gpuwatch.sim.capture import codec, open_capture, record
from gpuwatch.sim.capture.data import Header, Recording, error, load, new_capture
from gpuwatch.sim.capture.record import Recorder
from gpuwatch.sim.capture.replay import Replay
from tests.fakes.libnvml import FakeDriver, FakeMig, FakeProcess
from tests.seeds import examples

SAMPLES = 7
READ = """
import sys, msgspec
from pathlib import Path
from gpuwatch.sim.capture.data import Recording, new_capture
from gpuwatch.sim.capture.record import Recorder
from gpuwatch.collect.nvml.library import ask, open_library
from gpuwatch.collect.nvml.gpu import GpuReader, register

nvml = Recorder(open_library(sys.argv[1]), Recording())
ask(nvml, "nvmlInit")
readers = [GpuReader(nvml, *register(nvml, i)) for i in range(ask(nvml, "nvmlDeviceGetCount"))]
for sample in range(int(sys.argv[3])):
    print(msgspec.json.encode([reader.read(float(sample), float(sample)) for reader in readers]).decode(), flush=True)
    sys.stdin.readline()
with new_capture(Path(sys.argv[2])) as save:
    save(nvml.recording)
"""
RECORD = """
import sys
from pathlib import Path
from gpuwatch.sim.capture import record
from gpuwatch.collect.nvml.library import open_library

record(open_library(sys.argv[1]), 3, 0.2, Path(sys.argv[2]), masked=len(sys.argv) > 3)
"""


def start(script: str, driver: FakeDriver, *args: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(driver.library), *map(str, args)]
    return subprocess.Popen(command, env=driver.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def live(driver: FakeDriver, path: Path, between: Callable[[int], None]) -> list[list[Gpu]]:
    """What the readers see on the fake library while all of it is recorded to `path`."""
    seen = []
    with start(READ, driver, path, SAMPLES) as process:
        for sample in range(SAMPLES):
            seen.append(msgspec.json.decode(process.stdout.readline(), type=list[Gpu]))
            between(sample)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0
    return seen


def replayed(nvml: Any, samples: int = SAMPLES) -> list[list[Gpu]]:
    ask(nvml, "nvmlInit")
    readers = [GpuReader(nvml, *register(nvml, index)) for index in range(ask(nvml, "nvmlDeviceGetCount"))]
    seen = [[reader.read(float(sample), float(sample)) for reader in readers] for sample in range(samples)]
    return msgspec.json.decode(msgspec.json.encode(seen), type=list[list[Gpu]])


@pytest.mark.parametrize("profile", ["535", "550", "580"])
def test_replay_shows_what_the_readers_saw(profile: str, tmp_path: Path) -> None:
    path = tmp_path / "node.capture.gz"
    with FakeDriver(tmp_path / "driver", gpus=2, profile=profile) as driver:
        driver.set_mig(1, [FakeMig(gi=1, ci=0, uuid="MIG-11111111-1111-1111-1111-111111111111")])
        driver.set_processes(0, [FakeProcess(pid=4242, memory=3 << 30, sm=55)])

        def busier(sample: int) -> None:
            driver.set(0, power_mw=300_000 + 1000 * sample, temperature=50 + sample)
            driver.push_sample(0, pynvml.NVML_TOTAL_POWER_SAMPLES, 310_000 + sample)
            driver.push_sample(0, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 90 + sample)

        seen = live(driver, path, busier)

    assert replayed(open_capture(str(path))) == seen
    assert len({gpus[0].power.average for gpus in seen}) == SAMPLES
    assert seen[-1][0].processes
    assert seen[-1][1].mig


def test_lost_gpu_stays_lost_in_the_replay(tmp_path: Path) -> None:
    recording = Recording()
    for answer in (71_000, error(pynvml.NVML_ERROR_GPU_IS_LOST)):
        recording.add(("nvmlDeviceGetPowerUsage", "@gpu0"), answer)
    recording.add(("nvmlDeviceGetHandleByIndex", 0), {"handle": "@gpu0"})
    nvml = Replay(recording)
    handle = ask(nvml, "nvmlDeviceGetHandleByIndex", 0)

    assert ask(nvml, "nvmlDeviceGetPowerUsage", handle) == 71_000
    for _ in range(3):
        with pytest.raises(NvmlFailure, match="GPU is lost"):
            ask(nvml, "nvmlDeviceGetPowerUsage", handle)


def test_loop_begins_again_and_plain_replay_holds_the_last_answer(tmp_path: Path) -> None:
    recording = Recording()
    recording.add(("nvmlDeviceGetHandleByIndex", 0), {"handle": "@gpu0"})
    for watts in (70, 70, 300):
        recording.add(("nvmlDeviceGetPowerUsage", "@gpu0"), watts)
    path = tmp_path / "a.capture"
    with new_capture(path) as save:
        save(recording)

    def draws(target: str) -> list[int]:
        nvml = open_capture(target)
        handle = ask(nvml, "nvmlDeviceGetHandleByIndex", 0)
        return [ask(nvml, "nvmlDeviceGetPowerUsage", handle) for _ in range(5)]

    assert draws(str(path)) == [70, 70, 300, 300, 300]
    assert draws(f"{path}#loop") == [70, 70, 300, 70, 70]


def test_what_was_not_recorded_is_not_supported_and_the_rest_is_pynvml() -> None:
    nvml = Replay(Recording())

    with pytest.raises(pynvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetPowerUsage(None)
    assert nvml.NVMLError is pynvml.NVMLError
    assert nvml.c_nvmlMemory_v2_t is pynvml.c_nvmlMemory_v2_t
    assert not hasattr(nvml, "nvmlDeviceGetNonsense")


def test_record_writes_a_file_with_driver_models_and_times(tmp_path: Path) -> None:
    path = tmp_path / "node.capture"
    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        driver.set(0, name="NVIDIA H100 80GB HBM3")
        with start(RECORD, driver, path) as process:
            pass
    assert process.returncode == 0
    header, *lines, end = path.read_text().splitlines()

    assert json.loads(header)["models"] == ["NVIDIA H100 80GB HBM3"]
    assert json.loads(header)["samples"] == 3
    assert json.loads(end)["end"] == len(lines)
    rates = next(line for line in map(json.loads, lines) if line["ask"] == ["nvmlDeviceGetUtilizationRates", "@gpu0"])
    assert sum(count for count, _ in rates["answers"]) == 3
    assert len(rates["us"]) == 3


def test_events_of_the_time_are_replayed_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "node.capture"
    with FakeDriver(tmp_path / "driver", gpus=2) as driver, start(RECORD, driver, path) as process:
        while process.poll() is None:
            driver.xid(1, 79)
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
    slept: list[float] = []
    nvml = Replay(load(path.read_bytes(), path), sleep=slept.append)
    events = DriverEventReader(nvml)
    handle, identity = register(nvml, 1)
    events.add(handle, identity)
    seen = [event for _ in range(200) if (event := events.wait(500, lambda: 0.0))]

    assert seen
    assert {(event.kind, event.data, event.uuid) for event in seen} == {("xid", 79, identity.uuid)}
    assert set(slept) == {0.5}
    assert events.wait(500, lambda: 0.0) is None


def test_masked_recording_holds_no_serial_and_no_uuid(tmp_path: Path) -> None:
    path = tmp_path / "node.capture"
    uuid, serial = "GPU-529b3263-c96d-b557-bc75-697f04917eda", "1650522000123"
    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        driver.set(0, uuid=uuid, serial=serial)
        with start(RECORD, driver, path, "mask") as process:
            pass
    assert process.returncode == 0
    nvml = open_capture(str(path))
    handle, identity = register(nvml, 0)

    assert uuid not in path.read_text()
    assert serial not in path.read_text()
    assert identity.serial == "0" * len(serial)
    assert identity.uuid.startswith("GPU-")
    assert ask(nvml, "nvmlDeviceGetUUID", handle) == identity.uuid


def test_a_recording_needs_a_driver(tmp_path: Path) -> None:
    recording = Recording()
    recording.add(("nvmlDeviceGetCount",), error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

    with pytest.raises(NoGpuStack, match="Driver Not Loaded"):
        record(Replay(recording), 1, 0.0, tmp_path / "never.capture")


def test_recording_a_replay_gives_the_same_answers(tmp_path: Path) -> None:
    """Also the way to turn an nvidia-smi dump into a capture."""
    dump = next(Path(__file__).parent.parent.joinpath("captures").glob("h200-mig*"))
    path = tmp_path / "from-dump.capture.gz"
    record(open_capture(f"{dump}#load"), 2, 0.0, path, sleep=lambda _: None)

    assert replayed(open_capture(str(path)), 2) == replayed(open_capture(f"{dump}#load"), 2)


class Handle(tuple[int, ...]):
    """A simulator's handle."""

    _fields = ("gpu",)


def test_structs_and_handles_of_a_simulator_are_plain_objects(tmp_path: Path) -> None:
    class Shaped:
        def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:
            return Handle((index,))

        def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Any:
            return pynvml.nvmlFriendlyObject({"gpu": 40 + handle[0], "memory": 3})

    recorder = Recorder(Shaped(), Recording())
    for index in (0, 1):
        recorder.nvmlDeviceGetUtilizationRates(recorder.nvmlDeviceGetHandleByIndex(index))
    nvml = Replay(recorder.recording)

    assert [nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(i)).gpu for i in (0, 1)] == [40, 41]


# ---- bad files ----


def whole() -> bytes:
    recording = Recording(Header(driver="580.95.05"))
    recording.add(("nvmlDeviceGetCount",), 1)
    recording.add(("nvmlDeviceGetHandleByIndex", 0), {"handle": "@gpu0"})
    recording.add(("nvmlDeviceGetUUID", "@gpu0"), "GPU-529b3263-c96d-b557-bc75-697f04917eda")
    recording.add(
        ("nvmlDeviceGetPciInfo", "@gpu0"), {"struct": "nvmlPciInfo_t", "members": {"busId": "00000000:1A:00.0"}}
    )
    recording.add(("nvmlDeviceGetFieldValues", "@gpu0", pynvml.NVML_FI_DEV_POWER_INSTANT, 0), {"type": 3, "value": 71})
    return recording.encoded()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither a recording nor nvidia-smi"),
        (b"\x7fELF\x02\x01\x01", "neither a recording nor nvidia-smi"),
        (b'{"format":"something else"}\n', "neither a recording nor nvidia-smi"),
        (whole().replace(b'"version":1', b'"version":99'), "another version"),
        (whole()[:-20], "not a whole capture"),
        (whole().rsplit(b"\n", 2)[0], "not a whole capture"),
        (whole().replace(b'"answers":[[1,1]]', b'"answers":[]'), "not a whole capture"),
        (whole().replace(b'"answers":[[1,1]]', b'"answers":[[1,2]]'), "content was changed"),
        (gzip.compress(whole(), mtime=0)[:-9], "cannot read"),
    ],
)
def test_bad_files_are_refused_with_the_reason(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.capture"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=words) as caught:
        open_capture(str(path))
    assert caught.value.next_step


HEAD = "==============NVSMI LOG==============\nDriver Version : 580.95.05\nAttached GPUs : 1\n"
COSTLY = {
    "declarations without an end": "<?xml \n" * 12_000,
    "many dumps": HEAD * 3_000,
    "a heading of blanks": HEAD + "# a" + " " * 40_000 + "x\n",
    "a value of blanks": HEAD + "GPU 00000000:01:00.0\n    Product Name : " + ("a" + " " * 400) * 200 + "[\n",
    "one line of GPUs": HEAD + "GPU 0: x (UUID: b" * 8_000 + "\n",
    "an element of line ends": "<nvidia_smi_log><a>" + "\n" * 200_000 + "</a></nvidia_smi_log>",
}


@pytest.mark.parametrize("kind", COSTLY)
def test_a_dump_made_to_cost_time_does_not(kind: str, tmp_path: Path) -> None:
    """Each took between 1 and 40 seconds of a pattern that tries every length at every place."""
    path = tmp_path / "dump.txt"
    path.write_text(COSTLY[kind])
    began = time.process_time()
    with contextlib.suppress(UsageError):
        open_capture(str(path))
    assert time.process_time() - began < 0.8


def test_a_pipe_is_no_capture(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no plain file"):
        open_capture(str(tmp_path / "pipe"))


def test_a_recording_is_written_through_no_link_and_replaces_no_pipe(tmp_path: Path) -> None:
    """In a folder such as /tmp anybody may have made what stands beside the name."""
    path, precious = tmp_path / "a.capture", tmp_path / "precious"
    precious.write_text("old")
    (tmp_path / "a.capture.part").symlink_to(precious)
    with new_capture(path) as save:
        save(Recording())
    assert (precious.read_text(), path.is_file()) == ("old", True)
    os.mkfifo(tmp_path / "pipe")
    for wrong in (tmp_path / "pipe", Path()):
        with (
            pytest.raises(UsageError, match=r"cannot write the capture .*; it is not a regular file"),
            new_capture(wrong),
        ):
            pass
    assert (tmp_path / "pipe").is_fifo()


def test_a_place_that_cannot_be_written_is_noticed_before_the_first_sample(tmp_path: Path) -> None:
    """Not after hours; and a driver that does not start leaves an older recording as it is."""
    driver = Recording()
    driver.add(("nvmlInit",), error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    with pytest.raises(UsageError, match=r"cannot write the capture .*; No such file or directory"):
        record(Replay(driver), 1, 0.0, tmp_path / "none" / "a.capture")
    (tmp_path / "old.capture").write_text("old")
    with pytest.raises(NoGpuStack):
        record(Replay(driver), 1, 0.0, tmp_path / "old.capture")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.capture", "old")]


def test_missing_file_and_unknown_part_are_named(tmp_path: Path) -> None:
    path = tmp_path / "good.capture"
    path.write_bytes(whole())

    with pytest.raises(UsageError, match="No such file"):
        open_capture(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no part 'load'"):
        open_capture(f"{path}#load")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(200))
@given(data=st.data())
def test_damaged_recordings_are_refused_or_answered(data: st.DataObject, tmp_path: Path) -> None:
    """Whatever bytes change, opening says UsageError and reading says NvmlFailure, and nothing else escapes."""
    content = bytearray(whole())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=6))
    path = tmp_path / "damaged.capture"
    path.write_bytes(bytes(content))
    try:
        nvml = open_capture(str(path))
    except UsageError:
        return
    try:
        handle, identity = register(nvml, 0)
        gpu = GpuReader(nvml, handle, identity).read(0.0, 0.0)
    except NvmlFailure:
        return
    assert gpu.identity == identity


def test_a_number_in_a_char_stays_the_number_it_is():
    """`slotNumber` of nvmlPlatformInfo_t is an unsigned char; pynvml reads it as UTF-8, which 0xf7 is not."""
    platform = pynvml.c_nvmlPlatformInfo_v2_t()
    object.__setattr__(platform, "slotNumber", b"\xf7")
    object.__setattr__(platform, "hostId", b"\x03")
    copy = pynvml.c_nvmlPlatformInfo_v2_t()
    codec.fill(copy, codec.members(platform, lambda _: None), lambda _: None)
    assert [object.__getattribute__(copy, name) for name in ("slotNumber", "hostId")] == [b"\xf7", b"\x03"]
