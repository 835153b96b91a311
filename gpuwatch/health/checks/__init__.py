"""CHECKS: everything gpuwatch looks for. Adding a check is adding a row in one of the tables joined here."""

from gpuwatch.health.check import Check
from gpuwatch.health.checks.gpu import BOARD_CHECKS, MEMORY_CHECKS
from gpuwatch.health.checks.link import LINK_CHECKS
from gpuwatch.health.checks.node import MONITOR_CHECKS, PRESENCE_CHECKS
from gpuwatch.health.checks.xid import FATAL_CHECKS, MILD_CHECKS

CHECKS: tuple[Check, ...] = (
    *PRESENCE_CHECKS,
    *BOARD_CHECKS,
    *FATAL_CHECKS,
    *MEMORY_CHECKS,
    *LINK_CHECKS,
    *MILD_CHECKS,
    *MONITOR_CHECKS,
)

CHECK_BY_NAME: dict[str, Check] = {check.name: check for check in CHECKS}
