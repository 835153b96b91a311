"""What looks like a secret goes, whatever surrounds it; what a support case needs stays."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.bundling import filters
from gpuwatch.diagnose.bundling.redaction import MARK, Redactor, is_secret_name
from tests.seeds import a_third

REDACTOR = Redactor()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password=hunter2 next", f"password={MARK} next"),
        ('"db_password": "a b c", "x": 1', f'"db_password": "{MARK}", "x": 1'),
        ("DB_PASSWD='x y' z", f"DB_PASSWD='{MARK}' z"),
        ("api-key: abc, other: d", f"api-key: {MARK}, other: d"),
        ("train.py --api-token s3cr3t --epochs 3", f"train.py --api-token {MARK} --epochs 3"),
        ("train.py --token=s3cr3t --epochs 3", f"train.py --token={MARK} --epochs 3"),
        ("https://me:pa@ss@host/path", f"https://{MARK}@host/path"),
        ("http://token@host", f"http://{MARK}@host"),
        ("Authorization: Bearer abc.def", f"Authorization: {MARK}"),
        ("got Bearer abcdefghijk back", f"got Bearer {MARK} back"),
        ("X-Amz-Security-Token: abc def\nnext", f"X-Amz-Security-Token: {MARK}\nnext"),
        ("id AKIAIOSFODNN7EXAMPLE end", f"id {MARK} end"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- b", f"a {MARK} b"),
        ("a -----BEGIN PRIVATE KEY-----\\nabc cut off", f"a {MARK}"),
        ("me:$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy", f"me:{MARK}"),
        ("root:$6$salt$abcdefgh:1", f"root:{MARK}:1"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", MARK),
        ("blob?sig=abcdef%3D&se=1", f"blob?sig={MARK}&se=1"),
        ("key wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY12 used", f"key {MARK} used"),
    ],
)
def test_a_secret_goes_and_the_rest_stays(text, left):
    assert REDACTOR.text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "MIG-5fd4f087-86f3-7a43-b711-4771313afc50",
        "BOOT_IMAGE=/vmlinuz-6.8.0-51-generic root=/dev/sda1 ro iommu=pt",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "Loading of module with unavailable key is rejected",
        "feature.node.kubernetes.io/pci-0302_10de.present=true",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "0000:17:01.0: AER: enabled with IRQ 40",
    ],
)
def test_what_a_support_case_needs_stays(text):
    assert REDACTOR.text(text) == text


@given(st.text())
def test_a_second_time_changes_nothing(text):
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


@given(
    st.text(alphabet="abcXYZ0189!#%+/", min_size=1).map(lambda text: f"Zq{text}"),
    st.text(alphabet="ab= \n\"'{}", max_size=20),
)
def test_what_stands_behind_a_telling_name_never_stays(secret, around):
    assert secret not in REDACTOR.text(f"{around}\nmy_password={secret}\n{around}")
    assert secret not in json.dumps(
        REDACTOR.document({"a": [{"client-key-data": secret}], around: {"token": [secret]}})
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_documents_keep_their_shape(value):
    assert type(REDACTOR.document(value)) is type(value)


@pytest.mark.parametrize(
    "word", a_third(["token", "eyJ-", "-", "=", "a.", "https://", "X-Token-", "$6$", "-----BEGIN A-----"])
)
def test_a_log_made_to_cost_time_does_not(word):
    text = word * (200_000 // len(word))
    assert len(REDACTOR.text(text)) <= len(text) + len(MARK)


@pytest.mark.parametrize("word", ["token=[ ", "X-Key-"], ids=["list", "header"])
def test_the_words_that_cost_most_cost_little_more_than_ordinary_ones(word):
    """A list that never ends was read 4096 times, and the 64 characters after `X-` 64 times: five times the cost of
    a log in which no name stands.
    """

    def seconds(text):
        began = time.process_time()
        Redactor().text(text * ((1 << 16) // len(text)))
        return time.process_time() - began

    assert min(seconds(word) for _ in range(3)) < 3 * min(seconds("a word ") for _ in range(3))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("token=[a, b\nnext", f"token={MARK}\nnext"),
        ("token=[a, b] next", f"token={MARK} next"),
        ("a-X-Sign-Key: abc", f"a-X-Sign-Key: {MARK}"),
        ("X-Auth-Key-Id: abc", f"X-Auth-Key-Id: {MARK}"),
    ],
)
def test_what_is_read_once_is_still_removed(text, left):
    assert REDACTOR.text(text) == left


def test_known_words_vanish_wherever_they_stand():
    assert Redactor(["mypass", "ab"]).text("x mypass y ab") == f"x {MARK} y ab"


def test_names_that_are_clear():
    assert all(map(is_secret_name, ("password", "aws_secret_access_key", "client-key-data", "auth", "X-Vault-Token")))
    assert not any(map(is_secret_name, ("driver", "key", "author", "uuid", "public", "power_limit", "toolkit_config")))


def test_the_kernels_command_line_keeps_what_matters_to_gpus():
    line = "BOOT_IMAGE=/vmlinuz iommu=pt modprobe.blacklist=nouveau ip=10.0.0.1 rd.luks.key=abc quiet nvidia.NVreg_X=1"
    kept = filters.cmdline(line)
    assert kept == (
        f"BOOT_IMAGE=/vmlinuz iommu=pt modprobe.blacklist=nouveau ip={MARK} rd.luks.key={MARK} quiet nvidia.NVreg_X=1\n"
    )
    assert filters.left_out_of_cmdline(line) == ("10.0.0.1", "abc")


def test_modprobe_files_keep_lines_about_gpus():
    about = "blacklist nouveau\nblacklist floppy\noptions nvidia NVreg_A=1\nalias nouveau off\n"
    assert filters.modprobe(f"# note: pw x\n{about}options wifi psk=abc\n") == about


@pytest.mark.parametrize("text", ["version = [", "a = 1\na = 2", "\x00"])
def test_toml_that_is_none_stays_none(text):
    import tomllib

    with pytest.raises(ValueError, match="line"):
        tomllib.loads(filters.as_toml(filters.CONTAINERD)(text))


def test_toml_is_toml_again():
    import tomllib

    text = (
        'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n[plugins."io.containerd.cri.v1.runtime"]\n'
        'enable_cdi = true\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes."nvidia".options]\n'
        'BinaryName = "/usr/bin/x \\"quoted\\""\n[plugins.other]\nkey = "v"\n'
    )
    kept = tomllib.loads(filters.as_toml(filters.CONTAINERD)(text))
    expected = tomllib.loads(text)
    del expected["plugins"]["other"]
    assert kept == expected


@given(st.text())
def test_every_filter_takes_any_text(text):
    every = (
        filters.cmdline, filters.modprobe, filters.assignments, filters.packages,
        filters.as_toml(filters.CONTAINERD), filters.as_json(filters.DOCKER), filters.as_yaml(filters.CDI),
    )  # fmt: skip
    assert all(isinstance(filter_(text), str) for filter_ in every)
