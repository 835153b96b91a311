"""A View as dcgm-exporter would write it: its labels, its names, the last XID as a gauge, its windows."""

from gpuwatch.metrics.dcgm.names import CLOCK_EVENTS, DCGM, UNITS, DcgmRow, Reading, number
from gpuwatch.metrics.dcgm.windows import WINDOW_SECONDS, History, Rates
from gpuwatch.metrics.labelled_view import Naming, Scene, label_text
from gpuwatch.metrics.metric import Family, Sample, Type
from gpuwatch.model.snapshot import Identity, MigInstance
from gpuwatch.model.view import View
from gpuwatch.model.workload import Workload
from gpuwatch.model.xid_catalogue import explain

HOST_LABEL = {"dcgm-4.8": "Hostname", "dcgm-4.9": "hostname"}
DRIVER_LABEL = {"dcgm-4.8": "DCGM_FI_DRIVER_VERSION", "dcgm-4.9": "DCGM_FI_SYSTEM_DRIVER_VERSION"}
XID_NAME = {"dcgm-4.8": "DCGM_FI_DEV_XID_ERRORS", "dcgm-4.9": "DCGM_FI_DEV_XID_ERROR"}

_WINDOW = str(WINDOW_SECONDS * 1000)
_NO_RATES = Rates()


def dcgm_families(view: View, profile: str, history: History, node: str, *, owned_only: bool = False) -> list[Family]:
    """The families of one DCGM profile. `owned_only`: the View is stale, see `metrics.collect`."""
    driver = view.snapshot.driver.version if view.snapshot.driver else None
    scene = Scene(view, _naming(profile, view.snapshot.node or node, driver), inline=True)
    xid = _family(
        XID_NAME[profile], "Value of the last XID error encountered.", _last_xids(scene), "err_code", "err_msg"
    )
    if owned_only:
        return [xid]
    return [
        *(_row_family(row, profile, scene, history) for row in DCGM),
        xid,
        _family(
            "DCGM_EXP_XID_ERRORS_COUNT",
            "XID errors within the window.",
            _xid_counts(scene, history),
            "window_size_in_ms",
            "xid",
        ),
        _family(
            "DCGM_EXP_CLOCK_EVENTS_COUNT",
            "Samples within the window in which the reason held clocks down.",
            _clock_events(scene, history),
            "window_size_in_ms",
            "clock_event",
        ),
    ]


def _naming(profile: str, node: str, driver: str | None) -> Naming:
    """The labels dcgm-exporter gives a GPU or GPU instance, in its order."""

    def naming(identity: Identity, mig: MigInstance | None, workload: Workload | None) -> str:
        labels = {
            "gpu": identity.index,
            "UUID": identity.uuid,
            "pci_bus_id": identity.pci_bus_id,
            "device": f"nvidia{identity.index}",
            "modelName": identity.name,
            "GPU_I_PROFILE": mig.profile if mig else None,
            "GPU_I_ID": mig.gi if mig else None,
            HOST_LABEL[profile]: node,
            DRIVER_LABEL[profile]: driver,
            "container": workload.container if workload else None,
            "namespace": workload.namespace if workload else None,
            "pod": workload.pod if workload else None,
        }
        return label_text(**labels)

    return naming


def _family(name: str, help_: str, samples: list[Sample], *labels: str, type_: Type = "gauge") -> Family:
    return Family(name, type_, help_, labels, samples, number)


def _row_family(row: DcgmRow, profile: str, scene: Scene, history: History) -> Family:
    column = row.column(profile)
    convert = UNITS[column.unit]
    readings = [(key, Reading(gpu, history.rates.get(gpu.identity.uuid, _NO_RATES))) for key, gpu in scene.gpus]
    if row.mig:
        readings += [(key, Reading(mig, _NO_RATES)) for key, mig in scene.instances]
    samples: list[Sample] = [
        (key, convert(value)) for key, reading in readings if (value := row.source(reading)) is not None
    ]
    help_ = f"{row.help} (in {column.unit})." if column.unit else f"{row.help}."
    return _family(f"DCGM_FI_{column.name}", help_, samples, type_=column.type)


def _subjects(scene: Scene) -> dict[str, str]:
    """Label text by GPU uuid: lost GPUs too, since it is them XIDs are about; workloads where the GPU is fresh."""
    lost = {identity.uuid: subject for subject, identity in scene.identities}
    return lost | {gpu.identity.uuid: subject for (subject, _), gpu in scene.gpus}


def _last_xids(scene: Scene) -> list[Sample]:
    """There at 0 before the first XID, so that it can be seen to rise."""
    newest: dict[str, tuple[float, int]] = {}
    for row in scene.view.xids:
        if row.uuid is not None and row.last is not None:
            newest[row.uuid] = max(newest.get(row.uuid, (0.0, 0)), (row.last, row.xid))
    codes = [(subject, newest.get(uuid, (0.0, 0))[1]) for uuid, subject in _subjects(scene).items()]
    return [((subject, (str(code), _meaning(code))), code) for subject, code in codes]


def _meaning(code: int) -> str:
    if code == 0:
        return "No Error"
    info = explain(code)
    return info.description if info else "Unknown Error"


def _xid_counts(scene: Scene, history: History) -> list[Sample]:
    return [
        ((subject, (_WINDOW, xid)), count)
        for uuid, subject in _subjects(scene).items()
        for xid, count in history.xids.of(uuid)
    ]


def _clock_events(scene: Scene, history: History) -> list[Sample]:
    return [
        ((subject, (_WINDOW, CLOCK_EVENTS[reason][1] if reason else None)), count)
        for (subject, _), gpu in scene.gpus
        if gpu.clock_events.active
        for reason, count in history.clock_events.of(gpu.identity.uuid)
        if reason is None or reason in CLOCK_EVENTS
    ]
