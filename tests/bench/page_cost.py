"""What open pages (`/`) cost the agent of eight GPUs: `python -m tests.bench.page_cost [SECONDS]`.

Each client does what the page's script does: it asks `/live` for the View after its own, waits three seconds, and asks
again, over one connection. Where the agent has as many waiting requests as it allows, a page asks again after five
seconds. In one run: no page, one page, fifty pages, then none and one once more.
"""

import contextlib
import http.client
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.bench.agent_cost import cpu_per_minute
from tests.e2e.processes import agent as running
from tests.e2e.processes import fetch
from tests.fakes.libnvml import FakeDriver
from tests.waiting import until

GPUS = 8
PAUSE, REFUSED_PAUSE = 3.0, 5.0
COUNTS = (0, 1, 50, 0, 1)


@contextlib.contextmanager
def pages(port: int, count: int) -> Iterator[list[int]]:
    """So many open pages; the list has the bytes of each answer, 0 of one that was refused."""
    ended, sizes = threading.Event(), list[int]()

    def follow() -> None:
        connection, at = http.client.HTTPConnection("127.0.0.1", port, timeout=60), "0"
        pause = PAUSE
        while not ended.wait(pause):
            connection.request("GET", f"/live?after={at}&wait=30")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 503:
                pause = REFUSED_PAUSE
                sizes.append(0)
                continue
            pause = PAUSE
            found = re.search(rb'data-at="([^"]+)"', body)
            assert found is not None, body[:200]
            at = found[1].decode()
            sizes.append(len(body))
        connection.close()

    threads = [threading.Thread(target=follow) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def main(seconds: float) -> None:
    """Print CPU and memory of the agent with each number of pages."""
    with tempfile.TemporaryDirectory() as directory, FakeDriver(Path(directory) / "driver", gpus=GPUS) as driver:
        options = ("--source", "nvml", "--nvml-library", str(driver.library))
        config = {"agent": {"interval": 1.0}, "sources": {"disabled": ["kmsg"]}}
        with running(Path(directory) / "agent", source=options, config=config, env=driver.env) as agent:
            until(lambda: (fetch(f"{agent.url}/metrics") or b"").count(b'sensor="gpu"} ') == GPUS)
            port = int(agent.url.rpartition(":")[2])
            process = psutil.Process(agent.process.pid)
            print("PAGES  CPU s/min  RSS MiB  ANSWERS  REFUSED  BYTES EACH")
            for count in COUNTS:
                with pages(port, count) as sizes:
                    cpu = cpu_per_minute([process.pid], seconds)[0]
                    answers = [size for size in sizes if size]
                    size, refused = sum(answers) // max(1, len(answers)), len(sizes) - len(answers)
                    rss = process.memory_info().rss / 2**20
                    print(f"{count:5}  {cpu:9.2f}  {rss:7.1f}  {len(answers):7}  {refused:7}  {size:10}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
