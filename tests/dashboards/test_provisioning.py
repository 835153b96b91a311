"""What Grafana reads when it starts: the data source and the dashboards of a release, as they lie in its archive."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from deploy import release
from gpuwatch import __version__
from tests import fast_yaml
from tests.dashboards.boards import FILES, PLACE, all_variables

PROVISIONING = PLACE / "provisioning"
ROOT = PLACE.parent
(PROVIDER,) = fast_yaml.load((PROVISIONING / "dashboards/gpuwatch.yaml").read_text())["providers"]
(SOURCE,) = fast_yaml.load((PROVISIONING / "datasources/gpuwatch.yaml").read_text())["datasources"]
UID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""What Grafana takes for one."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive."""
    place = tmp_path_factory.mktemp("released")
    name = f"gpuwatch-monitoring-{__version__}"
    with tarfile.open(fileobj=io.BytesIO(dict(release.archives(0))[f"{name}.tar.gz"])) as tar:
        tar.extractall(place, filter="data")
    return place / name


def test_grafana_finds_the_dashboards_and_nothing_else(released: Path):
    """It walks through the whole folder, and takes every JSON file for a dashboard."""
    found = {file: json.loads(file.read_text()) for file in (released / "dashboards").rglob("*.json")}
    assert {file.name for file in found} == {file.name for file in FILES}
    uids, titles = ([board[key] for board in found.values()] for key in ("uid", "title"))
    assert len(set(uids)) == len(set(titles)) == len(FILES), "Grafana writes one over the other"
    assert all(UID.fullmatch(uid) for uid in (*uids, SOURCE["uid"]))


def test_every_file_lies_where_grafana_looks_for_its_kind(released: Path):
    files = {
        file.relative_to(released / "dashboards/provisioning") for file in released.rglob("provisioning/**/*.yaml")
    }
    assert files == {file.relative_to(PROVISIONING) for file in PROVISIONING.rglob("*.yaml")}
    for kind, key in (("dashboards", "providers"), ("datasources", "datasources")):
        (file,) = (each for each in files if each.parts[0] == kind)
        assert fast_yaml.load((PROVISIONING / file).read_text()).keys() == {"apiVersion", key}


def test_the_dashboards_can_choose_the_data_source():
    variables = [variable for _, variable in all_variables() if variable["type"] == "datasource"]
    assert len(variables) == len(FILES)
    assert {variable["query"] for variable in variables} == {SOURCE["type"]}
    assert not any(variable.get("regex") for variable in variables), "a name would have to match"


def test_windows_of_rates_fit_the_scrape_interval():
    """Grafana makes $__rate_interval of it; with its own default of 15 s a slower scrape has too few samples in it."""
    scrapes = fast_yaml.load((ROOT / "deploy/prometheus/scrape.example.yaml").read_text())["scrape_configs"]
    assert {scrape["scrape_interval"] for scrape in scrapes} == {SOURCE["jsonData"]["timeInterval"]}


def test_the_documents_put_the_dashboards_where_the_provider_looks():
    said = (ROOT / "docs/collectors.md").read_text()
    assert PROVIDER["type"] == "file"
    assert f"$PWD/dashboards:{PROVIDER['options']['path']}:ro" in said
    assert f"-t {PROVIDER['options']['path']} dashboards/*.json" in said
