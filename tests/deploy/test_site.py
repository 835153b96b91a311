"""One value says where this copy comes from; every file that a site uses then names it."""

import re
import shutil
import subprocess
import sys

import pytest

from deploy import site
from gpuwatch import RUNBOOKS
from tests import fast_yaml
from tests.deploy.charts import rendered

OURS = {"URL": "https://git.example/gpu/watch", "IMAGE": "registry.example:5000/gpu/gpuwatch", "VERSION": "1.2.3"}
IMAGES = re.compile(r"^ *(?:- )?image: (\S+)$", re.MULTILINE)


@pytest.fixture
def copy(tmp_path):
    """What `make site` may write to."""
    for file in {each for pattern in site.FILES for each in site.TREE.glob(pattern)}:
        target = tmp_path / file.relative_to(site.TREE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path


def texts(tree):
    return {file.relative_to(tree).as_posix(): file.read_text() for file in tree.rglob("*") if file.is_file()}


def test_the_constants_are_those_of_pyproject():
    assert site.declared().items() <= site.constants().items(), "run `make site`"


def test_a_site_names_its_own_address_image_and_version_everywhere(copy):
    old = site.constants(copy)
    changed = {file.relative_to(copy).as_posix() for file in site.rewrite(OURS, copy)}
    new = site.constants(copy)
    assert {name: new[name] for name in OURS} == OURS
    assert site.declared(copy).items() <= new.items()
    found = {name: text for name, text in texts(copy).items() if name != site.UNTOUCHED}
    left = re.compile("|".join(re.escape(old[name].partition("://")[2] or old[name]) for name in ("URL", "IMAGE")))
    assert [name for name, text in found.items() if left.search(text)] == []
    assert {"docs/kubernetes.md", "alerts/prometheusrule.yaml", "dashboards/fleet.json", "Dockerfile"} <= changed
    manifests = [text for name, text in found.items() if re.match("deploy/(base|components|examples)/.*yaml", name)]
    assert {image for text in manifests for image in IMAGES.findall(text)} == {f"{OURS['IMAGE']}:{OURS['VERSION']}"}
    rules = fast_yaml.load(found["alerts/gpuwatch.rules.yaml"])["groups"]
    links = {rule["annotations"]["runbook_url"] for group in rules for rule in group["rules"] if "alert" in rule}
    assert all(link.startswith(f"{OURS['URL']}/blob/main/docs/runbooks/Gpu") for link in links)


def test_the_way_back_leaves_no_trace(copy):
    before, old = texts(copy), site.constants(copy)
    list(site.rewrite(OURS, copy))
    list(site.rewrite({name: old[name] for name in ("URL", "IMAGE", "RUNBOOKS", "VERSION")}, copy))
    assert texts(copy) == before


def test_an_edited_pyproject_is_taken_over(copy):
    project = copy / "pyproject.toml"
    project.write_text(project.read_text().replace(site.constants(copy)["IMAGE"], OURS["IMAGE"]))
    list(site.rewrite({}, copy))
    assert site.constants(copy)["IMAGE"] == OURS["IMAGE"]
    assert OURS["IMAGE"] in (copy / "deploy/base/daemonset.yaml").read_text()


def test_every_image_and_link_of_the_tree_is_one_that_a_site_replaces():
    """A file that `make site` does not know would keep the project's own."""
    known = {file for pattern in site.FILES for file in site.TREE.glob(pattern)}
    constants = site.constants()
    tracked = subprocess.run(["git", "-C", site.TREE, "ls-files", "-z"], capture_output=True, text=True, check=False)
    files = [site.TREE / name for name in tracked.stdout.split("\0") if name and not name.startswith("tests/")]
    named = constants["IMAGE"], constants["URL"]
    read = [file for file in files if file.is_file() and file not in known and file.suffix not in (".png", ".gz")]
    assert [file for file in read if any(name in file.read_text(errors="ignore") for name in named)] == []


@pytest.mark.parametrize("value", ["IMAGE=gpuwatch", "IMAGE=a.example/x:1", "URL=git.example", "URL=http://a/'", "A=b"])
def test_a_value_that_files_cannot_have_is_refused(value):
    with pytest.raises(SystemExit, match=re.escape(f"site: {value} is not a value that files can have; use URL=")):
        site.main([value])


def test_the_chart_links_the_runbooks_that_agents_serve():
    def links(**values):
        kinds = rendered({"prometheusRule": {"enabled": True, **values}})
        (rules,) = (each["spec"]["groups"] for each in kinds if each["kind"] == "PrometheusRule")
        alerts = [rule for group in rules for rule in group["rules"] if "alert" in rule]
        return {rule["alert"]: rule["annotations"]["runbook_url"] for rule in alerts}

    assert links()["GpuFellOffBus"] == f"{RUNBOOKS}/GpuFellOffBus.md"
    told = links(runbooks="http://{{ $labels.instance }}/runbooks/")
    assert {told[alert] for alert in told} == {f"http://{{{{ $labels.instance }}}}/runbooks/{a}.md" for a in told}


def test_make_site_needs_nothing_but_python(tmp_path):
    """Outside of any environment, as a person who only has the manifests does."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site.TREE)!r}); import deploy.site"],
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
