"""The second line of defence of a bundle: whatever looks like a secret is removed from every text.

The first line is that only known files and known keys are taken at all (`allow_list`, `filters`). Patterns follow the
published forms of credentials (JWT, PEM, AWS, Google, GitHub, bcrypt, ...), and the value behind any secret's name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MARK = "[redacted]"

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[-_ ]?key|access[-_]?key(?:[-_]?id)?|private[-_]?key|"
    r"client[-_]?key|key[-_]?data|credentials?|auth(?:orization)?|identitytoken|cookie|session[-_]?id|signature[-_]?key)"
)
_SECRET_NAME = re.compile(
    rf"(?:.*[-_. ])?{_NAME}(?:[-_.](?:id|data|value|file))?|.*(?:password|passwd|secret|token)", re.I
)

# Repetitions are bounded, or begin where no other could: a log written by an attacker must not cost minutes.

_Replacement = str | Callable[[re.Match[str]], str]

PATTERNS: tuple[tuple[re.Pattern[str], _Replacement], ...] = (
    # PEM, also with its line ends written as \n in JSON; one that is cut off goes on to the end
    (re.compile(r"-----BEGIN [A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.S), MARK),
    (re.compile(r"\bssh-(?:rsa|dss|ed25519)\s+[A-Za-z0-9+/=]{20,}"), MARK),
    (re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*"), MARK),  # JWT
    (re.compile(r"\b((?:Bearer|Basic|Digest|Negotiate|Splunk|AWS4-HMAC-SHA256)\s+)[\w.~+/=-]{8,}", re.I), rf"\1{MARK}"),
    (re.compile(r"\b((?:Proxy-)?Authorization|(?:Set-)?Cookie|X-[\w-]{0,64}(?:Token|Key|Auth)[\w-]{0,64})"
                r"(\"?\s{0,8}[:=]\s{0,8}\"?)[^\"\n]+", re.I), rf"\1\2{MARK}"),
    (re.compile(r"\b([a-z][a-z0-9+.-]{1,20}://)[^\s\"'<>/]{1,1024}@", re.I), rf"\1{MARK}@"),  # who logs in to a URL
    (re.compile(r"([?&](?:sig|signature|token|key|code|X-Amz-[\w-]+)=)[^&\s\"']+", re.I), rf"\1{MARK}"),
    (re.compile(r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA)[A-Z0-9]{16}\b"), MARK),
    (re.compile(r"\bAIza[\w-]{35}|\bya29\.[\w.-]{10,}|\bGOCSPX-[\w-]{10,}"), MARK),  # Google
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|nvapi-|sk-|dckr_pat_|hvs\.|npm_|pypi-)[\w.-]{10,}"),
     MARK),
    (re.compile(r"\$(?:2[abxy]?|1|5|6|7|y|gy|argon2\w*|scrypt|apr1)\$[^\s\"':]{8,}"), MARK),  # hashes of passwords
    (re.compile(rf"((?<!\S)--?[\w-]{{0,64}}{_NAME}[\w-]{{0,64}}[ =])(\"[^\"]*\"|'[^']*'|[^\s\"']+)", re.I),
     rf"\1{MARK}"),
    (re.compile(rf"((?<![\w.-])[\w.-]*{_NAME}[\w.-]{{0,64}}[\"']?\s{{0,8}}[=:]\s{{0,8}})"
                r"(\[redacted\]|\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"',;&}\]]+)", re.I),
     lambda match: match[1] + (f"{match[2][0]}{MARK}{match[2][0]}" if match[2][0] in "\"'" else MARK)),
)  # fmt: skip

_LONG = re.compile(r"(?<![\w/+=-])[A-Za-z0-9+_=-]{32,}(?![\w/+=-])")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Redactor:
    """Removes secrets. `known`: texts that are removed wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = sorted((secret for secret in known if len(secret) >= 4), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Any text; a second time changes nothing."""
        for secret in self._known:
            text = text.replace(secret, MARK)
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)

        def unless_harmless(match: re.Match[str]) -> str:
            # long words of mixed letters and digits are keys; those of one case are names, hashes and UUIDs
            kinds = [sum(map(kind, match[0])) for kind in (str.isupper, str.islower, str.isdigit)]
            return MARK if min(kinds) >= 3 and not _UUID.search(match[0]) else match[0]

        return _LONG.sub(unless_harmless, text)

    def document(self, value: Any) -> Any:
        """Mappings, lists and texts; the whole value of a key that names a secret is removed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(key) if isinstance(key, str) else key: MARK
                if item not in (None, "", False, True) and isinstance(key, str) and is_secret_name(key)
                else self.document(item)
                for key, item in value.items()
            }
        return [self.document(item) for item in value] if isinstance(value, list | tuple) else value


def is_secret_name(key: str) -> bool:
    """Whether values of that name are secrets: `password`, `aws_secret_access_key`, `client-key-data`."""
    return _SECRET_NAME.fullmatch(key) is not None
