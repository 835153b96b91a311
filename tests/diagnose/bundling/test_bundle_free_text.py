"""Secrets in free text: sixty of 45 kinds, in every text of a bundle, are in none of its bytes; ordinary lines stay."""

import base64
import gzip
import random
import string
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.bundling.bundle import write_bundle
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.view import Events
from tests.diagnose.bundling.bundles import contents
from tests.diagnose.hosts import Host

ORDINARY = Path(__file__).with_name("ordinary.log").read_text().splitlines()
WORD = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
BASE64 = WORD + "+/"

KINDS: dict[str, tuple[str, str, int]] = {
    "assigned": ("db_password={}", WORD, 12),
    "assigned with a colon": ("client_secret: {}", WORD, 12),
    "behind an arrow": ("token => {}", WORD, 12),
    "behind a blank": ("client_secret {}9", WORD, 12),
    "XML": ("<password>{}</password>", WORD, 10),
    "XML with attributes": ('<wsse:Password Type="Text">{}</wsse:Password>', WORD, 10),
    "JSON": ('{{"apiKey":"{}","x":1}}', WORD, 12),
    "JSON in JSON": (r'"{{\"secret\":\"{}\",\"x\":1}}"', WORD, 12),
    "JSON list": ('{{"tokens": ["{}", "b"]}}', WORD, 12),
    "command line": ("train.py --api-token {} --epochs 3", WORD, 12),
    "command line with equals": ("train.py --wandb-key=1 --password={} x", WORD, 12),
    "environment": ("export PGPASSWORD={}", WORD, 12),
    "container variable": ('{{"name": "DB_PASSWORD", "value": "{}"}}', WORD, 12),
    "URL": ("https://me:{}@registry.example/v2", WORD, 12),
    "database": ("root:{}@tcp(127.0.0.1:3306)/db", WORD, 12),
    "connection string": ("Server=db;Uid=sa;Pwd={};Encrypt=yes", WORD, 12),
    "postgres": ("host=db user=me password='{}' dbname=x", WORD, 12),
    "mysql": ("mysql -h db -u me -p{} x", WORD, 12),
    "curl": ("curl -u me:{} https://x", WORD, 12),
    "header": ("Authorization: Custom {}", WORD, 24),
    "bearer": ("sent Bearer {} to it", WORD, 24),
    "cookie": ("Set-Cookie: sid={}; Path=/", WORD, 24),
    "PEM": ("-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----", BASE64, 64),
    "JWT": ("got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.{}", WORD, 43),
    "AWS": ("id AKIA{} used", string.ascii_uppercase + string.digits, 16),
    "AWS secret by itself": ("used {} for it", BASE64, 40),
    "GitHub": ("clone ghp_{}", WORD, 36),
    "GitHub, fine-grained": ("clone github_pat_{}", WORD, 40),
    "GitLab": ("clone glpat-{}", WORD, 20),
    "Slack": ("post xoxb-123456789012-{}", WORD, 24),
    "Slack hook": ("post https://hooks.slack.com/services/T01/B02/{}", WORD, 24),
    "Google": ("map AIza{}", WORD, 35),
    "Azure account": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=x", BASE64, 86),
    "Azure SAS": ("blob?sv=2022&sp=r&sig={}&se=1", WORD, 43),
    "NGC": ("login nvapi-{}", WORD, 64),
    "Hugging Face": ("login hf_{}", WORD, 34),
    "OpenAI": ("login sk-proj-{}", WORD, 48),
    "Kubernetes bootstrap": ("kubeadm join --x abc1d2.{}", LOWER, 16),
    "docker auth": ('"nvcr.io":{{"auth":"{}=="}}', BASE64, 30),
    "basic": ("Proxy says Basic {}==", BASE64, 30),
    "SSH key": ("ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY{} me@x", BASE64, 80),
    "kubeconfig": ("client-key-data: {}", BASE64, 80),
    "YAML block": ("password: |\n  {}\n", WORD, 14),
    ".netrc": ("machine x login me password {}", string.ascii_letters, 12),
    "random word": ("kept {} there", WORD, 28),
}


def planted() -> dict[str, tuple[str, str]]:
    """Kind -> the secret, and a text that holds it; the same each time. Two of some kinds make sixty."""
    chance = random.Random(17)
    found = {}
    for number in range(60):
        kind = list(KINDS)[number % len(KINDS)]
        text, alphabet, length = KINDS[kind]
        # of each class of the alphabet one, as generators of keys make sure of it
        classes = [
            set(alphabet) & set(each) for each in (string.ascii_lowercase, string.ascii_uppercase, string.digits)
        ]
        secret = [chance.choice(sorted(each)) for each in classes if each for _ in range(2)]
        secret += chance.choices(alphabet.replace("/", ""), k=length - len(secret))
        chance.shuffle(secret)
        word = "".join(secret)
        found[f"{kind} {number}"] = (word, text.format(word))
    return found


PLANTED = planted()


def forms(secret: str) -> list[bytes]:
    """The secret, and what base64 makes of it wherever it stands in what is encoded."""
    encoded = []
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + secret.encode())
        encoded.append(text[4 if shift else 0 : len(text) // 4 * 4 - 4])
    return [secret.encode(), *encoded]


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_in_a_line_goes(kind):
    secret, text = PLANTED[kind]
    assert secret not in Redactor().text(text)
    assert secret not in Redactor().text(f"[ 12.5] nvidia: {text} and so on")


def plant(host: Host) -> Events:
    """Every text in every place that a bundle is made of."""
    text = "\n".join(text for _, text in PLANTED.values())
    log = host.root / "gpuwatch/kernel.log"
    log.write_text(log.read_text() + "".join(f"[ 2000.0] nvidia: {text}\n" for _, text in PLANTED.values()))
    host.write("var/log/fabricmanager.log", text)
    host.write("proc/driver/nvidia/registry", text)
    host.write("etc/modprobe.d/planted.conf", "".join(f"options nvidia {t}\n" for _, t in PLANTED.values()))
    host.write("run/nvidia/validations/planted", text)
    for path in ("etc/os-release", "proc/modules", "proc/driver/nvidia/params", "etc/hostname"):
        with (host.root / path).open("a") as file:
            file.write(f"\n{text}\n")
    assert host.view is not None
    assert host.cluster is not None
    found = Finding(check="xid_fatal", severity=Severity.CRITICAL, message=text, evidence={"line": text})
    statuses = tuple(replace(each, detail=text) for each in host.view.snapshot.statuses)
    judgement = replace(host.view.judgement, findings=(found,))
    host.view = replace(host.view, snapshot=replace(host.view.snapshot, statuses=statuses), judgement=judgement)
    host.earlier = host.view
    host.cluster = replace(host.cluster, unseen={"pods": text})
    host.exporters = (Exporter(port=9400, error=text),)
    host.unread = {"operator": text}
    failed = ActionEvent(at=1.0, actor="operator", action="evict", target=text, result=Result.FAILED, detail=text)
    return Events(actions=(failed,))


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> bytes:
    place = tmp_path_factory.mktemp("free-text")
    host = Host(place / "host")
    events = plant(host)
    made = contents(host, events=events)
    files = b"".join(path.read_bytes() for path in host.root.rglob("*") if path.is_file())
    there = files + msgspec.json.encode(made)
    assert all(secret.encode() in there for secret, _ in PLANTED.values())
    write_bundle(place / "case.tgz", made)
    return gzip.decompress((place / "case.tgz").read_bytes())


def test_sixty_secrets_are_in_no_byte_of_a_bundle(archive):
    assert len(PLANTED) == 60
    left = [kind for kind, (secret, _) in PLANTED.items() if any(form in archive for form in forms(secret))]
    assert left == []
    assert b"nvidia: clone [redacted]" in archive


def test_ordinary_lines_stay():
    touched = [line for line in ORDINARY if Redactor().text(line) != line]
    print(f"{len(touched)} of {len(ORDINARY)} ordinary lines are touched ({len(touched) / len(ORDINARY):.1%})")
    assert len(touched) <= len(ORDINARY) // 50
