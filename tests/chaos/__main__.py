"""gpuwatch among failures: `python -m tests.chaos [--seconds 600] [--seed N]`. Exits with 1 when an invariant broke."""

import argparse
import heapq
import signal
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.chaos.invariants import P99_SECONDS, Flat, Scrapes, Watch, knobs_left, ready, settle, usages
from tests.chaos.node import ChaosNode
from tests.chaos.plan import Action, plan
from tests.cluster.binaries import get
from tests.cluster.controlplane import ControlPlane
from tests.waiting import until

WARM_SECONDS = 5.0
ENDS = (0, -signal.SIGTERM)
"""Exit codes after SIGTERM; the second of one that had only just been started again."""


def run(seed: int, seconds: float, folder: Path, plane: ControlPlane) -> list[str]:
    """Run the plan of a seed; what did not hold, in words. Prints what it does as it goes."""
    actions = plan(seed, seconds)
    print(f"seed {seed}: {len(actions)} failures in {seconds:g} s", flush=True)
    with ChaosNode(folder, plane) as node:
        until(lambda: ready(node), "all daemons are ready")
        time.sleep(WARM_SECONDS)  # what they load late counts as theirs from the start
        before = usages(node)
        chaotic, quiet = (
            Scrapes(node.daemons["agent"], node.port),
            Scrapes(node.daemons["quiet agent"], node.quiet_port),
        )
        with Watch(node) as watch, chaotic, quiet:
            _play(actions, node)
            settle(node, watch)
            after = usages(node)
        codes = {name: node.daemons[name].end() for name in ("tuner", "guard")}
        broken = [f"after {at} s: {what}" for what, at in watch.broken.items()]
        broken += [f"{name} ended with {code}" for name, code in codes.items() if code not in ENDS]
        broken += [f"a knob is left: {left}"] if (left := knobs_left(node)) else []
        flat = [Flat(name, before[name], after[name]) for name in before if name in after]
        broken += [f"grown: {each}" for each in flat if each.grown]
        for name, daemon in node.daemons.items():
            asked = sum(killed for _, killed in daemon.deaths)
            alone = [code for code, killed in daemon.deaths if not killed]
            print(f"{name}: killed {asked} times, ended by itself with {alone}")
            broken += [f"{name} ended by itself with {alone}"] if alone else []
            text = daemon.log.read_text(errors="replace")
            broken += (
                [f"{name} logged a traceback: {text[text.index('Traceback') :][:3000]}"] if "Traceback" in text else []
            )
    p99, undisturbed = chaotic.p99(), quiet.p99()
    broken += [f"{len(chaotic.failures)} scrapes failed: {chaotic.failures[:3]}"] if chaotic.failures else []
    if p99 > max(P99_SECONDS, 2 * undisturbed):
        broken.append(f"scrape p99 {p99 * 1e3:.0f} ms, an undisturbed agent's {undisturbed * 1e3:.0f} ms")
    print(*flat, sep="\n")
    print(f"{len(node.written)} XIDs, {watch.tainted} quarantines, {watch.sets} setter calls, ", end="")
    print(f"{node.proxy.requests} API requests; scrape p99 {p99 * 1e3:.1f} ms over {len(chaotic.seconds)}, ", end="")
    print(f"undisturbed {undisturbed * 1e3:.1f} ms over {len(quiet.seconds)}")
    return broken


def _play(actions: tuple[Action, ...], node: ChaosNode) -> None:
    """Begin and end each at its time; one that would end what a later one of its kind still does waits for that."""
    number, began = count(), time.monotonic()
    due = [(action.at, next(number), action, True) for action in actions]
    open_until: dict[str, float] = {}
    heapq.heapify(due)
    while due:
        at, _, action, begins = heapq.heappop(due)
        time.sleep(max(0.0, began + at - time.monotonic()))
        place = action.kind if action.target not in node.daemons else f"{action.kind} {action.target}"
        if begins:
            print(action, flush=True)
            node.begin(action)
            if action.seconds:
                open_until[place] = max(open_until.get(place, 0.0), at + action.seconds)
                heapq.heappush(due, (at + action.seconds, next(number), action, False))
        elif action.kind in ("driver hang", "slow driver") or at >= open_until[place]:
            node.end(action)


def main() -> None:
    """Run it; print what broke, with the seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="gpuwatch-chaos-") as folder,
        ControlPlane(Path(folder, "plane"), get()) as plane,
    ):
        place = Path(folder, "node")
        place.mkdir()
        broken = run(chosen.seed, chosen.seconds, place, plane)
    if broken:
        print(f"\nbroken with --seed {chosen.seed} --seconds {chosen.seconds:g}:", *broken, sep="\n- ")
        sys.exit(1)
    print("every invariant held")


if __name__ == "__main__":
    main()
