"""Active checks: real work on the GPUs over the CUDA driver API, each in a child with a deadline and a memory bound."""
