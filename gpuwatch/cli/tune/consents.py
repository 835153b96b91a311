"""`gpuwatch tuner --consents`: reads consents and labels from the API server; tuner and agent need no token."""

import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from gpuwatch.cli.console.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.config import Config


def keep_consents(session: Session, reread: "Callable[[], Config]") -> None:
    """Wire API server, progress socket and file, and read until SIGTERM or SIGINT. A machine that has a progress socket
    and no node name is not in a Kubernetes cluster: the API server is left out.

    Raises:
        UsageError: no node name, no state directory or no API server is known.
    """
    import threading
    from pathlib import Path

    from gpuwatch.consents.file import ConsentsFile, progress_file
    from gpuwatch.consents.kube import ConsentsReader
    from gpuwatch.consents.progress import ProgressFollower
    from gpuwatch.consents.progress_socket import ProgressSocket
    from gpuwatch.consents.service import CYCLE_SECONDS, Consenting
    from gpuwatch.host.machine import boot_id_file, first_line
    from gpuwatch.kube.reader import OwnNode
    from gpuwatch.kube.transport import Transport
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.process.signals import ENDS, ConfigWatch, Signals
    from gpuwatch.tuning.service.state_dir import state_directory
    from gpuwatch.workloads.procfs import PodLogs, Processes

    config = reread()
    watch = ConfigWatch(config, session.config_path, reread, live=("metrics",), role="consents")
    path, proc = config.tuning.progress_socket, Path(config.sources.proc)
    in_cluster = not path or bool(config.tuning.node_name or os.environ.get("NODE_NAME"))
    node, place = OwnNode.of(config.tuning).node if in_cluster else "", state_directory(config)
    file, clock, ended = ConsentsFile(place), SystemClock(), threading.Event()
    is_simulated = session.source not in (None, "nvml")  # a machine of its own, with a boot of its own
    boot_id = None if is_simulated else first_line(boot_id_file(proc))
    signals, reader, adding = Signals(), None, None
    signals.catch(ENDS)
    with ExitStack() as stack:
        cycle: Callable[[], float] = lambda: CYCLE_SECONDS  # noqa: E731 nothing is read
        if in_cluster:
            transport = stack.enter_context(closing(Transport(config.tuning.kubeconfig, read_seconds=READ_SECONDS)))
            transport.stopped = signals.waiting
            session.terminal.hint(f"node          {node}, {transport.server}")
            reader = ConsentsReader(transport, node, config.sources.resource_names)
            reader.metrics = config.metrics
            cycle = Consenting(reader, file, clock, boot_id=boot_id).step
        if path:
            processes = Processes(proc, PodLogs(Path(config.sources.pod_logs).parent))
            adding = stack.enter_context(closing(ProgressSocket(Path(path), processes, clock)))
            session.terminal.hint(f"progress      {path}")
            thread = threading.Thread(target=adding.run, args=(ended,), name="progress-socket", daemon=True)
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        follower = ProgressFollower(file, progress_file(place), clock, socket=adding, loopback=is_simulated)
        threading.Thread(target=follower.run, args=(ended,), name="progress", daemon=True).start()
        while signals.next(cycle()) is None:
            if watch.changed() and (new := watch.reload()) is not None and reader is not None:
                reader.metrics = new.metrics


READ_SECONDS = 5.0
"""Timeout of one answer: after a signal the process ends between two requests."""
