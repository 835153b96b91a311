"""Whom the kubelet of this machine is to the API server: its kubeconfig, and the Node that its credentials name."""

import base64
import re
import ssl
from pathlib import Path
from typing import Any

from gpuwatch.host.plain_file import content, plain

KUBECONFIGS = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig")
"""Where kubeadm, and where most clouds, put it."""

USER = "system:node:"
_COMMON_NAME = re.compile(rb"\x06\x03\x55\x04\x03[\x0c\x13](.)", re.DOTALL)
"""In DER: the OID 2.5.4.3, then a UTF8String or PrintableString and its length."""


def kubelet_kubeconfig(root: Path = Path("/")) -> Path | None:
    """The first that this process may read; None where there is none."""
    for path in KUBECONFIGS:
        try:
            with open(root / path.lstrip("/"), "rb", opener=plain):
                return root / path.lstrip("/")
        except OSError:
            continue
    return None


def node_of(kubeconfig: Path) -> str | None:
    """The Node whose kubelet a kubeconfig is of: by its user's name, else by its certificate; None: it is of none."""
    import yaml

    try:
        document = yaml.safe_load(content(kubeconfig).decode())
        name, user = _current_user(document)
        names = (name, *_common_names(_certificate(user)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError):
        return None
    return next((each.removeprefix(USER) for each in names if each.startswith(USER) and each != USER), None)


def _current_user(document: Any) -> tuple[str, dict[str, Any]]:
    current = document.get("current-context")
    contexts = [each for each in document["contexts"] if current in (None, "", each["name"])]
    name = str(contexts[0]["context"]["user"])
    return name, next((each.get("user") or {} for each in document["users"] if each["name"] == name), {})


def _certificate(user: dict[str, Any]) -> bytes:
    """DER; empty where there is none. The kubelet's file holds key and certificate in one."""
    if data := user.get("client-certificate-data"):
        text = base64.b64decode(data, validate=True).decode()
    elif path := user.get("client-certificate"):
        text = content(Path(str(path))).decode()
    else:
        return b""
    begin, end = text.find("-----BEGIN CERTIFICATE-----"), text.find("-----END CERTIFICATE-----")
    return b"" if begin < 0 else ssl.PEM_cert_to_DER_cert(text[begin:end] + "-----END CERTIFICATE-----\n")


def _common_names(certificate: bytes) -> tuple[str, ...]:
    """Issuer's and subject's."""
    found = (certificate[match.end() : match.end() + match[1][0]] for match in _COMMON_NAME.finditer(certificate))
    return tuple(name.decode("utf-8", "replace") for name in found)
