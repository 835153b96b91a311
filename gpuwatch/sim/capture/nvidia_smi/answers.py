"""Turns a parsed dump into a recording: the answers of NVML for which nvidia-smi prints this dump.

ROWS maps each line to the answer it came from; to read another line, add a row to its list. Paths are labels in lower
case, words joined by `_`; text and XML, older and newer drivers use different ones.
"""

import uuid
from typing import Any

import pynvml

from gpuwatch.collect.nvml.numbers import newest_number
from gpuwatch.model.pci import pci_key
from gpuwatch.rightsizing.model.mig_profiles import name_of
from gpuwatch.sim.capture.data import Answer, Header, Question, Recording, error
from gpuwatch.sim.capture.nvidia_smi.board import CLOCKS, PCIE, POWER, TEMPERATURE, fabric
from gpuwatch.sim.capture.nvidia_smi.ecc import ECC, REPAIRS
from gpuwatch.sim.capture.nvidia_smi.parse import NO_HANDLE, DumpNode, OtherOutputs
from gpuwatch.sim.capture.nvidia_smi.processes import names, process_lists
from gpuwatch.sim.capture.nvidia_smi.row import DumpRow, at, call
from gpuwatch.sim.capture.nvidia_smi.state import IDENTITY, MEMORY, MODES, PROTECTED, USE
from gpuwatch.sim.capture.nvidia_smi.values import NoValue, count, hexadecimal

ROWS: tuple[DumpRow, ...] = (
    *IDENTITY,
    *MODES,
    *USE,
    *MEMORY,
    PROTECTED,
    *POWER,
    *TEMPERATURE,
    *CLOCKS,
    *PCIE,
    *ECC,
    *REPAIRS,
)
"""Answers about a whole GPU; fabric, processes, NVLinks and MIG devices have their own files."""

MIG_ROWS: tuple[DumpRow, ...] = (
    *MEMORY,
    call(
        "nvmlDeviceGetMemoryErrorCounter",
        at(count, "ecc_errors/volatile/sram_uncorrectable", "ecc_error_count/volatile_count/sram_uncorrectable"),
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
        "NVML_VOLATILE_ECC",
        "NVML_MEMORY_LOCATION_SRAM",
    ),
    call("nvmlDeviceGetGpuInstanceId", at(count, "gpu_instance_id")),
    call("nvmlDeviceGetComputeInstanceId", at(count, "compute_instance_id")),
)
"""Answers about a MIG device."""


MAX_GPUS = 64
MAX_MIG = 128
EVENTS = "@events"
"""An event set without events: a dump shows one moment."""

NO_BUS_ID = "00000000:00:00.0"


def recording(log: DumpNode, extras: OtherOutputs, cut: DumpNode | None = None) -> Recording:
    """Answers for the driver and every GPU of a dump; values that the GPU `cut` lacks are unknown, not unsupported."""
    gpus = list(log.named("gpu"))[:MAX_GPUS]
    driver = _optional(log, "kmd_version") or _optional(log, "driver_version")
    models = [_optional(gpu, "product_name") or "" for gpu in gpus]
    answers = Recording(Header(driver=driver, models=models, fields_by_name=True))
    answers.add(("nvmlDeviceGetCount",), len(gpus))
    answers.add(("nvmlEventSetCreate",), {"handle": EVENTS})
    cuda = _optional(log, "cuda_umd_version") or _optional(log, "cuda_version")
    if answers.header.driver:
        answers.add(("nvmlSystemGetDriverVersion",), answers.header.driver)
    if extras.nvml:
        answers.add(("nvmlSystemGetNVMLVersion",), extras.nvml)
    major, _, minor = (cuda or "").partition(".")
    if major.isdecimal() and minor.isdecimal():
        answers.add(("nvmlSystemGetCudaDriverVersion_v2",), int(major[:4]) * 1000 + int(minor[:2]) * 10)
    known: set[str] = set()
    for index, gpu in enumerate(gpus):
        if refusal := _refusal(gpu):
            answers.add(("nvmlDeviceGetHandleByIndex", index), error(refusal))
            continue
        _identity(answers, gpu, index, known)
        _gpu(answers, gpu, index, extras, pynvml.NVML_ERROR_UNKNOWN if gpu is cut else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return answers


def _refusal(gpu: DumpNode) -> int | None:
    """The error NVML gave for the handle of a GPU that does not answer."""
    if gpu.find(NO_HANDLE) is None:
        return None
    try:
        gpu.text(NO_HANDLE)
    except NoValue as problem:
        return problem.code
    return int(pynvml.NVML_ERROR_UNKNOWN)


def _identity(answers: Recording, gpu: DumpNode, index: int, known: set[str]) -> None:
    """Handle, UUID and PCI address, without which no GPU can be registered.

    A dump made with `-d` has no UUID, and masked ones have the same for all GPUs: such a GPU gets one made from its
    PCI address.
    """
    handle = f"@gpu{index}"
    # The address in the PCI section or in the GPU's headline.
    candidates = (_optional(gpu, "pci/bus_id"), _optional(gpu, "pci/pci_bus_id"), gpu.value)
    bus_id = next((text for text in candidates if text and pci_key(text)), NO_BUS_ID)
    printed = _optional(gpu, "gpu_uuid") or _optional(gpu, "uuid")
    if not printed or printed in known:
        printed = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{printed} {bus_id} {index}')}"
    known.add(printed)
    for question in (
        ("nvmlDeviceGetHandleByIndex", index),
        ("nvmlDeviceGetHandleByUUID", printed),
        ("nvmlDeviceGetHandleByPciBusId", bus_id),
    ):
        answers.add(question, {"handle": handle})
    answers.add(("nvmlDeviceGetIndex", handle), index)
    answers.add(("nvmlDeviceGetSupportedEventTypes", handle), 0)
    answers.add(("nvmlDeviceRegisterEvents", handle, 0, EVENTS), None)
    answers.add(("nvmlDeviceGetUUID", handle), printed)
    members: dict[str, Any] = {"busId": bus_id, "busIdLegacy": bus_id[-12:]}
    for member, label in {
        "domain": "domain",
        "bus": "bus",
        "device": "device",
        "pciDeviceId": "device_id",
        "pciSubSystemId": "sub_system_id",
    }.items():
        try:
            members[member] = at(hexadecimal, f"pci/{label}", f"pci/pci_{label}")(gpu)
        except NoValue:
            continue
    answers.add(("nvmlDeviceGetPciInfo", handle), {"struct": "nvmlPciInfo_t", "members": members})


def _gpu(answers: Recording, gpu: DumpNode, index: int, extras: OtherOutputs, absent: int) -> None:
    handle = f"@gpu{index}"
    for row in ROWS:
        answers.add(_question(row, handle), _answer(row, gpu, absent))
    try:
        for name, answer in fabric(gpu).items():
            answers.add((name, handle), answer)
    except NoValue as problem:
        answers.add(("nvmlDeviceGetGpuFabricInfo", handle), error(problem.code))
    for name, answer in process_lists(gpu).items():
        for suffix in ("", "_v2", "_v3"):
            answers.add((name + suffix, handle), answer)
    for pid, name in names(gpu).items():
        answers.add(("nvmlSystemGetProcessName", pid), name)
    migs = list(gpu.named("mig_device")) or [m for group in gpu.named("mig_devices") for m in group.named("mig_device")]
    _migs(answers, gpu, migs[:MAX_MIG], index, extras)
    for link, speed in extras.links.get(index, {}).items():
        answers.add(("nvmlDeviceGetNvLinkState", handle, link), int(speed is not None))
        if speed is not None:
            question = ("nvmlDeviceGetFieldValues", handle, _constant("NVML_FI_DEV_NVLINK_GET_SPEED"), link)
            answers.add(question, {"type": 1, "value": round(speed * 1000)})


def _question(row: DumpRow, handle: str) -> Question:
    return (row.call, handle, *(_constant(arg) if isinstance(arg, str) else arg for arg in row.args))


def _constant(name: str) -> Any:
    number = newest_number(name)
    return getattr(pynvml, name, name) if number is None else number


def _answer(row: DumpRow, node: DumpNode, absent: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> Answer:
    try:
        return row.build(*(source(node) for source in row.sources))
    except NoValue as problem:
        return error(absent if problem.code == pynvml.NVML_ERROR_NOT_SUPPORTED else problem.code)


def _migs(answers: Recording, gpu: DumpNode, migs: list[DumpNode], index: int, extras: OtherOutputs) -> None:
    """MIG devices; their UUIDs and profiles are only in -L. Without it the UUID has the form of drivers before 470, and
    the profile is the one with this memory and these engines.
    """
    handle, listed = f"@gpu{index}", 0
    gpu_uuid = answers.runs["nvmlDeviceGetUUID", handle][0][1]
    for position, mig in enumerate(migs):
        number = _number(mig, "index", position)
        token = f"{handle}/mig{number}"
        gi, ci = _number(mig, "gpu_instance_id", position), _number(mig, "compute_instance_id", 0)
        line = extras.migs.get((index, number))
        answers.add(("nvmlDeviceGetMigDeviceHandleByIndex", handle, number), {"handle": token})
        answers.add(("nvmlDeviceGetUUID", token), line.uuid if line else f"MIG-{gpu_uuid}/{gi}/{ci}")
        name = _optional(gpu, "product_name")
        profile = line.profile if line else _profile(name, mig)
        if profile and name:
            answers.add(("nvmlDeviceGetName", token), f"{name} MIG {profile}")
        for row in MIG_ROWS:
            answers.add(_question(row, token), _answer(row, mig))
        members = {}
        for member, label in ATTRIBUTES.items():
            try:
                members[member] = at(count, f"device_attributes/shared/{label}")(mig)
            except NoValue:
                continue
        if "multiprocessorCount" in members:
            answer = {"struct": "c_nvmlDeviceAttributes", "members": members}
            answers.add(("nvmlDeviceGetAttributes_v2", token), answer)
        listed = max(listed, number + 1)
    answers.add(("nvmlDeviceGetMaxMigDeviceCount", handle), listed)


def _profile(model: str | None, mig: DumpNode) -> str | None:
    shared = "device_attributes/shared"
    try:
        multiprocessors, copy_engines = (
            at(count, f"{shared}/{each}_count")(mig) for each in ("multiprocessor", "copy_engine")
        )
        ofa_engines = int(text) if (text := _optional(mig, f"{shared}/ofa_count") or "").isdecimal() else None
        return name_of(model, MEMORY[0].sources[0](mig), multiprocessors, copy_engines, ofa_engines)
    except NoValue:
        return None


ATTRIBUTES = {
    "multiprocessorCount": "multiprocessor_count",
    "sharedCopyEngineCount": "copy_engine_count",
    "sharedEncoderCount": "encoder_count",
    "sharedDecoderCount": "decoder_count",
    "sharedOfaCount": "ofa_count",
    "sharedJpegCount": "jpg_count",
}


def _optional(node: DumpNode, path: str) -> str | None:
    try:
        return node.text(path)
    except NoValue:
        return None


def _number(node: DumpNode, path: str, otherwise: int) -> int:
    try:
        return min(int(at(count, path)(node)), MAX_MIG)
    except NoValue:
        return otherwise
