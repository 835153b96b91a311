"""`gpuwatch policy`: check a remediation policy, and test it on recorded views or a scenario."""
