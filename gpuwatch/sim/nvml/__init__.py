"""A module shaped like pynvml whose driver is a simulated node; the reader process opens it in place of pynvml.

Functions are looked up in tables; constants, structs and exceptions are pynvml's own. Every function enters through
`SimDriver.enter`, where a reloaded, hung, slow or lost driver takes effect.
"""

import functools
from pathlib import Path
from typing import Any

import pynvml

from gpuwatch.sim.directory import attach
from gpuwatch.sim.nvml.device import DEVICE, MIG_DEVICE
from gpuwatch.sim.nvml.driver import Answer, Handle, SimDriver, refuse
from gpuwatch.sim.nvml.gpm import GPM, MetricsGet
from gpuwatch.sim.nvml.system import SYSTEM

DRIVER: dict[str, Answer] = {**SYSTEM, **GPM}
"""Functions that get the whole driver first; those of DEVICE and MIG_DEVICE get a resolved handle."""

CALLS = tuple("nvml" + part for part in ("Device", "System", "Vgpu", "Gpm", "Event", "Gpu", "Unit", "Init", "Shut"))
"""Beginnings of the names of pynvml's driver calls, unlike those of its helpers."""


class SimNvml(SimDriver):
    """The driver as a module. Thread-safe."""

    c_nvmlGpmMetricsGet_t = MetricsGet

    def __getattr__(self, name: str) -> Any:
        if name in DRIVER:
            bound: Any = functools.partial(DRIVER[name], self)
        elif name in DEVICE or name in MIG_DEVICE:
            bound = functools.partial(self._ask, name)
        else:
            bound = getattr(pynvml, name)
            if name.startswith(CALLS) and callable(bound) and not isinstance(bound, type):
                bound = self._unknown
        self.__dict__[name] = bound
        return bound

    def _ask(self, name: str, handle: Handle, *args: Any) -> Any:
        with self.lock:
            device = self.device(handle, name)
            function = (DEVICE if device.unit is None else MIG_DEVICE).get(name)
            return refuse() if function is None else function(device, *args)

    def _unknown(self, *args: Any, **kwargs: Any) -> Any:
        """A call that no simulated GPU offers."""
        with self.lock:
            self.enter(args[0].gpu if args and isinstance(args[0], Handle) else None)
        return refuse()


def open_node(target: str) -> Any:
    """The node that runs in the directory `target`, as a pynvml-shaped object. Does not call nvmlInit.

    Raises:
        NoGpuStack: nothing runs there.
    """
    return SimNvml(attach(Path(target)))


def open_knobs(target: str) -> Any:
    """As `open_node`, for a process that only makes settings: it has no watts, degrees or counters.

    It can be opened for each use, because it need not compute all steps since the node began.
    """
    return SimNvml(attach(Path(target), physical=False))
