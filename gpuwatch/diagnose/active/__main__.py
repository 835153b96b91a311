"""`python -m gpuwatch.diagnose.active JOB`: for `run_active` only."""

from gpuwatch.diagnose.active.child import main

main()
