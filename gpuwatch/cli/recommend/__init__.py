"""`gpuwatch recommend`: right-sizing findings as a table, documents, files to apply, and a report."""
