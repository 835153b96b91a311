"""`gpuwatch tuner --consents`: brings consents and labels from the API server to tuner and agent, without a token."""

from typing import TYPE_CHECKING

from gpuwatch.cli.console.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.config import Config


def keep_consents(session: Session, reread: "Callable[[], Config]") -> None:
    """Wire API server and file, and look until SIGTERM or SIGINT.

    Raises:
        UsageError: no node name, no state directory or no API server is known.
    """
    import threading
    from pathlib import Path

    from gpuwatch.consents.file import ConsentsFile, progress_file
    from gpuwatch.consents.kube import ConsentsReader
    from gpuwatch.consents.progress import ProgressFollower
    from gpuwatch.consents.service import Consenting
    from gpuwatch.host.machine import boot_id_file, first_line
    from gpuwatch.kube.reader import OwnNode
    from gpuwatch.kube.transport import Transport
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.process.signals import ENDS, ConfigWatch, Signals
    from gpuwatch.tuning.service.state_dir import state_directory

    config = reread()
    watch = ConfigWatch(config, session.config_path, reread, live=("metrics",), role="consents")
    node, place = OwnNode.of(config.tuning).node, state_directory(config)
    file, clock, ended = ConsentsFile(place), SystemClock(), threading.Event()
    is_simulated = session.source not in (None, "nvml")  # a machine of its own, with a boot of its own
    follower = ProgressFollower(file, progress_file(place), clock, loopback=is_simulated)
    boot_id = None if is_simulated else first_line(boot_id_file(Path(config.sources.proc)))
    transport, signals = Transport(config.tuning.kubeconfig, read_seconds=READ_SECONDS), Signals()
    signals.heed(ENDS)
    try:
        session.terminal.hint(f"node          {node}, {transport.server}")
        reader = ConsentsReader(transport, node, config.sources.resource_names)
        reader.metrics = config.metrics
        threading.Thread(target=follower.run, args=(ended,), name="progress", daemon=True).start()
        keeping = Consenting(reader, file, clock, boot_id=boot_id)
        while signals.next(keeping.step()) is None:
            if watch.changed() and (new := watch.reload()) is not None:
                reader.metrics = new.metrics
    finally:
        ended.set()
        transport.close()


READ_SECONDS = 5.0
"""For one answer: who is told to end does so between two questions."""
