"""The metrics command: an agent's own page or one look's, on stdout or in a file for node_exporter."""

import json
import stat

from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.cli.metrics.metrics import PROFILES
from gpuwatch.metrics.page_cache import PROFILES as KNOWN
from tests.cli.commands import run
from tests.metrics.page import AGENT_METRICS
from tests.model import views


def test_an_agent_gives_its_own_page(agent):
    path = agent(views.healthy(), metrics=b"gpuwatch_up 1\n")
    result = run("--source", f"agent:{path}", "metrics", "--profile", "native", "--profile", "dcgm-4.8")
    assert result.stdout == "gpuwatch_up 1\n[('profile', ('native', 'dcgm-4.8'))]"


def test_a_textfile_is_replaced_at_once_and_readable_by_others(agent, tmp_path):
    target = tmp_path / "gpu.prom"
    target.write_text("old")
    before = target.stat().st_ino
    result = run("--source", f"agent:{agent(views.healthy(), metrics=b'new')}", "metrics", "--textfile", str(target))
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_text().startswith("new")
    assert target.stat().st_ino != before
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.prom"]


def test_a_textfile_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    result = run("--source", "sim:t4", "metrics", "--textfile", str(target))
    assert (result.exit_code, f"cannot use {target}; it is not a regular file" in result.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_unwritable_textfile_is_1_with_its_path(agent):
    result = run("--source", f"agent:{agent(views.healthy())}", "metrics", "--textfile", "/nowhere/gpu.prom")
    assert result.exit_code == 1
    assert "cannot use /nowhere/gpu.prom; No such file or directory" in result.stderr


def test_one_sample_gives_a_whole_page():
    page = run("--source", "sim:t4", "metrics").stdout
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert len(families["gpuwatch_gpu_utilization_ratio"].samples) == 4
    assert "gpuwatch_build_info" in families


def test_one_sample_speaks_openmetrics_and_other_profiles():
    page = run("--source", "sim:t4", "metrics", "--openmetrics", "--profile", "dcgm-4.8").stdout
    assert page.endswith("# EOF\n")
    assert "DCGM_FI_DEV_GPU_TEMP{" in page


def test_the_list_has_every_row():
    items = json.loads(run("metrics", "list", "-o", "json").stdout)["items"]
    assert [item["name"] for item in items] == [f"gpuwatch_{row.name}" for row in AGENT_METRICS]
    assert all(item["name"] in run("metrics", "list").stdout for item in items)


def test_the_markdown_has_the_rows_of_the_page():
    heads, line, *rows = run("metrics", "list", "-o", "md").stdout.splitlines()
    assert (heads.count("|"), set(line)) == (6, set("|- "))
    assert [row.split("`")[1] for row in rows] == [f"gpuwatch_{row.name}" for row in AGENT_METRICS]


def test_the_profiles_that_help_names_are_those_there_are():
    assert tuple(PROFILES) == tuple(KNOWN)
