"""Starts the reader: `python -m gpuwatch.collect.reader SETTINGS`."""

import sys

# without this module msgspec uses typing; loading it would cost a reader 1 MiB and 10 ms
sys.modules["typing_extensions"] = None  # type: ignore[assignment]

if __name__ == "__main__":
    from gpuwatch.collect.reader.driver import main

    main()
