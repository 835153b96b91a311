"""What is mutated: the modules that decide, in groups, and which tests are to notice. Only this knows paths."""

from typing import NamedTuple


class Group(NamedTuple):
    """`modules`: below gpuwatch/; `tests`: patterns below tests/."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


def rules(*names: str) -> tuple[str, ...]:
    """Modules of gpuwatch/rules."""
    return tuple(f"rules/{name}.py" for name in names)


GROUPS = (
    Group(
        "judge",
        rules(
            *("judge", "check", "checks_board", "checks_link", "checks_memory", "checks_node", "checks_xid"),
            *("evidence", "occurrences", "health", "history", "gpu_history", "xid_class", "xids"),
        ),
        (
            *("rules/test_checks.py", "rules/test_judge*.py", "rules/test_health.py", "rules/test_xids.py"),
            *("rules/test_remediation*.py", "harms/test_harm_lines.py", "harms/test_harm_sight.py"),
        ),
    ),
    Group(
        "remediation",
        rules(
            *("remediation", "quarantine", "budget", "draining", "recovery", "ownership", "policy", "foreign"),
            *("restoring", "windows", "case", "condition", "announcing", "identity", "labels", "by_hand"),
        ),
        (
            *("rules/test_remediation*.py", "rules/test_policy.py", "rules/test_windows.py", "rules/test_budget.py"),
            *("rules/test_by_hand.py", "rules/test_restoring.py", "rules/test_labels.py", "harms/test_harm_sight.py"),
        ),
    ),
    Group(
        "tuner",
        rules(
            *("tuning", "tuning_budget", "tuning_closed", "tuning_conflict", "tuning_deeds", "tuning_energy"),
            *("tuning_face", "tuning_gates", "tuning_ladder", "tuning_loop", "tuning_memory", "tuning_orders"),
            *("tuning_owners", "tuning_pace", "tuning_rests", "tuning_team", "consent", "order_values"),
        ),
        ("rules/test_tuning*.py", "rules/test_tuner_harm.py", "rules/test_consent.py", "rules/test_order_values.py"),
    ),
    Group(
        "energy",
        rules(
            *("energy_estimate", "energy_hold", "energy_idle", "energy_meter", "energy_phases", "energy_resume"),
            *("energy_search", "energy_state", "energy_tuner", "energy_windows"),
        ),
        ("rules/test_energy*.py", "rules/test_tuning_loop.py"),
    ),
    Group(
        "right-sizing",
        rules(
            *("rightsizing", "rightsizing_advice", "rightsizing_bound", "rightsizing_case", "rightsizing_energy"),
            *("rightsizing_findings", "rightsizing_gang", "rightsizing_idle", "rightsizing_memory"),
            *("rightsizing_mig", "rightsizing_namespace", "rightsizing_quiet", "rightsizing_savings"),
            *("rightsizing_share",),
        ),
        ("rules/test_rightsizing*.py", "rules/test_usage_[hmnru]*.py"),
    ),
    Group(
        "kernel log",
        ("collect/kernel_log/grammar.py", "collect/kernel_log/framing.py"),
        ("sources/test_kmsg_*.py", "sources/test_klog.py", "harms/test_harm_lines.py"),
    ),
)
