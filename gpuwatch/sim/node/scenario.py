"""Scenarios: a node, its workloads and its timeline of actions. YAML in, frozen records out."""

import difflib
import re
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError
from gpuwatch.sim.node.actions import AnyAction, NodeAction, SetMigProfiles, SimWorkload, StartWorkload
from gpuwatch.sim.node.load import PATTERNS
from gpuwatch.sim.node.profiles import MODELS
from gpuwatch.sim.surroundings.proctree import CONTAINER_LAYOUTS, LAYOUTS, SLURM_LAYOUTS

DEFAULT = "healthy"
MOST_GPUS = 32
CGROUPS = (*LAYOUTS, *SLURM_LAYOUTS, *CONTAINER_LAYOUTS)
DURATIONS = ("at", "every", "seconds", "delay")
_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII
)


class SimNodeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine. `mig`: GPU index -> profiles; `replicas`: slots per GPU when GPUs are time-sliced."""

    model: str = "h100"
    gpus: int = 8
    driver: str | None = None
    mig: dict[int, tuple[str, ...]] = {}
    replicas: int = 1


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario."""

    description: str
    node: SimNodeSpec = SimNodeSpec()
    workloads: tuple[SimWorkload, ...] = ()
    timeline: tuple[AnyAction, ...] = ()


ACTIONS: dict[str, type[NodeAction]] = {kind.__struct_config__.tag: kind for kind in get_args(AnyAction)}
"""Word behind `do:` -> action."""


def names() -> list[str]:
    """The scenarios that come with gpuwatch, the default one first."""
    found = sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if entry.name.endswith(".yaml"))
    return sorted(found, key=lambda name: name != DEFAULT)


def scenarios() -> list[tuple[str, str]]:
    """(name, description) of each."""
    return [(name, load(name).description) for name in names()]


def load(scenario: str | Path) -> Scenario:
    """A scenario by name or from a file.

    Raises:
        UsageError: unknown name, unreadable file, or something in it that gpuwatch does not know.
    """
    from gpuwatch.config.yaml import decode, read

    path = Path(scenario)
    if isinstance(scenario, str) and scenario in names():
        document = decode((_folder() / f"{scenario}.yaml").read_text(), f"scenario {scenario}")
    elif path.suffix in (".yaml", ".yml") or path.is_file():
        document = read(path, "scenario").value
    else:
        near = difflib.get_close_matches(str(scenario), names(), n=1)
        hint = f"did you mean {near[0]}?" if near else "see `gpuwatch sim list`"
        raise UsageError(f"no scenario {scenario}", "it is neither a built-in one nor a file", hint)
    return parse(document, f"scenario {scenario}")


def parse(document: Any, origin: str) -> Scenario:
    """A decoded document as a scenario.

    Raises:
        UsageError: unknown keys (path and nearest known key), wrong values, GPUs or profiles that the node lacks.
    """
    if not isinstance(document, dict):
        raise UsageError(f"{origin} is no scenario", "the top level is not a mapping", "see `gpuwatch sim list`")
    _check_keys(document, Scenario, "", origin)
    _check_keys(document.get("node"), SimNodeSpec, "node.", origin)
    for i, entry in enumerate(document.get("workloads") or ()):
        _check_keys(entry, SimWorkload, f"workloads[{i}].", origin)
    timeline = [_action(entry, f"timeline[{i}].", origin) for i, entry in enumerate(document.get("timeline") or ())]
    found: Scenario = _convert({**document, "timeline": timeline}, Scenario, origin)
    node = found.node
    if node.model not in MODELS:
        raise UsageError(f"unknown model {node.model} in {origin}", "node.model", f"use one of {', '.join(MODELS)}")
    if not 0 <= node.gpus <= MOST_GPUS or node.replicas < 1:
        raise UsageError(f"wrong value in {origin}", f"node.gpus is 0 to {MOST_GPUS}, node.replicas 1 or more")
    for profiles in node.mig.values():
        _check_profiles(profiles, node, origin)
    for workload in found.workloads:
        _check_workload(workload, origin)
    for action in found.timeline:
        check_action(action, node, origin)
    return found


def parse_action(document: Any, node: SimNodeSpec) -> AnyAction:
    """One action on a node, as `sim inject` writes it.

    Raises:
        UsageError: as in `parse`.
    """
    origin = "the action"
    action: AnyAction = _convert(_action(document, "", origin), AnyAction, origin)
    check_action(action, node, origin)
    return action


def check_action(action: AnyAction, node: SimNodeSpec, origin: str) -> None:
    """Checks that the types do not express. Raises UsageError."""
    if isinstance(action, StartWorkload):
        _check_workload(action.workload, origin)
    if isinstance(action, SetMigProfiles):
        _check_profiles(action.profiles, node, origin)
    gpus = getattr(action, "gpu", None)
    for gpu in (gpus,) if isinstance(gpus, int) else gpus if isinstance(gpus, tuple) else ():
        if not 0 <= gpu < node.gpus:
            raise UsageError(f"no GPU {gpu} in {origin}", f"the node has {node.gpus}", f"use 0 to {node.gpus - 1}")


def seconds(value: Any) -> float | None:
    """`90`, `1.5`, `90s`, `1h30m`, `8d` in seconds; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) and value.strip() else None
    if match is None:
        return None
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))


def _folder() -> Any:
    return resources.files("gpuwatch.sim") / "scenarios"


def _action(entry: Any, path: str, origin: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UsageError(f"wrong value in {origin}", f"{path.rstrip('.') or 'it'} is not a mapping")
    kind = ACTIONS.get(str(entry.get("do")))
    if kind is None:
        near = difflib.get_close_matches(str(entry.get("do")), ACTIONS, n=1, cutoff=0.5)
        known = f"did you mean {near[0]}?" if near else f"use one of {', '.join(ACTIONS)}"
        raise UsageError(f"unknown action {entry.get('do')} in {origin}", f"{path}do names what happens", known)
    _check_keys(entry, kind, path, origin, also=("do",))
    if kind is StartWorkload:
        _check_keys(entry.get("workload"), SimWorkload, f"{path}workload.", origin)
    document: dict[str, Any] = dict(entry)
    for name in DURATIONS:
        if document.get(name) is not None:
            found = seconds(document[name])
            if found is None or found < 0:
                raise UsageError(f"wrong value in {origin}", f"{path}{name} is {document[name]}", "write 90s or 1h30m")
            document[name] = found
    return document


def _check_keys(document: Any, kind: type[msgspec.Struct], path: str, origin: str, also: tuple[str, ...] = ()) -> None:
    if not isinstance(document, dict):
        return
    known = (*kind.__struct_fields__, *also)
    for name in document:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            hint = f"did you mean {path}{near[0]}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"unknown key {path}{name} in {origin}", "gpuwatch does not know it", hint)


def _convert(document: Any, kind: Any, origin: str) -> Any:
    try:
        return msgspec.convert(document, prepared(kind), strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"wrong value in {origin}", str(error).replace("`$.", "`")) from None


def _check_workload(workload: SimWorkload, origin: str) -> None:
    if workload.load not in PATTERNS:
        known = f"use one of {', '.join(PATTERNS)}"
        raise UsageError(f"unknown load {workload.load} in {origin}", f"of workload {workload.name}", known)
    if workload.cgroup is not None and workload.cgroup not in CGROUPS:
        known = f"use one of {', '.join(CGROUPS)}"
        raise UsageError(f"unknown cgroup {workload.cgroup} in {origin}", f"of workload {workload.name}", known)


def _check_profiles(profiles: tuple[str, ...], node: SimNodeSpec, origin: str) -> None:
    known = [profile.name for profile in MODELS[node.model].mig]
    for name in profiles:
        if name not in known:
            why = f"{node.model} has {', '.join(known) or 'no MIG'}"
            raise UsageError(f"unknown MIG profile {name} in {origin}", why)
