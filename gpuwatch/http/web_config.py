"""The web configuration file that Prometheus' exporters share (prometheus/exporter-toolkit, docs/web-configuration.md).

One file protects every exporter of a fleet, so its keys keep their meaning here; a key that this
server does not support is refused by name instead of being ignored.
"""

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.config.yaml import Document

ClientAuth = Literal[
    "NoClientCert", "RequestClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
]
TlsVersion = Literal["TLS12", "TLS13"]

CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": None,
    "TLS_AES_256_GCM_SHA384": None,
    "TLS_CHACHA20_POLY1305_SHA256": None,
}
"""Go's names of cipher suites (crypto/tls, CipherSuites) to OpenSSL's; None: TLS 1.3, always on, as in Go."""

_UNSUPPORTED = {
    "cert": "write it to a file and name that in cert_file",
    "key": "write it to a file and name that in key_file",
    "client_ca": "write it to a file and name that in client_ca_file",
    "curve_preferences": "leave it out: OpenSSL's order is used",
    "rate_limit": "leave it out: concurrent requests are bounded anyway",
}
"""Keys that exporter-toolkit supports and gpuwatch does not, and the advice for each."""

_SEE = "see https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md"
_BCRYPT = re.compile(r"\$2[abxy]\$(?:0[4-9]|1[0-8])\$[./A-Za-z0-9]{53}")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the file's mappings."""


class TlsServerConfig(_Section, frozen=True, kw_only=True):
    """`tls_server_config`; paths are relative to the file that names them."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: ClientAuth = "NoClientCert"
    client_ca_file: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """Every file the TLS context is made from."""
        return tuple(name for name in (self.cert_file, self.key_file, self.client_ca_file) if name)

    @property
    def verifies_clients(self) -> bool:
        """Whether a client certificate, when there is one, must be signed by the client CA."""
        return self.client_auth_type in ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")


class Headers(
    _Section, frozen=True, kw_only=True, rename=lambda name: name.title().replace("_", "-").replace("Xss", "XSS")
):
    """`http_server_config.headers`: added to every response; blank means none."""

    content_security_policy: str = ""
    strict_transport_security: str = ""
    x_content_type_options: Literal["", "nosniff"] = ""
    x_frame_options: Literal["", "deny", "sameorigin"] = ""
    x_xss_protection: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Name and value of those that are set."""
        return tuple((name, value) for name, value in msgspec.to_builtins(self).items() if value)


class HttpServerConfig(_Section, frozen=True, kw_only=True):
    """`http_server_config`."""

    http2: bool = True
    """Accepted for the other exporters' sake; this server supports HTTP/1.1 only."""
    headers: Headers = Headers()


class WebConfig(_Section, frozen=True, kw_only=True):
    """The whole file."""

    tls_server_config: TlsServerConfig | None = None
    http_server_config: HttpServerConfig = HttpServerConfig()
    basic_auth_users: dict[str, str] = {}
    """User name to bcrypt hash."""


_KNOWN_KEYS: dict[str, None] = {
    field.encode_name: None
    for section in (WebConfig, TlsServerConfig, HttpServerConfig, Headers)
    for field in msgspec.structs.fields(section)
}


def load_web_config(path: Path) -> WebConfig:
    """Read and check the file; its paths are returned resolved against its folder.

    Raises UsageError naming the file, the key and the next step.
    """
    from gpuwatch.config.yaml import read

    document = read(path, "web configuration", "--web-config", secrets=True)
    try:
        config = msgspec.convert({} if document.value is None else document.value, prepared(WebConfig))
        _check(config)
    except msgspec.ValidationError as error:
        raise _explained(error, document) from error
    tls = config.tls_server_config
    if tls is None:
        return config
    names = ("cert_file", "key_file", "client_ca_file")
    paths = {name: str(path.parent / value) for name in names if (value := getattr(tls, name))}
    return msgspec.structs.replace(config, tls_server_config=msgspec.structs.replace(tls, **paths))


def _check(config: WebConfig) -> None:
    """Raise ValidationError, in msgspec's own wording, on what the types cannot express."""
    for user, stored in config.basic_auth_users.items():
        if not _BCRYPT.fullmatch(stored):
            raise msgspec.ValidationError(f"Expected a bcrypt hash of cost 4 to 18 - at `$.basic_auth_users.{user}`")
    for name, value in config.http_server_config.headers.pairs:
        if not _PRINTABLE.fullmatch(value):
            raise msgspec.ValidationError(f"Expected printable ASCII - at `$.http_server_config.headers.{name}`")
    tls = config.tls_server_config
    if tls is None:
        return
    unknown = [name for name in tls.cipher_suites if name not in CIPHERS]
    wrong = {
        "cert_file and key_file are both needed": not (tls.cert_file and tls.key_file),
        "RequireAnyClientCert cannot be had (Python's TLS takes no unverified certificate); "
        "use RequireAndVerifyClientCert": tls.client_auth_type == "RequireAnyClientCert",
        f"{tls.client_auth_type} needs client_ca_file": tls.verifies_clients and not tls.client_ca_file,
        "client_ca_file needs a client_auth_type that verifies": tls.client_ca_file and not tls.verifies_clients,
        "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert": tls.client_allowed_sans
        and tls.client_auth_type != "RequireAndVerifyClientCert",
        "min_version is above max_version": tls.min_version > tls.max_version,
        f"unknown cipher_suites {', '.join(unknown)}": unknown,
    }
    for complaint, applies in wrong.items():
        if applies:
            raise msgspec.ValidationError(f"{complaint} - at `$.tls_server_config`")


def _explained(error: msgspec.ValidationError, document: "Document") -> UsageError:
    """The error in terms of the file: the key's path, and for an unknown key the nearest known one."""
    why, _, where = str(error).partition(" - at ")
    section = where.strip("`").removeprefix("$").removeprefix(".")
    unknown = re.search(r"unknown field `(.+)`", why)
    if unknown is None:
        wrong = f"web configuration {document.at(section)} is wrong"
        return UsageError(wrong, f"{section}: {why}" if section else why, _SEE)
    key = unknown[1]
    near = difflib.get_close_matches(key, _KNOWN_KEYS, n=1, cutoff=0.5)
    advice = _UNSUPPORTED.get(key) or (f"did you mean {near[0]}?" if near else _SEE)
    full = ".".join(filter(None, (section, key)))
    return UsageError(f"unknown key {full} in {document.at(full)}", "gpuwatch does not know it", advice)
