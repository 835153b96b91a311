"""Samples of GPUs at work, as the agent takes them, for the tests of what the tuner makes of them."""

from typing import Any

from gpuwatch.model.snapshot import Activity, ClockEvents, Clocks, Gpu, GpuProcess, Identity, Power

START = 1_790_000_000.0
TOP = 1980e6
WATTS = 300.0
CALM_REASONS = {"gpu_idle": False, "sw_power_cap": False, "hw_slowdown": False, "applications_clocks_setting": False}
WORK = {"graphics": 0.8, "dram": 0.5, "tensor": 0.3, "fp32": 0.1}


def sample(at: float, index: int = 0, **more: Any) -> Gpu:
    """One second of work that ends `at` seconds after START. `work`: activities; `energy`, `clock`, `reasons`, `pids`;
    the rest are members of Gpu.
    """
    work = more.pop("work", WORK)
    energy = more.pop("energy", WATTS * (at + 1e4))
    clock = more.pop("clock", TOP)
    reasons = CALM_REASONS | more.pop("reasons", {})
    pids = more.pop("pids", (7,))
    return Gpu(
        identity=Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"0000:{index + 1:02x}:00.0"),
        at=START + at,
        activity=Activity(**({"window_seconds": 1.0} | work)) if work else Activity(),
        power=Power(energy=energy),
        clocks=Clocks(sm=clock, graphics_max=TOP),
        clock_events=ClockEvents(active=reasons),
        performance_state=more.pop("state", 0),
        processes=tuple(GpuProcess(pid=pid, type="compute") for pid in pids),
        **more,
    )
