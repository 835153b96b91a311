"""A power budget's loop with the real hand on a fake driver, in a hurry: a second of its time takes a few milliseconds.

Its Views are read through the C library in the same process. What its GPUs would draw changes all the time, so that it
has to write all the time.
"""

import os
import random
import time
from pathlib import Path

import msgspec

from gpuwatch.collect.nvml.library import open_library
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Identity, Power, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.actuator import NvmlActuator
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import ApplyResult
from gpuwatch.tuning.power_budget.loop import BudgetInputs, BudgetMemory, cycle
from tests.remediation.model.remediating import Ledger

BOOT = "00000000-0000-4000-8000-000000000001"


class Place(msgspec.Struct, frozen=True):
    """Where it works. `budget`: a file of watts."""

    state: str
    control: str
    library: str
    budget: str


def work(place: Place, seed: int) -> None:
    """Cycles until it is killed."""
    os.environ["GPUWATCH_FAKE_NVML"] = place.control
    nvml, clock, chance = open_library(place.library), SystemClock(), random.Random(seed)
    nvml.nvmlInit()
    record = SettingsRecord(Path(place.state))
    audit = Audit(Ledger(), clock)
    actuator = NvmlActuator(record, lambda: NvmlControl(nvml), boot_id=BOOT, audit=audit, clock=clock)
    handles = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        handles[nvml.nvmlDeviceGetUUID(handle)] = handle
    wishes = dict.fromkeys(handles, 400.0)
    owners = dict.fromkeys(handles, "0")
    memory, results, began = BudgetMemory(), tuple[ApplyResult, ...](), time.time()
    for second in range(1_000_000):
        if second % 10 == 0:
            uuid = chance.choice(list(handles))
            wishes[uuid], owners[uuid] = chance.uniform(60.0, 690.0), str(second)
        inputs = BudgetInputs(
            view=_view(nvml, handles, wishes, began + second),
            fresh=True,
            now=float(second),
            at=began + second,
            budget=float(Path(place.budget).read_text()),
            actuation=actuator.recorded(),
            results=results,
            owners=owners,
        )
        step = cycle(memory, inputs)
        memory, results = step.memory, actuator.apply(step.orders) if step.orders else ()


def _view(nvml: object, handles: dict[str, object], wishes: dict[str, float], at: float) -> View:
    gpus = tuple(
        _gpu(nvml, uuid, index, handle, wishes[uuid], at) for index, (uuid, handle) in enumerate(handles.items())
    )
    statuses = tuple(GpuStatus(identity=gpu.identity, state=GpuState.FRESH) for gpu in gpus)
    snapshot = Snapshot(at=at, interval=1.0, gpus=gpus, statuses=statuses)
    return View(snapshot=snapshot, agent=AgentStatus(version="1", started=0.0))


def _gpu(nvml, uuid: str, index: int, handle: object, wish: float, at: float) -> Gpu:  # type: ignore[no-untyped-def]
    limit = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    least, most = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    power = Power(
        average=min(limit, wish),
        limit_configured=limit,
        limit_enforced=nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
        limit_default=nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
        limit_min=least / 1e3,
        limit_max=most / 1e3,
    )
    identity = Identity(index=index, uuid=uuid, pci_bus_id=f"00000000:{index:02X}:00.0")
    return Gpu(identity=identity, at=at, power=power)
