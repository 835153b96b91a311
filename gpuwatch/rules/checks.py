"""CHECKS: everything gpuwatch looks for. Adding a check is adding a row in one of the tables joined here."""

from gpuwatch.rules.check import Check
from gpuwatch.rules.checks_board import BOARD_CHECKS
from gpuwatch.rules.checks_link import LINK_CHECKS
from gpuwatch.rules.checks_memory import MEMORY_CHECKS
from gpuwatch.rules.checks_node import MONITOR_CHECKS, PRESENCE_CHECKS
from gpuwatch.rules.checks_xid import FATAL_CHECKS, MILD_CHECKS

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
