"""Who may be tuned: the least permissive of all who have a say wins, and what cannot be read is a no."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import (
    AUTOTUNE,
    CLASS,
    GANG,
    MAX_SLOWDOWN,
    OLD_SECONDS,
    POWER_AGENTS,
    Consents,
    PodConsent,
)
from gpuwatch.tuning.gates.consent import (
    MODES,
    SHOWN,
    Mode,
    TuningRequest,
    opted_in,
    power_agent,
    share,
    stopped,
    tuning_request,
)
from gpuwatch.tuning.gates.owners import Owner
from gpuwatch.tuning.model.status import ObstacleReason
from tests.tuning.energy.tuning_samples import START

CONFIG = TuningConfig(mode="enforce", work_class="batch", max_slowdown=0.05)
OWNER = Owner(name="ml/train-0", uid="uid-0", namespace="ml", pod="train-0")
OTHER = Owner(name="ml/train-1", uid="uid-1", namespace="ml", pod="train-1")
ALICE = Owner(name="user alice")
YES = {AUTOTUNE: "enforce"}


def pod(annotations: dict[str, str], owner: Owner = OWNER, **more: object) -> PodConsent:
    known = PodConsent(namespace="ml", name=owner.pod or "", uid=owner.uid or "", annotations=annotations)
    return replace(known, **more)


def consents(
    *pods: PodConsent, namespace: dict[str, str] | None = None, node: dict[str, str] | None = None
) -> Consents:
    return Consents(at=START, pods=pods, namespaces={"ml": namespace or {}}, node=node or {})


def wished(
    annotations: dict[str, str] | None = None,
    *,
    namespace: dict[str, str] | None = None,
    node: dict[str, str] | None = None,
    config: TuningConfig = CONFIG,
    **more: object,
) -> TuningRequest:
    """What one pod comes to."""
    known = consents(pod(YES if annotations is None else annotations, **more), namespace=namespace, node=node)
    return tuning_request(config, known, (OWNER,), START)


def reason(found: TuningRequest) -> ObstacleReason | None:
    return found.obstacle and found.obstacle.reason


def slowdown(found: TuningRequest) -> float | None:
    return found.terms and found.terms.slowdown


def latency(found: TuningRequest) -> str | None:
    return found.terms and found.terms.latency


def test_a_pod_that_has_opted_in_is_tuned_as_the_operator_promised() -> None:
    found = wished()
    assert (found.mode, found.obstacle, found.priority) == ("enforce", None, 0)
    assert (slowdown(found), latency(found)) == (0.05, "batch")


SAID = (*MODES, None)


@pytest.mark.parametrize("config", MODES)
@pytest.mark.parametrize("node", SAID)
@pytest.mark.parametrize("namespace", SAID)
@pytest.mark.parametrize("own", SAID)
def test_the_least_permissive_of_all_wins(
    own: Mode | None, namespace: Mode | None, node: Mode | None, config: Mode
) -> None:
    def annotation(mode: Mode | None) -> dict[str, str]:
        return {} if mode is None else {AUTOTUNE: mode}

    found = wished(
        annotation(own),
        namespace=annotation(namespace),
        node=annotation(node),
        config=replace(CONFIG, mode=config, pods="enforce"),
    )
    assert found.mode == min((each for each in (own, namespace, node, config) if each is not None), key=MODES.index)
    others = [each for each in (own, namespace, node) if each is not None]
    assert (found.obstacle is None) is all(each == "enforce" for each in others)


@pytest.mark.parametrize("pods", MODES)
def test_the_operator_declares_what_the_pod_does_not(pods: Mode) -> None:
    found = wished({}, config=replace(CONFIG, pods=pods))
    assert found.mode == pods
    assert (
        reason(found)
        == {"off": ObstacleReason.OPTED_OUT, "observe": ObstacleReason.NOT_OPTED_IN, "enforce": None}[pods]
    )


def test_a_pod_may_opt_in_where_the_operator_leaves_it_to_pods() -> None:
    assert wished(config=replace(CONFIG, pods="observe")).mode == "enforce"
    assert wished({}, namespace=YES, config=replace(CONFIG, pods="observe")).mode == "enforce"


def test_the_nodes_annotation_opts_nobody_in() -> None:
    assert reason(wished({}, node=YES)) is ObstacleReason.NOT_OPTED_IN


@pytest.mark.parametrize("text", ["", "on", "true", "Enforce", "apply", "enforced", "disabled", "nein" * 400])
def test_an_unknown_mode_is_off_and_reported(text: str) -> None:
    found = wished({AUTOTUNE: text})
    assert (found.mode, reason(found)) == ("off", ObstacleReason.OPTED_OUT)
    assert found.obstacle is not None
    assert repr(text)[:SHOWN] in found.obstacle.message
    assert "ml/train-0" in found.obstacle.message
    assert len(found.obstacle.message) < 200


@pytest.mark.parametrize("text", ["off", "disabled", "no"])
def test_s14_the_nodes_off_stops_all_also_users_and_however_old_it_is(text: str) -> None:
    known = consents(pod(YES), node={AUTOTUNE: text})
    for owner in (OWNER, ALICE):
        found = tuning_request(CONFIG, known, (owner,), START)
        assert (found.mode, reason(found)) == ("off", ObstacleReason.STOPPED)
    assert reason(tuning_request(CONFIG, known, (ALICE,), START + 10 * OLD_SECONDS)) is ObstacleReason.STOPPED
    assert AUTOTUNE in stopped(known)


def test_a_node_that_says_nothing_or_less_than_off_does_not_stop() -> None:
    assert stopped(None) == ""
    assert stopped(consents()) == ""
    assert stopped(consents(node={AUTOTUNE: "observe"})) == ""
    assert reason(wished(node={AUTOTUNE: "observe"})) is ObstacleReason.NOT_OPTED_IN


@pytest.mark.parametrize(
    "known",
    [
        None,
        consents(),
        replace(consents(pod(YES)), at=START - OLD_SECONDS - 1),
        replace(consents(pod(YES)), at=START + OLD_SECONDS + 1),
        consents(pod(YES, uid="uid-of-its-predecessor")),
    ],
    ids=["no file", "not told yet", "old", "from the future", "a predecessor's"],
)
def test_what_is_not_known_of_a_pod_is_no_consent(known: Consents | None) -> None:
    found = tuning_request(replace(CONFIG, pods="enforce"), known, (OWNER,), START)
    assert (found.mode, reason(found), found.terms) == ("observe", ObstacleReason.NO_CONSENT, None)


def test_a_pod_without_a_uid_is_found_by_its_name() -> None:
    nameless = replace(OWNER, uid=None)
    assert tuning_request(CONFIG, consents(pod(YES)), (nameless,), START).obstacle is None
    elsewhere = replace(nameless, namespace="web")
    assert reason(tuning_request(CONFIG, consents(pod(YES)), (elsewhere,), START)) is ObstacleReason.NO_CONSENT


def test_people_get_the_operators_words() -> None:
    found = tuning_request(CONFIG, None, (ALICE,), START)
    assert (found.mode, found.obstacle, latency(found)) == ("enforce", None, "batch")
    unsaid = tuning_request(replace(CONFIG, work_class=None), None, (ALICE,), START)
    assert (reason(unsaid), unsaid.terms) == (ObstacleReason.NO_CLASS, None)


def test_without_owners_it_is_as_the_operator_would() -> None:
    assert tuning_request(CONFIG, None, (), START).mode == "enforce"


SHARES = {"0.03": 0.03, "3%": 0.03, " 3 % ": 0.03, ".5": 0.5, "0.5%": 0.005, "1.25%": 0.0125, "99%": 0.99}


@pytest.mark.parametrize("text", SHARES)
def test_a_share_may_be_written_as_a_ratio_or_in_percent(text: str) -> None:
    assert share(text) == pytest.approx(SHARES[text])


@pytest.mark.parametrize(
    "text", ["", "%", "3", "100%", "1", "0", "0%", "-1%", "nan", "inf", "1e-2", "0,03", "3 percent", "٣%", "0x1", "3%%"]
)
def test_a_share_that_is_none_switches_tuning_off_and_is_reported(text: str) -> None:
    assert share(text) is None
    for found in (wished(YES | {MAX_SLOWDOWN: text}), wished(namespace={MAX_SLOWDOWN: text})):
        assert (found.mode, reason(found), found.terms) == ("off", ObstacleReason.OPTED_OUT, None)
        assert found.obstacle is not None
        assert MAX_SLOWDOWN in found.obstacle.message


def test_where_one_of_two_pods_cannot_be_understood_nothing_is_promised_to_either() -> None:
    known = consents(pod(YES | {MAX_SLOWDOWN: "2%"}), pod(YES | {MAX_SLOWDOWN: "two"}, OTHER))
    found = tuning_request(CONFIG, known, (OWNER, OTHER), START)
    assert (found.mode, reason(found), found.terms) == ("off", ObstacleReason.OPTED_OUT, None)


@given(st.text(max_size=12))
def test_any_text_is_a_share_or_none(text: str) -> None:
    found = share(text)
    assert found is None or 0 < found < 1


@given(st.floats(0.0001, 0.9999))
def test_every_share_that_is_written_is_read(value: float) -> None:
    assert share(f"{value:.6f}") == pytest.approx(value, abs=1e-6)
    assert share(f"{100 * value:.4f}%") == pytest.approx(value, abs=1e-6)


def test_the_least_slowdown_that_any_owner_grants_is_promised() -> None:
    assert slowdown(wished(YES | {MAX_SLOWDOWN: "2%"}, namespace={MAX_SLOWDOWN: "3%"})) == pytest.approx(0.02)
    assert slowdown(wished(YES | {MAX_SLOWDOWN: "4%"}, namespace={MAX_SLOWDOWN: "3%"})) == pytest.approx(0.03)
    assert slowdown(wished(YES | {MAX_SLOWDOWN: "50%"})) == CONFIG.max_slowdown


UNSAID = replace(CONFIG, work_class=None)


@pytest.mark.parametrize(
    ("own", "namespace", "config", "expected"),
    [
        ("serving", "batch", CONFIG, "serving"),
        ("batch", "serving", UNSAID, "batch"),
        (None, "serving", CONFIG, "serving"),
        (None, None, CONFIG, "batch"),
        (None, None, UNSAID, None),
        ("training", "batch", CONFIG, None),
        (None, "Batch", CONFIG, None),
    ],
)
def test_the_class_is_the_pods_else_the_namespaces_else_the_operators(
    own: str | None, namespace: str | None, config: TuningConfig, expected: str | None
) -> None:
    annotation = {} if own is None else {CLASS: own}
    found = wished(YES | annotation, namespace={} if namespace is None else {CLASS: namespace}, config=config)
    assert latency(found) == expected
    assert reason(found) == (None if expected else ObstacleReason.NO_CLASS)


@pytest.mark.parametrize(
    ("annotations", "refused"),
    [({}, True), ({GANG: "local"}, False), ({GANG: "independent"}, False), ({GANG: "yes"}, True)],
)
def test_a_rank_of_a_job_is_refused_unless_it_is_all_here_or_waits_for_no_other(
    annotations: dict[str, str], refused: bool
) -> None:
    found = wished(YES | annotations, job="train")
    assert reason(found) == (ObstacleReason.GANG if refused else None)


def test_of_several_owners_the_strictest_counts_and_the_highest_priority() -> None:
    known = consents(
        pod(YES | {MAX_SLOWDOWN: "2%", CLASS: "batch"}, priority=-5),
        pod(YES | {MAX_SLOWDOWN: "4%", CLASS: "serving"}, OTHER, priority=1000),
    )
    found = tuning_request(CONFIG, known, (OWNER, OTHER), START)
    assert (found.mode, slowdown(found), latency(found)) == ("enforce", pytest.approx(0.02), "serving")
    assert found.priority == 1000
    assert tuning_request(CONFIG, known, (OWNER,), START).priority == -5


def test_one_owner_who_refuses_decides_for_all() -> None:
    found = tuning_request(CONFIG, consents(pod(YES), pod({AUTOTUNE: "off"}, OTHER)), (OWNER, OTHER), START)
    assert (found.mode, reason(found)) == ("off", ObstacleReason.OPTED_OUT)
    half = tuning_request(CONFIG, consents(pod(YES), pod(YES, OTHER)), (OWNER, OTHER, ALICE), START)
    assert half.mode == "enforce"


def test_one_owner_without_a_class_leaves_it_open_for_all() -> None:
    found = tuning_request(UNSAID, consents(pod(YES | {CLASS: "batch"}), pod(YES, OTHER)), (OWNER, OTHER), START)
    assert (found.terms, reason(found)) == (None, ObstacleReason.NO_CLASS)


def test_how_long_nobody_has_asked_is_reported() -> None:
    found = tuning_request(CONFIG, consents(pod(YES)), (OWNER,), START + 300)
    assert found.obstacle is not None
    assert "300 s ago" in found.obstacle.message


def test_the_most_serious_obstacle_is_reported() -> None:
    found = tuning_request(UNSAID, consents(pod({AUTOTUNE: "off"})), (OWNER, OTHER), START)
    assert reason(found) is ObstacleReason.NO_CONSENT


def test_a_tuner_that_observes_still_says_what_pods_request() -> None:
    found = wished(config=replace(CONFIG, mode="observe"))
    assert (found.mode, found.obstacle) == ("observe", None)
    assert reason(wished({}, config=replace(CONFIG, mode="observe"))) is ObstacleReason.NOT_OPTED_IN


def test_opting_in_is_the_pods_and_only_of_what_is_known_now() -> None:
    known = consents(pod(YES), pod({}, OTHER))
    observing = replace(CONFIG, mode="observe")
    assert opted_in(observing, known, OWNER, START)
    assert not opted_in(observing, known, OTHER, START)
    assert not opted_in(observing, known, ALICE, START)
    assert not opted_in(observing, known, OWNER, START + OLD_SECONDS + 1)
    assert not opted_in(observing, None, OWNER, START)


def test_who_else_sets_the_power_of_a_pod_is_known_by_an_annotation() -> None:
    known = consents(pod(YES | dict.fromkeys(POWER_AGENTS, "")), pod(YES, OTHER))
    assert power_agent(known, OWNER) == POWER_AGENTS[0]
    assert power_agent(known, OTHER) == ""
    assert power_agent(known, ALICE) == ""
    assert power_agent(None, OWNER) == ""


ANNOTATIONS = st.dictionaries(
    st.sampled_from([AUTOTUNE, MAX_SLOWDOWN, CLASS, GANG]),
    st.sampled_from([*MODES, "batch", "serving", "2%", "local"]) | st.text(max_size=20),
)


@given(ANNOTATIONS, ANNOTATIONS, ANNOTATIONS, st.sampled_from(MODES))
def test_whatever_is_written_nobody_is_tuned_beyond_what_was_granted(
    own: dict[str, str], namespace: dict[str, str], node: dict[str, str], mode: Mode
) -> None:
    found = wished(own, namespace=namespace, node=node, config=replace(CONFIG, mode=mode))
    annotation = [texts[AUTOTUNE].strip() for texts in (own, namespace, node) if AUTOTUNE in texts]
    if found.mode == "enforce":
        assert mode == "enforce"
        assert set(annotation) == {"enforce"}
        assert AUTOTUNE in {**own, **namespace}
    if found.terms is not None:
        assert 0 < found.terms.slowdown <= CONFIG.max_slowdown
    if found.obstacle is None:
        assert found.terms is not None
    assert found.mode == "enforce" or found.obstacle is not None or mode != "enforce"
