"""A second, plain reading of `nvidia-smi -q` text for the golden table: it shares nothing with the product's parser."""

from pathlib import Path

CAPTURES = Path(__file__).parent.parent / "captures"


def section(file: Path, title: str) -> list[str]:
    """The lines below a `## title` heading, up to the next one."""
    lines = file.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"## {title}")) + 2
    end = next((n for n in range(start, len(lines)) if lines[n].startswith(("## ", "####"))), len(lines))
    return lines[start:end]


def leaves(lines: list[str]) -> list[tuple[str, str]]:
    """(`Section / Label`, printed value) of every line with a value; indentation goes in steps of four."""
    titles: dict[int, str] = {}
    found = []
    for line in lines:
        if not line.strip() or line.startswith("="):
            continue
        depth = (len(line) - len(line.lstrip())) // 4
        label, colon, value = line.partition(" : ")
        titles = {level: title for level, title in titles.items() if level < depth} | {depth: label.strip()}
        if colon:
            found.append((" / ".join(titles[level] for level in sorted(titles) if level), value.strip()))
    return found


def gpu_leaves(file: Path, phase: str) -> dict[str, str]:
    """Label -> value of the file's GPU, without MIG devices and processes, which repeat labels."""
    found: dict[str, str] = {}
    for label, value in leaves(section(file, f"{phase} :: query (-q)")):
        if not label.startswith(("MIG Device", "Processes /")):
            found.setdefault(label, value)
    return found


def repeated(file: Path, phase: str, title: str, first: str) -> list[dict[str, str]]:
    """Label -> value of each block under `title`, which begins anew at the label `first`."""
    blocks: list[dict[str, str]] = []
    for label, value in leaves(section(file, f"{phase} :: query (-q)")):
        if label.startswith(title + " / "):
            if label == f"{title} / {first}":
                blocks.append({})
            blocks[-1][label.removeprefix(title + " / ")] = value
    return blocks
