"""What a site expects of its nodes, held against this one; skipped where nothing is expected.

A node that is less than was promised fails: model, memory, links, bandwidth. One whose versions or settings have
drifted works all the same and is warned of. The number of GPUs is the host stage's to judge.
"""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.baseline.host import HOST_AND_WORK
from gpuwatch.diagnose.checks.baseline.make import MAKE
from gpuwatch.diagnose.checks.baseline.settings import SETTINGS

BASELINE: tuple[DiagnosticCheck, ...] = (*MAKE, *SETTINGS, *HOST_AND_WORK)
