"""The gates of models: made by one process, followed by the other, with the calls in between."""

import asyncio
from pathlib import Path

from tfs_proxy.grpc_router.gates import Gates, SharedGates
from tfs_proxy.layout import Workspace
from tfs_proxy.multimodel.gates import GrpcGates
from tfs_proxy.supervisor.host.file_locks import is_path_locked
from tfs_proxy.supervisor.programs.grpc_gates import InstanceGates, until_calls_end


def test_calls_follow_the_gates_that_are_open(tmp_path: Path) -> None:
    """By instance; a model that is not there has none, whatever it is called."""
    router, made = Gates(tmp_path, instances=2), GrpcGates(tmp_path, ["a", "a.1"])

    made.lead_to({0: Path("/run/0"), 1: Path("/run/1")})
    with router.call("a") as sockets:
        assert sockets == ("/run/0", "/run/1")
    made.lead_to({1: Path("/run/1")})
    assert router.sockets("a") == router.sockets("a.1") == ("/run/1",)
    made.close()
    made.lead_to({0: Path("/run/0")})
    for name in ("a", "b", "../a", "", "x" * 300):
        with router.call(name) as sockets:
            assert sockets == ()

    made.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_gate_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    """By that of the model which has its name now."""
    left, made = GrpcGates(tmp_path, ["a"]), GrpcGates(tmp_path, ["a"])
    left.lead_to({0: Path("/run/left")})

    made.lead_to({0: Path("/run/made")})

    assert Gates(tmp_path, 1).sockets("a") == ("/run/made",)


def test_the_end_of_a_model_waits_for_its_calls(tmp_path: Path) -> None:
    """Those that are under way when the gates are shut, as long as there is time."""
    router, made = Gates(tmp_path, instances=1), GrpcGates(tmp_path, ["a"])
    made.lead_to({0: Path("/run/0")})

    with router.call("a"), router.call("a"):
        made.close()
        assert made.in_use
        asyncio.run(made.wait_for_calls(0.05))
        assert made.in_use
    assert not made.in_use
    asyncio.run(made.wait_for_calls(600))


def test_model_servers_take_the_place_of_others_while_calls_are_under_way(tmp_path: Path) -> None:
    """A call that has begun keeps the former ones from being ended; the next one goes to the new ones."""
    run, old, new = (Workspace(tmp_path / name) for name in ("run", "old", "new"))
    for workspace in (run, old, new):
        workspace.root.mkdir()
    router, made = SharedGates([run.grpc_gate(index) for index in range(2)]), InstanceGates(run, 2)
    made.lead_to({index: old.grpc_socket(index) for index in range(2)})

    with router.call("m") as sockets:
        assert sockets == (str(old.grpc_socket(0)), str(old.grpc_socket(1)))
        made.lead_to({1: new.grpc_socket(1)})
        with router.call("m") as sockets_of_next:
            assert sockets_of_next == (str(new.grpc_socket(1)),)
        asyncio.run(until_calls_end(old.grpc_calls, 0.05))
        assert is_path_locked(old.grpc_calls)
        assert not is_path_locked(new.grpc_calls)
    asyncio.run(until_calls_end(old.grpc_calls, 600))

    made.lead_to({})
    with router.call("m") as sockets:
        assert sockets == ()
