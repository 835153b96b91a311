"""The second line of defence of a bundle: whatever looks like a secret is removed from every text.

The first line is that only known files and known keys are taken at all (`allowed_files`, `filters`). Patterns follow
the published forms of credentials (JWT, PEM, AWS, Google, GitHub, bcrypt, ...), and the value after a secret's name.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

MARK = "[redacted]"

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)s?|(?<![a-z])pass(?![a-z])|pwd|secret(?!name|\.go:)s?|token(?!s?[-_]?(?:iz|per|count|review)|s?\.go:)s?"
    r"|api[-_ ]?key|(?:access|account|client|encryption|license|master|private|shared|signature|signing)[-_]?key"
    r"|storage[-_]?key|key[-_]?data|certificate[-_]?(?:authority[-_]?)?data|credentials?|auth(?:orization)?(?![a-z])|cookie"
    r"|session[-_]?id)"
)
_SECRET_NAME = re.compile(
    rf"(?:.*[-_. ])?{_NAME}(?:[-_.](?:id|data|value|file))?|.*(?:password|passwd|secret|token|accountkey)", re.I
)

# Repetitions are bounded, or can begin at one place only, and a long one never reads the same text again: a log
# written by an attacker must not take minutes.

_Replacement = str | Callable[[re.Match[str]], str]

_NAMED = rf"(?<![\w.-])[\w.-]{{0,64}}{_NAME}[\w.-]{{0,64}}"
"""A word that contains the name of a secret: `DB_PASSWORD`, `clientSecretV2`."""
_ASSIGNS = r"\\{0,4}[\"']?\s{0,8}(?:=>|->|:=|[=:]|%3D)\s{0,8}"
_VALUE = (
    r"(?:\[redacted\]|\[[^\]\n]{0,4096}+\]?|\\{1,4}\"(?:[^\"\\\n]|\\[^\"\n])*\\{1,4}\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'"
    r"|(?:[^\s\"',;&}\]<]|[\"'](?=\w)|,(?!\s|$|[\w.-]{1,64}\s?[=:]))+)"
)
"""A list (also a cut-off one), a quoted text (also one inside another), or a word; a comma ends it where another name
follows.
"""


def _without_value(match: re.Match[str]) -> str:
    name, block, sign, value, blank = match.groups()
    if block:
        return f"{name}{block}  {MARK}\n"
    quote = value[0] if value and value[0] in "\"'" else ""
    return f"{name}{sign or blank}{quote}{MARK}{quote}"


PATTERNS: tuple[tuple[re.Pattern[str], _Replacement], ...] = (
    # PEM, also with its line ends written as \n in JSON; one that is cut off extends to the end
    (re.compile(r"-----BEGIN [A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.S), MARK),
    (re.compile(r"\bAAAA[A-E][23][A-Za-z0-9+/]{16,}={0,2}"), MARK),  # the body of an SSH key of any type
    (re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*"), MARK),  # JWT
    (re.compile(r"\b((?:Bearer|Basic|Digest|Negotiate|Splunk|AWS4-HMAC-SHA256)\s+)[\w.~+/=-]{8,}", re.I), rf"\1{MARK}"),
    (re.compile(r"\b((?:Proxy-)?Authorization|(?:Set-)?Cookie|(?>X-[\w-]{0,64}?(?:Token|Key|Auth)[\w-]{0,64}))"
                r"(\"?\s{0,8}[:=]\s{0,8}\"?)[^\"\n]+", re.I), rf"\1\2{MARK}"),
    (re.compile(r"\b([a-z][a-z0-9+.-]{1,20}://)[^\s\"'<>/]{1,1024}@", re.I), rf"\1{MARK}@"),  # a URL with a login
    (re.compile(r"(?<![\w.-])([\w.-]{1,64}:)[^\s:@/]{1,256}@(?=(?:tcp|unix)\(|[\w.-]{1,256}:\d{2,5}/)"), rf"\1{MARK}@"),
    (re.compile(r"\b(hooks\.slack\.com/services/|discord\.com/api/webhooks/)[\w/-]+", re.I), rf"\1{MARK}"),
    (re.compile(r"(?<![\w.-])((?:sig|signature|X-Amz-[\w-]{1,64}|(?<=[?&])(?:key|code))=)[^&\s\"'<]{8,}", re.I),
     rf"\1{MARK}"),
    (re.compile(r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA)[A-Z0-9]{16}\b"), MARK),
    (re.compile(r"\bAIza[\w-]{35}|\bya29\.[\w.-]{10,}|\bGOCSPX-[\w-]{10,}"), MARK),  # Google
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|gl(?:pat|dt|rt|ptt|sa)[-_]|xox[abeprs]-|xapp-|hf_|nvapi-|[rsp]k-"
                r"|[rsp]k_(?:live|test)_|dckr_(?:pat|oat)_|hv[sbr]\.|npm_|pypi-|dapi|dop_v1_|SG\.|AGE-SECRET-KEY-1)"
                r"[\w.-]{10,}"), MARK),
    (re.compile(r"(?<![\w.-])(?=[a-z]{0,5}\d|[a-z0-9]{6}\.[a-z]{0,15}\d)[a-z0-9]{6}\.[a-z0-9]{16}(?![\w.-])"),
     MARK),  # a bootstrap token of Kubernetes
    (re.compile(r"\$(?:2[abxy]?|1|5|6|7|y|gy|argon2\w*|scrypt|apr1)\$[^\s\"':]{8,}"), MARK),  # hashes of passwords
    (re.compile(rf"(<[\w:.-]{{0,64}}{_NAME}[\w.-]{{0,64}}(?:\s[^<>\n]{{0,256}})?>)[^<]{{1,4096}}(?=<|\Z)", re.I),
     rf"\1{MARK}"),
    (re.compile(rf"((?<!\S)--?[\w-]{{0,64}}{_NAME}[\w-]{{0,64}}[ =])(\"[^\"]*\"|'[^']*'|[^\s\"']+)", re.I),
     rf"\1{MARK}"),
    (re.compile(r"((?<!\S)(?:mysql\w{0,16}|mariadb|sshpass|(?:docker|podman) login)\s[^\n]{0,200}?\s?-p\s?)[^\s\"']+"),
     rf"\1{MARK}"),
    (re.compile(r"((?<!\S)(?:-u|--user)[ =])[^\s:\"']{1,256}:[^\s\"']+"), rf"\1{MARK}"),
    (re.compile(r"(\blogin\s+\S{1,256}\s+password\s+)\S+", re.I), rf"\1{MARK}"),  # .netrc
    # the variable of a container: its name here, its value in the next field
    (re.compile(rf"(name[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?{_NAMED}[\"']?\s{{0,64}},?\s{{0,64}}[\"']?value{_ASSIGNS})"
                rf"{_VALUE}", re.I), rf"\1{MARK}"),
    # after a name: a block of YAML; a value after a sign; one after a blank, if it is no word of a sentence
    (re.compile(rf"({_NAMED})(?:([\"']?[ \t]{{0,8}}:[ \t]{{0,8}}[|>][+-]?\d?\n)(?:[ \t]+[^\n]*(?:\n|\Z))+"
                rf"|({_ASSIGNS})({_VALUE})"
                rf"|([ \t]{{1,8}})(?=[^\s\"'=:]{{0,64}}\d)[\w.~+/!@#$%^&*-]{{6,}}(?![\w=:/\"']))", re.I),
     _without_value),
)  # fmt: skip

_WORD = re.compile(r"(?<![\w/+=.-])[A-Za-z0-9+/_=-]{20,}(?![\w/+=-])")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CLASSES = (str.isupper, str.islower, str.isdigit)
_LONG, _CHANGES = 32, 0.35

_SHORT = 100
"""The longest text whose result is cached: keys and words of documents occur repeatedly."""


def is_random(word: str) -> bool:
    """Whether a word looks like a key: upper case, lower case and digits change faster than in any name.

    UUIDs, hashes and identifiers, which have one case, are kept: a diagnosis distinguishes GPUs, pods and builds by
    them.
    """
    if _UUID.search(word) or min(sum(map(kind, word)) for kind in _CLASSES) < (2 if len(word) < _LONG else 3):
        return False
    kinds = [next((number for number, kind in enumerate(_CLASSES) if kind(each)), -1) for each in word]
    changes = sum(left != right for left, right in pairwise(kinds))
    return changes >= _CHANGES * len(word) or (len(word) >= _LONG and "/" not in word)


class Redactor:
    """Removes secrets. `known`: texts of 4 characters or more that are removed everywhere."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = sorted((secret for secret in known if len(secret) >= 4), key=len, reverse=True)
        self._short = functools.lru_cache(4096)(self._without_secrets)

    def text(self, text: str) -> str:
        """The text without secrets; redacting it again changes nothing."""
        return self._short(text) if len(text) <= _SHORT else self._without_secrets(text)

    def _without_secrets(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, MARK)
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)

        return _WORD.sub(lambda match: MARK if is_random(match[0]) else match[0], text)

    def document(self, value: Any) -> Any:
        """Mappings, lists and texts; the whole value of a key that names a secret is removed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            named = value.get("name")  # of a variable, whose value is beside its name
            hidden = {"value"} if isinstance(named, str) and is_secret_name(named) else set()
            return {
                self.text(key) if isinstance(key, str) else key: MARK
                if isinstance(key, str) and (key in hidden or self._is_secret(key, item))
                else self.document(item)
                for key, item in value.items()
            }
        return [self.document(item) for item in value] if isinstance(value, list | tuple) else value

    def _is_secret(self, key: str, item: Any) -> bool:
        """Whether a key's value is a secret: by the key's name, or because both as one text match a pattern."""
        if item in (None, "", False, True):
            return False
        split = isinstance(item, str) and self.text(f"{key}:{item}") != f"{self.text(key)}:{self.text(item)}"
        return is_secret_name(key) or split


def is_secret_name(key: str) -> bool:
    """Whether values of that name are secrets: `password`, `aws_secret_access_key`, `client-key-data`."""
    return _SECRET_NAME.fullmatch(key) is not None
