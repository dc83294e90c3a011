"""Choice of an instance for a request: load, turns, and the circuit of each."""

from collections.abc import Callable

import pytest

from support.clock import Clock
from tfs_proxy.serving.upstream.load_balancer import BREAKS, LONGEST_PAUSE_SECONDS, LoadBalancer
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import NotReached, UpstreamUnavailable

ONE, TWO, THREE = (Instance(index, 8501 + index, 0, "") for index in range(3))


class Servers:
    def __init__(self, *fails: Instance, error: Callable[[str], Exception] = NotReached) -> None:
        self.fails = set(fails)
        self.error = error
        self.asked: list[Instance] = []

    def __call__(self, instance: Instance) -> int:
        self.asked.append(instance)
        if instance in self.fails:
            raise self.error("down")
        return instance.index


def test_one_that_is_down_is_left_out_and_asked_again() -> None:
    clock = Clock(100.0)
    load_balancer, servers = LoadBalancer([ONE, TWO], clock), Servers(ONE)
    assert load_balancer.send(ONE, servers) == 1
    assert servers.asked == [ONE, TWO]
    servers.asked.clear()
    assert [load_balancer.send(ONE, servers) for _ in range(3)] == [1, 1, 1]
    assert servers.asked == [TWO] * 3
    assert load_balancer.choose() == TWO
    servers.fails.clear()
    clock.now += LONGEST_PAUSE_SECONDS
    assert [load_balancer.send(ONE, servers) for _ in range(2)] == [0, 0]


def test_all_down_answers_at_once() -> None:
    clock = Clock(100.0)
    load_balancer, servers = LoadBalancer([ONE], clock), Servers(ONE)
    pauses = []
    for _ in range(6):
        with pytest.raises(UpstreamUnavailable, match="Try again"):
            load_balancer.send(None, servers)
        asked, began = len(servers.asked), clock.now
        while len(servers.asked) == asked:
            clock.now += 0.01
            with pytest.raises(UpstreamUnavailable):
                load_balancer.send(None, servers)
        pauses.append(clock.now - began)
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.2
    assert pauses[-1] <= LONGEST_PAUSE_SECONDS + 0.02
    with pytest.raises(UpstreamUnavailable):
        LoadBalancer([], clock).send(None, servers)


def test_broken_connections_open_it_when_they_follow_each_other() -> None:
    """One break is the request's own; several without an answer between are the server's."""
    load_balancer, servers = LoadBalancer([ONE], Clock(100.0)), Servers(ONE, error=UpstreamUnavailable)
    for _ in range(BREAKS - 1):
        with pytest.raises(UpstreamUnavailable, match="down"):
            load_balancer.send(None, servers)
    assert load_balancer.send(None, lambda _: 1) == 1
    for _ in range(BREAKS):
        with pytest.raises(UpstreamUnavailable, match="down"):
            load_balancer.send(None, servers)
    with pytest.raises(UpstreamUnavailable, match="Try again"):
        load_balancer.send(None, servers)
