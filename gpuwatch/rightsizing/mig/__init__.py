"""Which MIG profiles fit, and how they pack on a GPU. No I/O."""
