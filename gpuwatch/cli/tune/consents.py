"""`gpuwatch tuner --consents`: brings what pods say about tuning from the API server to the tuner without a token."""

from typing import TYPE_CHECKING

from gpuwatch.cli.console.session import Session

if TYPE_CHECKING:
    from gpuwatch.config import Config


def keep_consents(session: Session, config: "Config") -> None:
    """Wire API server and file, and look until SIGTERM or SIGINT.

    Raises:
        UsageError: no node name, no state directory or no API server is known.
    """
    from pathlib import Path

    from gpuwatch.consents.file import ConsentsFile
    from gpuwatch.consents.kube import ConsentsReader
    from gpuwatch.consents.service import Consenting
    from gpuwatch.host.machine import boot_id_file, first_line
    from gpuwatch.kube.reader import OwnNode
    from gpuwatch.kube.transport import Transport
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.process.signals import ENDS, Signals
    from gpuwatch.tuning.service.state_dir import state_directory

    node, file = OwnNode.of(config.tuning).node, ConsentsFile(state_directory(config))
    is_simulated = session.source not in (None, "nvml")  # a machine of its own, with a boot of its own
    boot_id = None if is_simulated else first_line(boot_id_file(Path(config.sources.proc)))
    transport, signals = Transport(config.tuning.kubeconfig, read_seconds=READ_SECONDS), Signals()
    signals.heed(ENDS)
    try:
        session.terminal.hint(f"node          {node}, {transport.server}")
        reader = ConsentsReader(transport, node, config.sources.resource_names)
        keeping = Consenting(reader, file, SystemClock(), boot_id=boot_id)
        keeping.run(lambda seconds: signals.next(seconds) is not None)
    finally:
        transport.close()


READ_SECONDS = 5.0
"""For one answer: who is told to end does so between two questions."""
