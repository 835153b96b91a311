"""Plain English, as CONTRIBUTING.md asks: `python -m tests.prose` prints where documents, alerts, dashboards, and the
product's docstrings and comments are not.

The rules are words that a reader with learned English trips over, each with the term to use instead. Code is left out:
blocks, inline code, link targets. Of code only names are read: what gpuwatch defines, functions and classes of tests.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "alerts/*.yaml", "dashboards/*.json"),
    "gpuwatch/**/*.py",
)


class Rule(NamedTuple):
    """`pattern` is of whole words of one line, without case; `instead` is for the person who wrote the line."""

    pattern: str
    instead: str


RULES = (
    Rule(r"nobody|no one|somebody|someone|anybody|everybody|whoever", "name the actor: another process, the operator"),
    Rule(r"told|said|says so", "reported, named; or what it says"),
    Rule(r"(?:giv(?:es?|ing|en)|gave) (?:\w+ ){0,3}?back", "restore, revert, release, return"),
    Rule(r"(?:tak(?:e|es|en|ing)|took) (?:it |them |all |everything )?away", "remove"),
    Rule(r"(?:is|are|been|was|be) (?:well|unwell|ill)", "healthy, sick"),
    Rule(r"anew|goes on|go on", "again, continues, continue"),
    Rule(r"hears?|siblings?|wish(?:es)?|smells?|mercy|knobs|eyes?|believed?|forgets?|blamed?", "the technical term"),
    Rule(r"simply|just|please|note that|obviously|of course|actually|basically|easily", "leave it out"),
    Rule(r"in order to|utili[sz]e|leverage|facilitate", "to, use, help"),
    Rule(r"e\.g\.|i\.e\.|etc\.|via", "for example, that is, and others, through"),
    Rule(r"blacklist|whitelist|sanity check|master|slave", "denylist, allowlist, check, primary, replica"),
)


NAMES = re.compile(r"(?<![a-z])(?:told|said|(?:some|any|every)body|whoever|patience|blamed?)(?![a-z])", re.IGNORECASE)
LOOKS = re.compile(r"(?<![a-z])look(?:s|ed)?(?![a-z]|_at_)", re.IGNORECASE)


class Finding(NamedTuple):
    """One match of one rule."""

    place: str
    text: str
    instead: str


def prose(text: str) -> list[str]:
    """The lines of a document, without what is code, and without the tables of what not to write (`| not | but |`)."""
    lines, code, examples = [], False, False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            code = not code
        examples = line.startswith("| not |") or (examples and line.startswith("|"))
        indented = line.startswith("    ") and not line.lstrip().startswith(("-", "*", "|"))
        hidden = code or examples or indented
        lines.append("" if hidden else re.sub(r"`[^`]*`|\]\([^)]*\)|\"uid\": \"[^\"]*\"", "", line))
    return lines


def remarks(text: str) -> list[str]:
    """The lines of a module with nothing but docstrings, those of attributes included, and comments on them."""
    source = text.splitlines()
    lines = [""] * len(source)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = source[node.lineno - 1 : node.end_lineno]
    return [re.sub(r"`[^`]*`|--[\w-]+", "", line) for line in lines]


def findings(name: str, text: str) -> Iterator[Finding]:
    """What the rules find in a page, by line."""
    read = {".md": prose, ".py": remarks}.get(Path(name).suffix, str.splitlines)
    lines = read(text)
    for number, line in enumerate(lines, 1):
        for rule in RULES:
            for match in re.finditer(rf"\b(?:{rule.pattern})(?!\w)", line, re.IGNORECASE):
                yield Finding(f"{name}:{number}", match[0], rule.instead)


def names(name: str, text: str) -> Iterator[Finding]:
    """Definitions in a module whose names are not of the field."""
    is_test = name.startswith("tests/")
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=defined) | ast.ClassDef(name=defined):
                pass
            case ast.Name(id=defined, ctx=ast.Store()) | ast.Attribute(attr=defined, ctx=ast.Store()) if not is_test:
                pass
            case ast.arg(arg=defined) if not is_test:
                pass
            case _:
                continue
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", defined)
        if NAMES.search(words) or (not is_test and LOOKS.search(words)):
            yield Finding(f"{name}:{node.lineno}", defined, "the technical term: report, poll, read, cycle, timeout")


def pages() -> list[Path]:
    """Every page that people read."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def main() -> int:
    """Print each finding as an editor reads it; 1 where there is one."""
    found = [each for page in pages() for each in findings(str(page.relative_to(ROOT)), page.read_text())]
    modules = sorted(path for folder in ("gpuwatch", "tests") for path in ROOT.glob(f"{folder}/**/*.py"))
    found += [each for module in modules for each in names(str(module.relative_to(ROOT)), module.read_text())]
    for each in found:
        print(f"{each.place}: {each.text!r}: {each.instead}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
