"""The table of privileges: what each component adds to which container, and nothing that is not in it."""

from pathlib import Path

import pytest

import gpuwatch
from tests.deploy.privileges import POD, privileges
from tests.deploy.rendering import COMPONENTS, DEPLOY, OVERLAYS, built, kustomization, pod, with_needs

DOCS = Path(gpuwatch.__file__).parents[1] / "docs/kubernetes.md"

STATE, RECORD, LOGS = "writes /var/lib/gpuwatch", "reads /var/lib/gpuwatch/tuner", "reads /var/log/pods"

BASE = {
    "agent": {"root", "GPUs", STATE, RECORD, "reads /var/lib/kubelet/pod-resources", "reads /etc/machine-id"},
}
ADDED: dict[str, dict[str, set[str]]] = {
    "remediation": {"agent": {LOGS}, "remediator": {"root", "API token", STATE, RECORD}},
    "remediation-enforce": {},  # rights, see tests/cluster/test_installed.py
    "remediation-drain": {},
    "remediation-devices": {},
    "klog": {"agent": {"capability SYSLOG"}},
    "processes": {POD: {"hostPID"}, "agent": {LOGS, "reads /var/log/containers"}},
    "tuner": {"tuner": {"root", STATE}, "guard": {"root", "GPUs", STATE, "capability SYS_ADMIN"}},
    "consents": {"consents": {"root", "API token"}},
    "progress": {POD: {"hostPID"}, "consents": {"writes /run/gpuwatch-progress"}},
    "tuner-enforce": {"tuner": {"GPUs", "capability SYS_ADMIN"}},
    "monitoring": {},
}
DRIVER = "reads /home/kubernetes/bin/nvidia"
OVERLAID: dict[str, dict[str, set[str]]] = {
    "demo": {"agent": {"root"}, "remediator": {"root", "API token"}},
    "gpu-operator": {"agent": BASE["agent"] | {"reads /dev/null"}},
    "eks": {"agent": BASE["agent"] | {"reads /dev/null"}},
    "migrate": {name: BASE.get(name, set()) | told for name, told in ADDED["remediation"].items()},
    "gke": {"agent": BASE["agent"] - {"GPUs"} | {"privileged", DRIVER, "writes /dev/nvidiactl"}},
}


def allowed(*components: str) -> dict[str, frozenset[str]]:
    """What the table says of these together."""
    rows = [BASE, *(ADDED[name] for name in components)]
    names = {POD}.union(*rows)
    return {name: frozenset().union(*(row.get(name, set()) for row in rows)) for name in names}


def test_every_component_has_its_row():
    assert set(ADDED) == set(COMPONENTS) == {each.name for each in (DEPLOY / "components").iterdir()}
    assert set(OVERLAID) == set(OVERLAYS) == {each.name for each in (DEPLOY / "overlays").iterdir()}


@pytest.mark.parametrize("component", [None, *COMPONENTS], ids=lambda name: name or "base")
def test_a_component_adds_what_the_table_says_and_no_more(tmp_path, component):
    chosen = with_needs(component) if component else ()
    assert privileges(pod(built(kustomization(tmp_path, *chosen)))) == allowed(*chosen)


def test_all_together_add_no_more(tmp_path):
    assert privileges(pod(built(kustomization(tmp_path, *COMPONENTS)))) == allowed(*COMPONENTS)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_has_what_the_table_says(overlay):
    expected = {name: frozenset(told) for name, told in OVERLAID[overlay].items()} | {POD: frozenset()}
    assert privileges(pod(built(DEPLOY / "overlays" / overlay))) == expected


def test_who_has_the_token_has_no_gpu_and_who_sets_gpus_has_no_token(tmp_path):
    found = privileges(pod(built(kustomization(tmp_path, *COMPONENTS))))
    assert {name for name, told in found.items() if "API token" in told} == {"remediator", "consents"}
    assert not [name for name, told in found.items() if {"API token", "GPUs"} <= told]


@pytest.mark.parametrize(
    ("chosen", "holders"),
    [
        (tuple(name for name in COMPONENTS if not name.startswith("tuner")), set()),
        (tuple(name for name in COMPONENTS if name != "tuner-enforce"), {"guard"}),
        (COMPONENTS, {"guard", "tuner"}),
    ],
    ids=["no-tuner", "observe", "enforce"],
)
def test_s15_only_who_sets_gpus_has_the_right_to(tmp_path, chosen, holders):
    found = privileges(pod(built(kustomization(tmp_path, *chosen))))
    assert {name for name, told in found.items() if "capability SYS_ADMIN" in told} == holders
    assert not [name for name, told in found.items() if "privileged" in told]


def test_s15_no_call_opens_the_driver_to_others():
    """nvmlDeviceSetAPIRestriction would let everybody on the node set clocks, and outlive us."""
    package = Path(gpuwatch.__file__).parent
    files = list(package.rglob("*.py"))
    assert any("nvmlDeviceSetPowerManagementLimit" in file.read_text() for file in files)
    assert [file for file in files if "APIRestriction" in file.read_text()] == []


def test_the_page_shows_the_table():
    def words(told: dict[str, set[str]]) -> str:
        cells = (f"`{name}`: {', '.join(sorted(told[name]))}" for name in sorted(told))
        return "; ".join(cells) or "nothing"

    rows = [f"| `base` | {words(BASE)} |", *(f"| `{name}` | {words(told)} |" for name, told in ADDED.items())]
    page = DOCS.read_text()
    assert [row for row in rows if row not in page] == []
