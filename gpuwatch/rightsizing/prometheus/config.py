"""How a Prometheus is reached: the `http_config` of Prometheus' own configuration files, from a file of its own.

A configuration for remote_read, Grafana Agent or promtool works here unchanged; a key that this client does not support
(oauth2, sigv4) is refused by name instead of being ignored. A secret may stand in the file or in one that it names.
"""

import base64
import ssl
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpuwatch.config.errors import first_wrong
from gpuwatch.config.named_file import read_named_file
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError

TlsVersion = Literal["TLS10", "TLS11", "TLS12", "TLS13"]

_VERSIONS: dict[str, ssl.TLSVersion] = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}

REFUSED = ("oauth2", "sigv4", "azuread", "google_iam", "proxy_connect_header", "proxy_from_environment", "no_proxy")
"""Keys of other clients that this one does not support."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class BasicAuthConfig(_Section, frozen=True, kw_only=True):
    """`basic_auth`."""

    username: str = ""
    username_file: str = ""
    password: str = ""
    password_file: str = ""


class Authorization(_Section, frozen=True, kw_only=True):
    """`authorization`."""

    type: str = "Bearer"
    credentials: str = ""
    credentials_file: str = ""


class TlsConfig(_Section, frozen=True, kw_only=True):
    """`tls_config`; certificates as files or as text."""

    ca: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False
    min_version: TlsVersion | None = None
    max_version: TlsVersion | None = None

    def context(self) -> ssl.SSLContext:
        """The TLS context of a connection.

        Raises:
            UsageError: a file cannot be read, or is no certificate or key.
        """
        files = [name for name in (self.ca_file, self.cert_file, self.key_file) if name]
        for name in files:
            read_named_file(
                name, "", "the file of --http-config"
            )  # OpenSSL, which reads by name, would wait for a FIFO
        try:
            made = ssl.create_default_context(cafile=self.ca_file or None, cadata=self.ca or None)
            if self.cert_file:
                made.load_cert_chain(self.cert_file, self.key_file or None, password="")  # else OpenSSL prompts for it
        except (OSError, ValueError) as error:  # SSLError is an OSError
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(
                f"cannot use tls_config ({', '.join(files) or 'ca'})", why, "look at the file of --http-config"
            ) from error
        if self.min_version:
            made.minimum_version = _VERSIONS[self.min_version]
        if self.max_version:
            made.maximum_version = _VERSIONS[self.max_version]
        if self.insecure_skip_verify:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        return made


class HeaderValues(_Section, frozen=True, kw_only=True):
    """One header of `http_headers`."""

    values: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class HttpConfig(_Section, frozen=True, kw_only=True):
    """The whole file. `enable_http2` and `follow_redirects` are accepted because other clients have them: this one uses
    HTTP/1.1, and reports a redirect instead of sending credentials elsewhere.
    """

    basic_auth: BasicAuthConfig | None = None
    authorization: Authorization | None = None
    bearer_token: str = ""
    bearer_token_file: str = ""
    tls_config: TlsConfig = TlsConfig()
    http_headers: dict[str, HeaderValues] = {}
    proxy_url: str = ""
    enable_http2: bool = True
    follow_redirects: bool = True

    def headers(self) -> dict[str, str]:
        """The headers of a request; files are read again for each, as tokens in them are renewed.

        Raises:
            UsageError: a file that it names cannot be read.
        """
        found = {
            name: ",".join((*header.values, *header.secrets, *map(_secret, header.files)))
            for name, header in self.http_headers.items()
        }
        auth = self.basic_auth
        if auth is not None:
            user = auth.username or _secret(auth.username_file)
            found["Authorization"] = basic(user, auth.password or _secret(auth.password_file))
        if self.authorization is not None:
            credentials = self.authorization.credentials or _secret(self.authorization.credentials_file)
            found["Authorization"] = f"{self.authorization.type} {credentials}"
        if self.bearer_token or self.bearer_token_file:
            found["Authorization"] = f"Bearer {self.bearer_token or _secret(self.bearer_token_file)}"
        return found


def basic(user: str, password: str) -> str:
    """The value of the header Authorization."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _secret(name: str) -> str:
    if not name:
        return ""
    try:
        return read_named_file(name, "", "the file of --http-config").decode().strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {name}", str(error), "check the file of --http-config") from None


def load_http_config(path: Path) -> HttpConfig:
    """Read and check the file; relative paths in it are taken from its folder.

    Raises:
        UsageError: it cannot be read, is no YAML, has a key that this client does not know or contradicts itself.
    """
    from gpuwatch.config.yaml import read

    what = f"cannot use {path} as --http-config"
    found = read(path, "HTTP configuration", "--http-config", secrets=True)
    document = {} if found.value is None else found.value
    refused = [key for key in REFUSED if isinstance(document, dict) and key in document]
    if refused:
        raise UsageError(what, f"gpuwatch cannot do {refused[0]}", "use a proxy that does, or --header NAME:VALUE")
    wrong = first_wrong(document, HttpConfig)
    if wrong is not None:
        what = f"cannot use {found.at(wrong.path)} as --http-config"
        raise UsageError(what, f"{wrong.path or 'the file'}: {wrong.why}", wrong.hint)
    config = msgspec.convert(_resolved(document, path.parent), prepared(HttpConfig))
    ways = [config.basic_auth, config.authorization, config.bearer_token or config.bearer_token_file or None]
    if sum(way is not None for way in ways) > 1:
        raise UsageError(what, "it has several of basic_auth, authorization, bearer_token", "keep one of them")
    return config


def _resolved(value: Any, folder: Path) -> Any:
    """The document with its paths made absolute."""
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if key == "files":
            found[key] = [str(folder / name) for name in inner]
        elif key.endswith("_file") and inner:
            found[key] = str(folder / inner)
        else:
            found[key] = _resolved(inner, folder)
    return found
