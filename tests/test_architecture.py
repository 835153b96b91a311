"""The picture in docs/architecture.md is the import graph, and every folder says what it is for."""

import ast
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PICTURE = re.compile(r"```mermaid\ngraph TD\n(.*?)```", re.DOTALL)
ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)
MOST_FILES = 27

Edges = set[tuple[str, str]]
Trees = dict[str, ast.Module]


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    loader = SourceFileLoader("import_matrix", str(ROOT / "scripts/import-matrix"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trees(matrix: ModuleType) -> Trees:
    """Every module, parsed once."""
    return matrix.modules(ROOT)


@pytest.fixture(scope="module")
def modules(matrix: ModuleType, trees: Trees) -> Edges:
    """Pairs of modules, who imports whom."""
    return matrix.imports(trees)


def drawn() -> Edges:
    found = PICTURE.search((ROOT / "docs/architecture.md").read_text())
    assert found
    return set(ARROW.findall(found[1]))


def reachable(edges: Edges, start: str) -> set[str]:
    found, rest = set[str](), [start]
    while rest:
        node = rest.pop()
        new = {other for one, other in edges if one == node} - found
        found |= new
        rest += new
    return found


def test_the_picture_shows_every_import_between_folders_and_no_other(matrix: ModuleType, modules: Edges) -> None:
    rooms = {(matrix.room(one), matrix.room(other)) for one, other in modules}
    real = {(one, other) for one, other in rooms if one != other and not {one, other} & {"gpuwatch", "__main__"}}
    direct = {(one, other) for one, other in real if other not in reachable(real - {(one, other)}, one)}
    assert drawn() == direct


def test_no_folder_and_no_module_imports_itself_around_others(matrix: ModuleType, modules: Edges) -> None:
    assert matrix.circles(drawn()) == []
    assert matrix.circles(modules) == []


def test_every_folder_is_small_and_says_what_it_is_for() -> None:
    for folder in {path.parent for path in (ROOT / "gpuwatch").rglob("*.py")}:
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, folder
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_few_class_names_mean_two_things_and_none_three(matrix: ModuleType, trees: Trees) -> None:
    shared = matrix.shared_classes(trees)
    assert len(shared) <= 20, shared
    assert {name: where for name, where in shared.items() if len(where) > 2} == {}
