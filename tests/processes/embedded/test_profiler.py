"""gRPC's ProfilerService of the embedded server: what TensorBoard's `Capture profile` asks for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.embedded_client import predicted
from support.model_fixtures import EmbeddedServer, Serve, serving_one
from tfs_proxy.wire.protos import ProfileRequest, ProfileResponse, TerminateRequest

pytestmark = pytest.mark.tensorflow

MINUTE = 60_000
TAKEN = "Profiling for"


@pytest.fixture(scope="module")
def server(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with serving_one(tmp_path_factory.mktemp("profiler"), saved_models / "half_plus_two") as started:
        yield started


def request(
    folder: Path | str, session: str, milliseconds: int, host: str = "localhost:8500"
) -> ProfileRequest:
    message = ProfileRequest(repository_root=str(folder), session_id=session, host_name=host)
    message.opts.duration_ms = milliseconds
    return message


def call(channel: grpc.Channel, method: str, message: Any) -> Any:
    run = channel.unary_unary(f"/tensorflow.ProfilerService/{method}")
    return run.future(message.SerializeToString(), timeout=60)


def taken(server: EmbeddedServer, channel: grpc.Channel, message: ProfileRequest) -> Any:
    before = server.log.count(TAKEN)
    running = call(channel, "Profile", message)
    server.wait_until(lambda: server.log.count(TAKEN) > before, "a profile is being taken")
    return running


def test_a_profile(server: EmbeddedServer, tmp_path: Path) -> None:
    """It is written where the caller says, once it is to end, and no other is taken meanwhile."""
    with grpc.insecure_channel(server.grpc) as channel:
        running = taken(server, channel, request(tmp_path, "mine", MINUTE))
        refused = call(channel, "Profile", request(tmp_path, "other", 0)).exception()
        assert (refused.code().name, refused.details()) == ("INTERNAL", "Another profiling session active.")
        for _ in range(20):
            predicted(server, "m", [1.0])
        call(channel, "Terminate", TerminateRequest(session_id="unknown")).result()
        assert not running.done()
        call(channel, "Terminate", TerminateRequest(session_id="mine")).result()
        assert ProfileResponse.FromString(running.result()) == ProfileResponse(empty_trace=False)
    recorded = (tmp_path / "mine" / "localhost_8500.xplane.pb").read_bytes()
    assert b"/host:CPU" in recorded
    assert b"SessionRun" in recorded or b"Mul" in recorded


def test_a_profile_in_the_answer(server: EmbeddedServer, tmp_path: Path) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        for session, host in (("idle", "localhost:8500"), ("", "")):
            message = request(tmp_path / "profiles", session, 10, host)
            message.emit_xspace = True
            answer = ProfileResponse.FromString(call(channel, "Profile", message).result())
            assert b"/host:CPU" in answer.xspace
    assert not (tmp_path / "profiles").exists()


def test_a_cancelled_profile_is_not_written(server: EmbeddedServer, tmp_path: Path) -> None:
    """It ends when its caller is gone, and leaves no file; the next one can be taken."""
    with grpc.insecure_channel(server.grpc) as channel:
        running = taken(server, channel, request(tmp_path / "profiles", "cancelled", MINUTE))
        running.cancel()
        server.wait_until(
            lambda: call(channel, "Profile", request(tmp_path / "profiles", "next", 300)).exception() is None,
            "another profile is taken",
        )
    assert [path.name for path in (tmp_path / "profiles").iterdir()] == ["next"]


def test_profiles_that_can_not_be(server: EmbeddedServer, tmp_path: Path) -> None:
    """Names lead to no other folder, one that is not local or can't be made is named, and there is no Monitor."""
    (tmp_path / "taken").touch()
    with grpc.insecure_channel(server.grpc) as channel:
        for names in (("../up", "h"), ("", "h"), ("..", "h"), ("s", "a/b"), ("s", "")):
            error = call(channel, "Profile", request(tmp_path, names[0], 1, names[1])).exception()
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "must be file names" in error.details()
        error = call(channel, "Profile", request("gs://bucket/logs", "s", 1)).exception()
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "must be a local folder, not 'gs://bucket/logs'" in error.details()
        error = call(channel, "Profile", request(tmp_path, "taken", 1)).exception()
        assert error.code() is grpc.StatusCode.INTERNAL
        assert str(tmp_path / "taken") in error.details()
        error = call(channel, "Monitor", TerminateRequest()).exception()
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert [path.name for path in tmp_path.rglob("*.pb")] == []


def test_the_end_of_the_server_ends_a_profile(serve: Serve, tmp_path: Path) -> None:
    server = serve("half_plus_two")
    with grpc.insecure_channel(server.grpc) as channel:
        running = taken(server, channel, request(tmp_path, "long", 60 * MINUTE))
        assert server.stop() == 0
        running.result()
    assert (tmp_path / "long" / "localhost_8500.xplane.pb").stat().st_size


def test_without_the_profiler(serve: Serve, tmp_path: Path) -> None:
    """`--enable_profiler=false` leaves the service out."""
    server = serve("half_plus_two", "--enable_profiler=false")
    with grpc.insecure_channel(server.grpc) as channel:
        error = call(channel, "Profile", request(tmp_path, "s", 1)).exception()
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
