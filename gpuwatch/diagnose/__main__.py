"""Starts the process that reads the host for a diagnosis: `python -m gpuwatch.diagnose ORDER`."""

if __name__ == "__main__":
    from gpuwatch.diagnose.gathering.probe import main

    main()
