"""Baseline files: what may stand in them, what is said of those that are wrong, and one made of a good node."""

from pathlib import Path

import pytest

from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.diagnose.baseline.expectation import Expectation, load, measured, text
from gpuwatch.diagnose.checks.baseline_compare import is_version
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage, CheckStatus
from gpuwatch.model.errors import GpuwatchError, UsageError
from tests.diagnose.hosts import Host


def loaded(tmp_path: Path, body: str) -> Expectation:
    file = tmp_path / "baseline.yaml"
    file.write_text(body)
    return load(file)


def test_a_file_says_what_is_expected(tmp_path):
    found = loaded(tmp_path, 'gpus: 8\nmodel: H100\ndriver: "580"\nvbios: [96.00.A5, "97.00"]\necc: on\nmig: off\n')
    assert found == Expectation(gpus=8, model="H100", driver="580", vbios=("96.00.A5", "97.00"), ecc=True, mig=False)


def test_one_vbios_needs_no_list_and_an_empty_file_expects_nothing(tmp_path):
    assert loaded(tmp_path, "vbios: 96.00.A5.00.01\n").vbios == ("96.00.A5.00.01",)
    assert loaded(tmp_path, "") == Expectation()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("drivr: '580'", ("unknown key drivr", "did you mean driver?")),
        ("driver: 570.10", ("wrong value at driver", "write a version in quotes")),
        ("gpus: many", ("wrong value at gpus", "int")),
        ("pcie_width: 64", ("wrong value at pcie_width", "use 1 to 32")),
        ("- 8", ("is no baseline", "not a mapping")),
        ("gpus: 8\ngpus: 4", ("line 2", "twice")),
        ("{", ("line 2",)),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path, body, words):
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, body)
    assert all(word in str(caught.value) for word in (*words, "baseline.yaml"))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.yaml.*No such file.*--expect"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("found", "prefix", "fits"),
    [
        ("570.86.15", "570", True),
        ("570.86.15", "570.86", True),
        ("570.86.15", "570.86.15", True),
        ("570.860.15", "570.86", False),
        ("5700.1", "570", False),
        ("570.86.15", "570.", True),
        ("96.00.A5.00.01", "96.00.A5", True),
    ],
)
def test_versions_fit_by_whole_numbers(found, prefix, fits):
    assert is_version(found, prefix) is fits


@pytest.mark.parametrize("node", [{}, {"model": "l40s", "gpus": 2}, {"model": "t4", "gpus": 1}])
def test_a_node_fits_the_baseline_made_of_it(tmp_path, node):
    host = Host(tmp_path, **node)
    host.active = Active(runs=(DeviceRun(test="bandwidth", device="GPU-0", index=0, host_to_device=25e9),))
    host.expect = loaded(tmp_path, text(measured(host.facts()), "gpu-node-1"))
    results = [r for r in host.diagnose(active=True).results if r.stage is CheckStage.BASELINE]
    assert host.expect.gpus == len(host.view.snapshot.gpus)
    assert host.expect.host_to_device == 22.5e9
    assert {r.id: r.message for r in results if r.result not in (CheckStatus.PASS, CheckStatus.SKIP)} == {}
    assert {"B01", "B02", "B03", "B04", "B05", "B08", "B14", "B17"} <= {
        r.id for r in results if r.result is CheckStatus.PASS
    }


def test_what_the_gpus_do_not_agree_on_is_not_expected(tmp_path):
    host = Host(tmp_path)
    host.gpu(3, power={"limit_configured": 400.0}, identity={"vbios": "96.00.5E.00.01"}, pcie={"width": 8})
    found = measured(host.facts())
    assert found.power_limit is None
    assert found.vbios == ("96.00.5E.00.01", "96.00.A5.00.01")
    assert found.pcie_width == 8


def test_there_is_no_baseline_without_a_gpu():
    with pytest.raises(GpuwatchError, match="driver is gone"):
        measured(NodeFacts(at=1.0, unread={"view": "driver is gone"}))


def test_the_example_of_the_documents_is_a_good_baseline(tmp_path):
    page = (Path(__file__).parents[3] / "docs/baseline.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    host = Host(tmp_path)
    host.expect = loaded(tmp_path, example)
    wrong = [
        r
        for r in host.diagnose().results
        if r.stage is CheckStage.BASELINE and r.result not in (CheckStatus.PASS, CheckStatus.SKIP)
    ]
    assert host.expect != Expectation()
    assert wrong == []


def test_every_key_is_in_the_documents():
    page = (Path(__file__).parents[3] / "docs/baseline.md").read_text()
    assert [key for key in Expectation.__struct_fields__ if f"| `{key}` |" not in page] == []
