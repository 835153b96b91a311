"""Writes all of the chart that says again what another file says: `python -m deploy.helm.generate`.

Helm reads nothing outside of a chart, so alerts, dashboards and rights are copied into it, as they are.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from deploy.helm.readme import with_table
from deploy.helm.schema import schema
from deploy.helm.values import FILE, documented
from gpuwatch import __version__

CHART = FILE.parent
REPOSITORY = CHART.parents[2]
COPIES = {
    "alerts/gpuwatch.rules.yaml": "files/gpuwatch.rules.yaml",
    "dashboards/*.json": "files/dashboards",
    "deploy/components/remediation/rbac.yaml": "files/rights/observe.yaml",
    "deploy/components/remediation-enforce/rbac.yaml": "files/rights/enforce.yaml",
    "deploy/components/remediation-enforce/own-node-policy.yaml": "files/rights/own-node-policy.yaml",
    "deploy/components/remediation-drain/rbac.yaml": "files/rights/drain.yaml",
    "deploy/components/remediation-drain/own-pods-policy.yaml": "files/rights/own-pods-policy.yaml",
    "deploy/components/remediation-devices/rbac.yaml": "files/rights/devices.yaml",
    "deploy/components/remediation-devices/own-devices-policy.yaml": "files/rights/own-devices-policy.yaml",
    "deploy/components/consents/rbac.yaml": "files/rights/consents.yaml",
}


def generated() -> Iterator[tuple[Path, str]]:
    """Every generated file and its text."""
    values = list(documented(FILE.read_text()))
    yield CHART / "values.schema.json", json.dumps(schema(values), indent=2) + "\n"
    yield CHART / "README.md", with_table((CHART / "README.md").read_text(), values)
    version = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)
    yield CHART / "Chart.yaml", version.sub(rf"\1: {__version__}", (CHART / "Chart.yaml").read_text())
    yield from copies()


def copies() -> Iterator[tuple[Path, str]]:
    """Every copied file and its text."""
    for source, target in COPIES.items():
        for file in sorted(REPOSITORY.glob(source)):
            place = CHART / target
            yield place if place.suffix else place / file.name, file.read_text()


def main() -> None:
    """Write them, and remove copies of what is no more."""
    files = dict(generated())
    for left in {path for path in (CHART / "files").rglob("*") if path.is_file()} - files.keys():
        left.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
