"""Starts the reader: `python -m gpuwatch.collect.reader SETTINGS`."""

import sys

# msgspec takes what it needs from typing where this is not to be had; loading it costs a reader 1 MiB and 10 ms
sys.modules["typing_extensions"] = None  # type: ignore[assignment]

if __name__ == "__main__":
    from gpuwatch.collect.reader.driver import main

    main()
