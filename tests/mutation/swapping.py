"""Puts a mutant in the place of what is loaded, where everybody who has imported it uses it too.

A function gets the code of its mutant, so that what refers to it, in other modules and in tables, need not be found.
What stands at the top of a module is computed anew, and bound wherever the old value was bound under its name. What the
program had computed from either when it was imported stays as it was.
"""

import ast
import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
"""Flags that the code of a function has, and that of the body of a class has not."""


class NotSwapped(Exception):
    """The mutant's place is not there, or the mutant is no change of what is loaded."""


@contextmanager
def swapped(module: ModuleType, source: str, mutated: str) -> Iterator[None]:
    """Within, `module`, whose source is `source`, behaves as if it were `mutated`."""
    assert module.__file__
    before, after = (compile(text, module.__file__, "exec", dont_inherit=True) for text in (source, mutated))
    different = [pair for pair in zip(_functions(before), _functions(after), strict=True) if not _is_same(*pair)]
    undo = _swap_code(list(_nested(*different[0])), module) if different else _rebind(module, source, mutated)
    try:
        yield
    finally:
        undo()


def codes(module: ModuleType, source: str) -> dict[str, list[CodeType]]:
    """Of a module that is loaded: the code of each function by its name, and of what is defined within it."""
    there = {(code.co_qualname, code.co_firstlineno) for code in _functions(compile(source, "", "exec"))}
    found: dict[str, list[CodeType]] = {}
    for each in _loaded(module):
        name = each.__code__.co_qualname.split(".<locals>")[0]
        if each.__code__.co_qualname != name or (name, each.__code__.co_firstlineno) in there:
            found.setdefault(name, []).extend(pair[0] for pair in _nested(each.__code__, each.__code__))
    return found


def _loaded(module: ModuleType) -> list[FunctionType]:
    gc.unfreeze()  # a role that ran in this process has frozen what was loaded, and that is not listed
    every = (each for each in gc.get_objects() if type(each) is FunctionType)
    return [each for each in every if each.__code__.co_filename == module.__file__]


def _nested(one: CodeType, other: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """A function, and those within it that are made anew, or were made when the program was loaded."""
    yield one, other
    inner = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (one, other))
    for pair in zip(*inner, strict=False):
        yield from _nested(*pair)


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Outermost functions, in the order of the source; those in a class are its own."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & FUNCTION == FUNCTION:
                yield inner
            else:
                yield from _functions(inner)


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Code is equal to other code with 1 for True, or at other columns is not; constants tell."""
    return _content(one) == _content(other)


def _content(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(
        _content(each) if isinstance(each, CodeType) else (type(each).__name__, repr(each)) for each in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _swap_code(pairs: list[tuple[CodeType, CodeType]], module: ModuleType) -> Callable[[], None]:
    kept = [
        (each, each.__code__, new)
        for each in _loaded(module)
        for old, new in pairs
        if each.__code__.co_firstlineno == old.co_firstlineno and _is_same(each.__code__, old)
    ]
    if not kept:
        raise NotSwapped(f"{pairs[0][0].co_qualname} is not loaded")
    for each, _, new in kept:
        each.__code__ = new

    def undo() -> None:
        for each, old, _ in kept:
            each.__code__ = old

    return undo


def _rebind(module: ModuleType, source: str, mutated: str) -> Callable[[], None]:
    trees = [ast.parse(text).body for text in (source, mutated)]
    pairs = [pair for pair in zip(*trees, strict=True) if ast.dump(pair[0]) != ast.dump(pair[1])]
    if not pairs:
        raise NotSwapped("no change")
    statement = pairs[0][1]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    if not isinstance(target, ast.Name) or not isinstance(statement, ast.Assign | ast.AnnAssign) or not statement.value:
        raise NotSwapped("neither in a function nor a name of the module")
    old, name = module.__dict__[target.id], target.id
    new = eval(compile(ast.Expression(statement.value), str(module.__file__), "eval"), module.__dict__)
    if type(new) is type(old) and repr(new) == repr(old):
        raise NotSwapped("the same value")
    bound = [
        each
        for each in list(sys.modules.values())
        if isinstance(each, ModuleType) and getattr(each, "__dict__", {}).get(name) is old
    ]
    for each in bound:
        setattr(each, name, new)

    def undo() -> None:
        for each in bound:
            setattr(each, name, old)

    return undo
