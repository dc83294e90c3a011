"""A Ray cluster of several nodes on this machine, for tests: its head has no CPU, so nothing runs there.

Run it with the number of nodes: it prints its address, then obeys lines on its input. `kill N` ends node N
as a power cut would, `add` starts one more; each is answered with a line once it is done.
"""

import sys
from typing import Any

from ray.cluster_utils import Cluster


def main() -> None:
    """Run until the input ends."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes: list[Any] = [cluster.add_node(wait=False, num_cpus=1) for _ in range(int(sys.argv[1]))]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["kill", number]:
                cluster.remove_node(nodes[int(number)], allow_graceful=False)
            case ["add"]:
                nodes.append(cluster.add_node(num_cpus=1))
        print("done", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
