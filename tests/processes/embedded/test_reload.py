"""The embedded server's configuration, taken anew while it runs: over gRPC, and from its file."""

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from support.embedded_client import ask, predicted
from support.gates import gate
from support.grpc_calls import STATUS, refusal
from support.model_fixtures import EmbeddedServer, Serve, StartServer, serving_one
from support.warmup_files import recorded, warm_up_with
from tfs_proxy.wire import protos

pytestmark = pytest.mark.tensorflow

HALF = "/v1/models/half_plus_two:predict"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def states_by_label(channel: grpc.Channel, model: str, label: str) -> dict[int, int]:
    """What GetModelStatus answers for a label: the number of each version's state."""
    request = protos.GetModelStatusRequest()
    request.model_spec.name, request.model_spec.version_label = model, label
    run = channel.unary_unary(STATUS)
    answer = protos.GetModelStatusResponse.FromString(run(request.SerializeToString(), timeout=60))
    return {status.version: int(status.state) for status in answer.model_version_status}


@pytest.fixture(scope="module")
def shared(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server that the tests reload, one after the other."""
    with serving_one(tmp_path_factory.mktemp("server"), saved_models / "half_plus_two") as server:
        yield server


@pytest.fixture
def server(shared: EmbeddedServer, saved_models: Path) -> EmbeddedServer:
    """A server of the model `m` alone."""
    with grpc.insecure_channel(shared.grpc) as channel:
        assert reload_config(channel, of_one_model("m", saved_models / "half_plus_two")).error_code == 0
    return shared


@pytest.fixture
def reloaded(server: EmbeddedServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


def reload_request(text: str) -> bytes:
    from google.protobuf import text_format

    request = protos.ReloadConfigRequest()
    text_format.Parse(text, request.config, descriptor_pool=protos.POOL)
    return request.SerializeToString()


def of_one_model(name: str, base_path: object, platform: str = 'model_platform: "tensorflow"') -> str:
    return f'model_config_list {{ config {{ name: "{name}" base_path: "{base_path}" {platform} }} }}'


def reload_config(channel: grpc.Channel, text: str) -> protos.StatusProto:
    answer = channel.unary_unary(RELOAD)(reload_request(text), timeout=60)
    return protos.ReloadConfigResponse.FromString(answer).status


def wait_for_status(server: EmbeddedServer, path: str, status: int, document: object = None) -> None:
    server.wait_until(lambda: ask(server, path, document)[0] == status, f"{path} answers {status}")


VERSIONS = """
    name: "versions" base_path: "{}" model_platform: "tensorflow" model_version_policy {{ all {{}} }} {}
"""


def reload_versions(channel: grpc.Channel, models: Path, labels: str = "") -> int:
    """Have the model `versions` served in all its versions; the error code."""
    entry = VERSIONS.format(models / "versions", labels)
    return int(reload_config(channel, f"model_config_list {{ config {{ {entry} }} }}").error_code)


def test_a_reload_returns_once_the_new_model_answers(saved_models: Path, server: EmbeddedServer) -> None:
    """It is asked over the unix socket; the model that the new configuration leaves out goes."""
    assert predicted(server, "m", [1.0]) == [2.5]
    with grpc.insecure_channel(f"unix:{server.grpc_socket}") as channel:
        assert reload_versions(channel, saved_models) == 0
        assert predicted(server, "versions", [1.0]) == [3.5]
    wait_for_status(server, "/v1/models/m:predict", 404, {"instances": [1.0]})


def test_a_label_that_a_reload_sets_leads_to_its_version(saved_models: Path, server: EmbeddedServer) -> None:
    """Requests follow it; a status asked for by any label, known or not, is that of all versions."""
    with grpc.insecure_channel(server.grpc) as channel:
        assert reload_versions(channel, saved_models) == 0
        labels = 'version_labels { key: "stable" value: 1 }'
        assert reload_versions(channel, saved_models, labels) == 0
        status, body, _ = ask(server, "/v1/models/versions/labels/stable:predict", {"instances": [1.0]})
        assert (status, json.loads(body)) == (200, {"predictions": [2.5]})
        status_of_all = ask(server, "/v1/models/versions")[:2]
        for label in ("stable", "unknown"):
            assert ask(server, f"/v1/models/versions/labels/{label}")[:2] == status_of_all
            assert states_by_label(channel, "versions", label) == {1: 30, 2: 30}


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [("relative", "INVALID_ARGUMENT", "absolute path"), ("/nowhere", "UNKNOWN", "did not become available")],
)
def test_a_reload_that_fails_says_why(
    reloaded: grpc.Channel, saved_models: Path, path: str, code: str, text: str
) -> None:
    status, said = refusal(lambda: reload_config(reloaded, of_one_model("x", path)))
    assert (status, text in said) == (code, True)
    assert reload_config(reloaded, of_one_model("m", saved_models / "half_plus_two")).error_code == 0


FIELDS = "ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform."


@pytest.mark.parametrize(
    ("name", "platform", "words"),
    [
        ("m", "", f"Illegal setting neither {FIELDS}"),
        ("new", 'model_platform: "other"', "Model new requests unsupported platform other"),
    ],
)
def test_a_reload_needs_the_platform_that_is_served(
    reloaded: grpc.Channel, saved_models: Path, name: str, platform: str, words: str
) -> None:
    """One without, or with another, is refused in TF Serving's words."""
    base_path = saved_models / "half_plus_two"
    said = refusal(lambda: reload_config(reloaded, of_one_model(name, base_path, platform)))
    assert said == ("INVALID_ARGUMENT", words)


def test_a_reload_at_the_start_finds_the_first_models_loaded(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """It is taken once they are, and REST's port opens, here because a recorded request is held until the caller waits."""
    folder = tmp_path / "m" / "1"
    shutil.copytree(saved_models / "gate" / "1", folder)
    config = of_one_model("m", folder.parent)
    with gate(tmp_path / "gate") as held:
        warm_up_with(folder, recorded("mark", [held.mark().encode()]))
        server = model_server(f"--model_base_path={folder.parent}", "--model_name=m")
        held.wait_for()
        with grpc.insecure_channel(server.grpc) as channel:
            answer = channel.unary_unary(RELOAD).future(reload_request(config), timeout=60)
            # Behind the reload, on the same connection; several, as its thread may be the slower one.
            for _ in range(20):
                assert states_by_label(channel, "m", "any") == {1: 20}
            assert not answer.done()
            with pytest.raises(ConnectionRefusedError):
                ask(server, "/v1/models/m/metadata")
            held.open()
            assert protos.ReloadConfigResponse.FromString(answer.result()).status.error_code == 0
        server.wait_available("m")


def test_a_reload_that_waits_for_another_try_does_not_keep_a_stopping_server(
    tmp_path: Path, serve: Serve
) -> None:
    """At a signal its caller gets the error of the last try, and the server exits."""
    (tmp_path / "broken" / "1").mkdir(parents=True)
    server = serve("half_plus_two")
    config = of_one_model("broken", tmp_path / "broken")
    with grpc.insecure_channel(server.grpc) as channel, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(reload_config, channel, config)
        server.wait_for_log("broken version 1: load failed")
        assert server.stop() == 0
        code, text = refusal(answer.result)
    assert code == "UNKNOWN"
    assert "due to error: NOT_FOUND: Could not find SavedModel" in text


def test_reloads_at_once_leave_each_other_alone(saved_models: Path, server: EmbeddedServer) -> None:
    """Each takes the models of the one before away, and none gets an error for its own."""
    configs = [of_one_model(name, saved_models / "half_plus_two") for name in ("a", "b", "c", "d")]
    with grpc.insecure_channel(server.grpc) as channel, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(reload_config, channel, config) for config in configs * 2]
        assert [answer.result().error_code for answer in answers] == [0] * 8


def test_the_config_file_is_followed(saved_models: Path, tmp_path: Path, model_server: StartServer) -> None:
    """A change of the file is taken over; a broken one is not, nor an empty one, which is being written."""
    config = tmp_path / "models.config"
    entry = 'config {{ name: "{0}" base_path: "{1}/{0}" }}'
    config.write_text(f"model_config_list {{ {entry.format('half_plus_two', saved_models)} }}")
    server = model_server(f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1")
    server.wait_available("half_plus_two", 1)
    for unfinished, reason in (
        ("model_config_list {", "Invalid protobuf file"),
        ("", "Cannot transition to"),
    ):
        config.write_text(unfinished)
        server.wait_for_log(reason)
        assert predicted(server, "half_plus_two", [1.0]) == [2.5]
    config.write_text(f"model_config_list {{ {entry.format('scalar', saved_models)} }}")
    server.wait_available("scalar", 1)
    wait_for_status(server, HALF, 404, {"instances": [1.0]})


def test_the_config_file_waits_for_a_reload(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """One over gRPC gets its models, however often the file is read until they are loaded; then the file wins."""
    folder = tmp_path / "gate" / "1"
    shutil.copytree(saved_models / "gate" / "1", folder)
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{saved_models / "half_plus_two"}" }} }}'
    )
    config_of_gate = of_one_model("gate", folder.parent)
    with gate(tmp_path / "held") as held:
        warm_up_with(folder, recorded("mark", [held.mark().encode()]))
        server = model_server(f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1")
        server.wait_available("m", 1)
        with grpc.insecure_channel(server.grpc) as channel:
            answer = channel.unary_unary(RELOAD).future(reload_request(config_of_gate), timeout=60)
            held.wait_for()
            time.sleep(2.2)  # the file is read every second, and a read that has to wait logs nothing
            held.open()
            assert protos.ReloadConfigResponse.FromString(answer.result()).status.error_code == 0
        wait_for_status(server, "/v1/models/m/metadata", 200)
        wait_for_status(server, "/v1/models/gate/metadata", 404)
