"""What stays the same while pods come and go: told by the API server, else by the names that controllers give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.consent import AUTOTUNE, CLASS, Consents, PodConsent, plain_image
from gpuwatch.model.work import WorkloadKey
from gpuwatch.workloads.workload_key import RANDOM, Tenant, Tenants, key_of_pod, owner_by_name, root

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z])?", fullmatch=True)
SUFFIX = st.text(RANDOM, min_size=5, max_size=5)


def template_hash(number: int) -> str:
    """As Kubernetes' controllers write a hash of 32 bits (rand.SafeEncodeString)."""
    return "".join(RANDOM[ord(digit) % len(RANDOM)] for digit in str(number))


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ("chat-7b-5d9c7f6b8-x2k4q", ("Deployment", "chat-7b")),
        ("finetune-0", ("StatefulSet", "finetune")),
        ("llama-pretrain-worker-12", ("StatefulSet", "llama-pretrain-worker")),
        ("nightly-eval-29384520-x2k4q", ("CronJob", "nightly-eval")),
        ("train-x2k4q", (None, "train")),
        ("nightly-eval-29384520", (None, "nightly-eval")),
        ("jupyter-anna", (None, "jupyter-anna")),
        ("shell", (None, "shell")),
        ("train-model", (None, "train-model")),
    ],
)
def test_a_pods_name_gives_its_owner_away(pod: str, owner: tuple[str | None, str]) -> None:
    assert owner_by_name(pod) == owner


@given(NAMES, st.integers(10**6, 2**32 - 1), SUFFIX)
def test_all_pods_of_a_deployment_are_one_workload(name: str, number: int, suffix: str) -> None:
    replica_set = f"{name}-{template_hash(number)}"
    assert owner_by_name(f"{replica_set}-{suffix}") == ("Deployment", name)
    assert root(("ReplicaSet", replica_set)) == ("Deployment", name)


@given(NAMES, st.integers(28_000_000, 39_999_999), SUFFIX)
def test_all_jobs_of_a_cron_job_are_one_workload(name: str, minutes: int, suffix: str) -> None:
    assert root(("Job", f"{name}-{minutes}")) == ("CronJob", name)
    assert owner_by_name(f"{name}-{minutes}-{suffix}") == ("CronJob", name)


@given(st.text(max_size=80))
def test_any_name_has_an_owner(pod: str) -> None:
    kind, name = owner_by_name(pod)
    assert pod.startswith(name)
    assert (kind is None and name == pod) or len(name) < len(pod)


@pytest.mark.parametrize(
    ("image", "plain"),
    [
        ("vllm/vllm-openai:v0.11.0", "vllm/vllm-openai:v0.11.0"),
        ("reg.example:5000/a/b:1@sha256:" + "0" * 64, "reg.example:5000/a/b:1"),
        ("reg.example/a/b@sha256:" + "0" * 64, "reg.example/a/b"),
        ("docker-pullable://user:secret@reg.example/a:1", "reg.example/a:1"),
        ("user:secret@reg.example/a:1@sha256:" + "f" * 64, "reg.example/a:1"),
    ],
)
def test_no_digest_and_no_secret_of_a_registry_is_kept(image: str, plain: str) -> None:
    assert plain_image(image) == plain


def test_what_the_api_server_reports_goes_before_the_name() -> None:
    pod = PodConsent(
        namespace="ml",
        name="tune-x2k4q",
        uid="u",
        owner=("Job", "tune"),
        images={"main": "reg/a:1"},
        annotations={CLASS: "batch", AUTOTUNE: "off"},
    )
    of_namespace = {CLASS: "serving", AUTOTUNE: "enforce"}
    tenants = Tenants(Consents(at=1.0, pods=(pod,), namespaces={"ml": of_namespace, "web": of_namespace}))
    mine, other = Tenant("ml", "tune-x2k4q", "main"), Tenant("web", "chat-0", "main")
    assert tenants.key(mine) == WorkloadKey(namespace="ml", name="tune", container="main", kind="Job", image="reg/a:1")
    assert tenants.key(other) == key_of_pod("web", "chat-0", "main")
    assert (tenants.declared_class(mine), tenants.declared_class(other)) == ("batch", "serving")
    assert (tenants.autotune(mine), tenants.autotune(other)) == ("off", "enforce")


@pytest.mark.parametrize("text", ["", "Off", "x" * 100_000])
def test_words_that_are_none_of_the_choices_are_not_kept(text: str) -> None:
    tenants = Tenants(Consents(at=1.0, namespaces={"ml": {CLASS: text, AUTOTUNE: text}}))
    tenant = Tenant("ml", "a-0")
    assert (tenants.declared_class(tenant), tenants.autotune(tenant)) == (None, None)


def test_outside_kubernetes_it_is_the_job_or_the_account() -> None:
    tenants = Tenants()
    tenant = Tenant("", "4711", kind="SlurmJob")
    assert tenants.key(tenant) == WorkloadKey(namespace="", name="4711", kind="SlurmJob")
    assert (tenants.declared_class(tenant), tenants.autotune(tenant)) == (None, None)
