"""What is mutated: the modules that decide, in groups, and which tests are to notice. Only this knows paths."""

from typing import NamedTuple


class Group(NamedTuple):
    """`modules`: below gpuwatch/; `tests`: patterns below tests/."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


def files(folder: str, names: str) -> tuple[str, ...]:
    """Several modules of one folder."""
    return tuple(f"{folder}/{name}.py" for name in names.split())


PLANNING = "draining evidence inputs labels manual_quarantine node_events ownership plan policy"
ENERGY = "estimate hold meter model search tuner"
CYCLE = "cycle gang gang_energy obstacles state status"
FINDINGS = "advice idle judge namespace partition without_resize workload"

GROUPS = (
    Group(
        "judge",
        (
            *files("health", "check gpu_history history judge occurrences"),
            *files("health/checks", "gpu link node xid"),
            *files("health/xid", "classify ledger"),
            "remediation/planning/evidence.py",
        ),
        (
            *("health/test_[cjr]*.py", "health/xid/test_*.py", "remediation/planning/test_plan.py"),
            *("remediation/planning/test_[ar]*.py", "harms/test_harm_[lo]*.py"),
        ),
    ),
    Group(
        "remediation",
        files("remediation/planning", f"{PLANNING} quarantine recovery scope slots"),
        ("remediation/planning/test_*.py", "harms/test_harm_observation.py"),
    ),
    Group(
        "tuner",
        (
            *files("tuning/cycle", CYCLE),
            *files("tuning/gates", "conflict consent cooldowns eligibility owners"),
            "tuning/model/setting.py",
        ),
        (
            *("tuning/cycle/test_[cpst]*.py", "tuning/gates/test_*.py", "tuning/energy/test_tuner_harm.py"),
            *("tuning/actuation/test_order_values.py", "tuning/actuation/test_restore_value.py"),
            "tuning/actuation/test_actuator.py",
        ),
    ),
    Group("energy", files("tuning/energy", ENERGY), ("tuning/energy/test_*.py", "tuning/cycle/test_cycle.py")),
    Group(
        "right-sizing",
        files("rightsizing/findings", FINDINGS),
        ("rightsizing/test_apply.py", "rightsizing/findings/test_*.py", "rightsizing/usage/test_[amnu]*.py"),
    ),
    Group(
        "kernel log",
        files("collect/kernel_log", "lines records"),
        ("collect/kernel_log/test_*.py", "harms/test_harm_lines.py"),
    ),
)
