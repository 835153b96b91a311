"""Names the address, image and version of this copy wherever they stand: `python -m deploy.site [NAME=VALUE...]`.

pyproject.toml has the project's homepage, its image and where its runbooks are; gpuwatch/__init__.py has the version
and the values that all other files have now. A site with a copy of its own gives its own: `make site
URL=https://git.example/gpuwatch IMAGE=registry.example/gpuwatch`. Manifests, units, alerts, dashboards, chart and docs
then name those, whatever was before.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
CONSTANTS = "gpuwatch/__init__.py"
NAMES = {
    "DISTRIBUTION": "DISTRIBUTION",
    "URL": "PROJECT_URL",
    "IMAGE": "IMAGE",
    "RUNBOOKS": "RUNBOOKS",
    "VERSION": "__version__",
}
"""Name on the command line to the constant that keeps it."""
SHAPES = {
    "URL": r"https?://[\w.:/~-]*[\w~-]",
    "IMAGE": r"(localhost|[a-z0-9-]+[.:][a-z0-9.:-]*)(/[a-z0-9._-]+)+",
    "RUNBOOKS": r"https?://[\w.:/~-]*[\w~-]",
    "VERSION": r"\d+\.\d+\.\d+(rc\d+)?",
}
EXAMPLES = {"URL": "https://git.example/gpuwatch", "IMAGE": "registry.example/gpu/gpuwatch, without a tag"}
EXAMPLES |= {"RUNBOOKS": "http://gpuwatch.example:9400/runbooks", "VERSION": "1.2.3"}
FILES = (
    *("pyproject.toml", CONSTANTS, "Dockerfile", "*.md", "docs/**/*.md", "alerts/*.yaml", "dashboards/*.json"),
    *("deploy/**/*.yaml", "deploy/**/*.json", "deploy/**/*.md", "deploy/**/*.service", "deploy/**/*.conf"),
)
UNTOUCHED = "CHANGELOG.md"
"""It says what was."""


def constants(tree: Path = TREE) -> dict[str, str]:
    """The values that the files have now, by their names on the command line."""
    text = (tree / CONSTANTS).read_text()
    return {name: re.findall(rf'^{kept} = "(.*)"$', text, re.MULTILINE)[0] for name, kept in NAMES.items()}


def declared(tree: Path = TREE) -> dict[str, str]:
    """What pyproject.toml says; it has no version."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    kept = project["tool"]["gpuwatch"]
    values = {"DISTRIBUTION": project["project"]["name"], "URL": project["project"]["urls"]["Homepage"]}
    return values | {"IMAGE": kept["image"], "RUNBOOKS": kept["runbooks"]}


def rewrite(wanted: Mapping[str, str], tree: Path = TREE) -> Iterator[Path]:
    """Write `wanted` over the values before, and yield each file that changes."""
    old, declared_now = constants(tree), declared(tree)
    new = {**old, **declared_now, **wanted}
    if "URL" in wanted and "RUNBOOKS" not in wanted:
        new["RUNBOOKS"] = f"{new['URL']}/blob/main/docs/runbooks"
    renamed: dict[str, str] = {}
    for before in (old, old | declared_now):  # pyproject.toml may be ahead of the rest
        renamed |= {
            f'__version__ = "{before["VERSION"]}"': f'__version__ = "{new["VERSION"]}"',
            f"?ref=v{before['VERSION']}": f"?ref=v{new['VERSION']}",
            f"{before['IMAGE']}:{before['VERSION']}": f"{new['IMAGE']}:{new['VERSION']}",
            **{before[name]: new[name] for name in ("IMAGE", "RUNBOOKS", "URL", "DISTRIBUTION")},
            before["URL"].partition("://")[2]: new["URL"].partition("://")[2],
        }
    longest = sorted((each for each in renamed if renamed[each] != each), key=len, reverse=True)
    if not longest:
        return
    found = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
    for file in sorted({file for pattern in FILES for file in tree.glob(pattern)} - {tree / UNTOUCHED}):
        text = file.read_text()
        if (changed := found.sub(lambda match: renamed[match[0]], text)) != text:
            file.write_text(changed)
            yield file


def main(arguments: list[str]) -> None:
    """Check the values, write them, and print the files that changed. Ends with 2 on a value that cannot be one."""
    wanted = dict(argument.split("=", 1) for argument in arguments if not argument.endswith("="))
    for name, value in wanted.items():
        if not re.fullmatch(SHAPES.get(name, "(?!)"), value):
            known = ", ".join(f"{each}={EXAMPLES[each]}" for each in SHAPES)
            sys.exit(f"site: {name}={value} is not a value that files can have; use {known}")
    for file in rewrite(wanted):
        sys.stdout.write(f"{file.relative_to(TREE)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
