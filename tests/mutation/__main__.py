"""Which small changes of the modules that decide does no test notice? `make mutate`, or `python -m tests.mutation`.

Exits with 1 where a group's tests notice fewer than nine of ten of those that are not equivalent, or where a mutant
survives for which the baseline has no reason. `--update` writes the baseline anew, with the reasons that it has; that
of a new survivor is then written by hand. After new cases, `--survivors --update` tries only what is left.
"""

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.mutation import baseline
from tests.mutation.running import Tried, try_group
from tests.mutation.targets import GROUPS

LEAST = 0.9
PER_MODULE, PER_GROUP = 6, 48
"""Mutants that are tried, at least: a group of few modules has more of each."""


def main() -> None:
    """Try, print, compare."""
    options = _options()
    kept, outcomes, failed = baseline.read(), {}, False
    wanted = {key for key, row in kept.items() if row.outcome == baseline.SURVIVED and not row.reason}
    print("| group | mutants | killed | equivalent | rate |\n|---|---|---|---|---|", flush=True)
    for group in GROUPS:
        if options.group in ("", group.name):
            count = max(options.count, -(-PER_GROUP // len(group.modules)))
            tried = _in_a_new_process(group, count, options.jobs, frozenset(wanted) if options.survivors else None)
            rows = [_row(baseline.key(group.name, each.mutant), each, kept) for each in tried]
            failed |= baseline.rate(rows) < LEAST
            _print_rate(group.name, rows)
            outcomes |= {row.key: (row, each) for row, each in zip(rows, tried, strict=True)}
    for row, each in outcomes.values():
        if row.outcome == baseline.SURVIVED:
            failed |= not row.reason
            _print(each, row.reason)
    if options.update:
        done = set() if options.survivors else {key[0] for key in outcomes}
        now = baseline.read().values()  # another run may have written meanwhile
        others = [row for row in now if row.key[0] not in done and row.key not in outcomes]
        baseline.write([*others, *(row for row, _ in outcomes.values())])
    sys.exit(failed)


def _print_rate(name: str, rows: list[baseline.Row]) -> None:
    killed = sum(row.outcome == baseline.KILLED for row in rows)
    equivalent = sum(baseline.is_equivalent(row) for row in rows)
    print(f"| {name} | {len(rows)} | {killed} | {equivalent} | {baseline.rate(rows):.0%} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", default="", choices=[group.name for group in GROUPS], help="only this one")
    parser.add_argument("--survivors", action="store_true", help="only those for which the baseline has no reason yet")
    parser.add_argument("--count", type=int, default=PER_MODULE, help="mutants a module, at least (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once (%(default)s)")
    parser.add_argument("--update", action="store_true", help="write the baseline")
    return parser.parse_args()


def _in_a_new_process(*arguments) -> list[Tried]:
    """For nothing of the program may be loaded when a group's tests are collected."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(try_group, *arguments).result()


def _row(key: baseline.Key, each: Tried, kept: dict[baseline.Key, baseline.Row]) -> baseline.Row:
    if each.killed:
        return baseline.Row(key, baseline.KILLED)
    return baseline.Row(key, baseline.SURVIVED, kept[key].reason if key in kept else "")


def _print(each: Tried, reason: str) -> None:
    mutant = each.mutant
    where = f"gpuwatch/{each.module}:{mutant.line} {mutant.function or 'module'}: {mutant.operator}"
    print(f"\nsurvived {each.by} tests: {where}\n  - {mutant.before}\n  + {mutant.after}\n  {reason or 'NO REASON'}")


if __name__ == "__main__":
    main()
