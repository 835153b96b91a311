"""`gpuwatch node`: the remediator's plan, quarantine and release by an administrator."""
