"""`gpuwatch policy`: check a remediation policy, and test it on an imagined fault."""
