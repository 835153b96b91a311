"""The second line of defence of a bundle: what looks like a secret is taken out of every text.

The first line is that only known files and known keys are taken at all (`keep`). Patterns follow the published forms of
credentials (JWT, PEM, AWS, Google, GitHub, bcrypt, ...); beside them whatever stands behind a telling name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MARK = "[redacted]"

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[-_ ]?key|access[-_]?key(?:[-_]?id)?|private[-_]?key|"
    r"client[-_]?key|key[-_]?data|credentials?|auth(?:orization)?|identitytoken|cookie|session[-_]?id|signature[-_]?key)"
)
_TELLING = re.compile(rf"(?:.*[-_. ])?{_NAME}(?:[-_.](?:id|data|value|file))?|.*(?:password|passwd|secret|token)", re.I)

# Names are bounded, or begin where no other could: a log that somebody else writes must not cost minutes.

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
     lambda match: f"{match[1]}{_quoted_like(match[2])}"),
)  # fmt: skip

_LONG = re.compile(r"(?<![\w/+=-])[A-Za-z0-9+_=-]{32,}(?![\w/+=-])")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Redactor:
    """Takes secrets out. `known`: words that are to vanish wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = sorted((word for word in known if len(word) >= 4), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Any text; a second time changes nothing."""
        for word in self._known:
            text = text.replace(word, MARK)
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)
        return _LONG.sub(_unless_plain, text)

    def plain(self, value: Any) -> Any:
        """Mappings, lists and texts: what stands under a telling key goes whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(key) if isinstance(key, str) else key: MARK
                if item not in (None, "", False, True) and isinstance(key, str) and is_telling(key)
                else self.plain(item)
                for key, item in value.items()
            }
        return [self.plain(item) for item in value] if isinstance(value, list | tuple) else value


def is_telling(key: str) -> bool:
    """Whether values of that name are secrets: `password`, `aws_secret_access_key`, `client-key-data`."""
    return _TELLING.fullmatch(key) is not None


def _quoted_like(value: str) -> str:
    return f"{value[0]}{MARK}{value[0]}" if value[:1] in "\"'" else MARK


def _unless_plain(match: re.Match[str]) -> str:
    """Long words of mixed letters and digits are keys; those of one case are names, hashes and UUIDs."""
    word = match[0]
    if _UUID.search(word):
        return word
    kinds = (sum(map(str.isupper, word)), sum(map(str.islower, word)), sum(map(str.isdigit, word)))
    return MARK if min(kinds) >= 3 else word
