"""What a site expects of its nodes, held against this one; skipped where nothing is expected."""

from gpuwatch.diagnose.check import Check

BASELINE: tuple[Check, ...] = ()
