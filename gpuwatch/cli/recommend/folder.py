"""`gpuwatch recommend --output-dir DIR`: the report, the data for spreadsheets, what is to be applied."""

import re
from pathlib import Path

from gpuwatch.cli.console.document import to_json, to_yaml
from gpuwatch.cli.recommend.apply import files, script
from gpuwatch.cli.recommend.csv import to_csv
from gpuwatch.cli.recommend.items import RecommendationList
from gpuwatch.cli.recommend.report.page import report
from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Finding

REPORT = "report.html"
MANIFESTS = "manifests"
OURS = re.compile(rf"({'|'.join(kind.replace('_', '-') for kind in Finding)})-[0-9a-f]{{6,64}}\.[a-z_]+(-\d+)?\.yaml")
"""Names of manifests that `files` makes."""


def write(folder: Path, found: RecommendationList, config: RightsizingConfig) -> int:
    """How many files were written; those of the same name are replaced, manifests of an earlier time go, others stay.

    Raises:
        OSError: it cannot be written.
    """
    texts = {
        REPORT: report(found, config),
        "recommendations.json": f"{to_json(found)}\n",
        "recommendations.csv": to_csv(found.items),
        "apply.sh": script(found.items),
    }
    for item in found.items:
        texts |= {f"{MANIFESTS}/{name}": f"{to_yaml(part.manifest)}\n" for name, part in files(item)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFESTS).mkdir(exist_ok=True)
    for path in (folder / MANIFESTS).iterdir():
        if OURS.fullmatch(path.name) and f"{MANIFESTS}/{path.name}" not in texts:
            path.unlink()  # advice that holds no longer
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    return len(texts)
