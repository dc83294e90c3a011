"""A Ray cluster of several nodes on this machine, for tests: its head has no CPU, so nothing runs there.

Run it with the number of nodes: it prints its address, then obeys lines on its input. `kill N` ends node N
as a power cut would (its workers too, which Ray leaves alive for a while), `add` starts one more; each is
answered with a line once it is done.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster


def cut_off(cluster: Cluster, node: Any) -> None:
    """End all that Ray runs on ``node``, without a word."""
    workers = [child for _, process in node.live_processes() for child in children_of(process.pid)]
    cluster.remove_node(node, allow_graceful=False)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def children_of(process: int) -> list[int]:
    """The processes that the threads of ``process`` have started."""
    return [
        int(child)
        for each in Path(f"/proc/{process}/task").glob("*/children")
        for child in each.read_text().split()
    ]


def main() -> None:
    """Run until the input ends."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes: list[Any] = [cluster.add_node(wait=False, num_cpus=1) for _ in range(int(sys.argv[1]))]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["kill", number]:
                cut_off(cluster, nodes[int(number)])
            case ["add"]:
                nodes.append(cluster.add_node(num_cpus=1))
        print("done", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
