"""The embedded server's configuration, taken anew while it runs: over gRPC, and from its file."""

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from support.embedded_client import ask, available, predicted
from support.gates import gate
from support.model_fixtures import StartServer, start_server
from support.warmup_files import recorded, warm_up_with
from tfs_proxy import protos

pytestmark = pytest.mark.tensorflow

HALF = "/v1/models/half_plus_two:predict"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def states_by_label(channel: grpc.Channel, model: str, label: str) -> dict[int, int]:
    """What GetModelStatus tells who asks by a label: the number of each version's state."""
    request = protos.GetModelStatusRequest()
    request.model_spec.name, request.model_spec.version_label = model, label
    run = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
    answer = protos.GetModelStatusResponse.FromString(run(request.SerializeToString(), timeout=60))
    return {each.version: int(each.state) for each in answer.model_version_status}


@pytest.fixture(scope="module")
def reloaded(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    """A channel to a server of the model `m`."""
    flags = [f"--model_base_path={saved_models / 'half_plus_two'}", "--model_name=m"]
    server = start_server(tmp_path_factory.mktemp("server"), flags)
    try:
        server.wait_for(available(server, "m", 1))
        with grpc.insecure_channel(server.grpc) as channel:
            yield channel
    finally:
        server.process.kill()
        server.process.wait(60)


def reload_request(text: str) -> bytes:
    """A request for a new configuration."""
    from google.protobuf import text_format

    request = protos.ReloadConfigRequest()
    text_format.Parse(text, request.config, descriptor_pool=protos.POOL)
    return request.SerializeToString()


def of_one_model(name: str, base_path: object, platform: str = 'model_platform: "tensorflow"') -> str:
    """A configuration of one model."""
    return f'model_config_list {{ config {{ name: "{name}" base_path: "{base_path}" {platform} }} }}'


def reload_config(channel: grpc.Channel, text: str) -> protos.StatusProto:
    """Ask for a new configuration over gRPC."""
    answer = channel.unary_unary(RELOAD)(reload_request(text), timeout=60)
    return protos.ReloadConfigResponse.FromString(answer).status


def test_models_come_and_go_by_grpc(saved_models: Path, model_server: StartServer) -> None:
    """A reload returns once the new model answers; labels work afterwards, but for states; a bad one says why."""
    server = model_server(f"--model_base_path={saved_models / 'half_plus_two'}", "--model_name=half_plus_two")
    server.wait_for(available(server, "half_plus_two", 1))
    versions = (
        f'name: "versions" base_path: "{saved_models / "versions"}" model_platform: "tensorflow" '
        "model_version_policy { all {} }"
    )
    with grpc.insecure_channel(f"unix:{server.grpc_socket}") as channel:
        assert reload_config(channel, f"model_config_list {{ config {{ {versions} }} }}").error_code == 0
        assert predicted(server, "versions", [1.0]) == [3.5]
        labels = 'version_labels { key: "stable" value: 1 }'
        assert (
            reload_config(channel, f"model_config_list {{ config {{ {versions} {labels} }} }}").error_code
            == 0
        )
        status, body, _ = ask(server, "/v1/models/versions/labels/stable:predict", {"instances": [1.0]})
        assert (status, json.loads(body)) == (200, {"predictions": [2.5]})
        told = ask(server, "/v1/models/versions")
        for label in ("stable", "unknown"):
            assert ask(server, f"/v1/models/versions/labels/{label}")[:2] == told[:2]
            assert states_by_label(channel, "versions", label) == {1: 30, 2: 30}
        server.wait_for(lambda: ask(server, HALF, {"instances": [1.0]})[0] == 404)
        for path, code, text in (
            ("relative", "INVALID_ARGUMENT", "absolute path"),
            (f"{saved_models}/nowhere", "UNKNOWN", "did not become available"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                reload_config(channel, of_one_model("x", path))
            assert caught.value.code().name == code
            assert text in caught.value.details()


@pytest.mark.parametrize(
    ("name", "platform", "said"),
    [
        (
            "m",
            "",
            (
                "Illegal setting neither ModelServerConfig::model_type (deprecated) "
                "nor ModelServerConfig::model_platform."
            ),
        ),
        (
            "m",
            'model_platform: "other"',
            (
                "Illegal to change a model's platform. For model m platform was tensorflow "
                "and new platform requested is other"
            ),
        ),
        ("new", 'model_platform: "other"', "Model new requests unsupported platform other"),
        (
            "m",
            'model_platform: "tensorflow" model_type: TENSORFLOW',
            (
                "Illegal setting both ModelServerConfig::model_type (deprecated) "
                "and ModelServerConfig::model_platform."
            ),
        ),
        ("m", "model_type: OTHER", "ModelServerConfig::model_type choice 2 not supported."),
    ],
)
def test_a_reload_needs_the_platform_that_is_served(
    reloaded: grpc.Channel, saved_models: Path, name: str, platform: str, said: str
) -> None:
    """One without, or with another, is refused in TF Serving's words; the deprecated field will do."""
    base_path = saved_models / "half_plus_two"
    with pytest.raises(grpc.RpcError) as caught:
        reload_config(reloaded, of_one_model(name, base_path, platform))
    assert (caught.value.code().name, caught.value.details()) == ("INVALID_ARGUMENT", said)
    assert reload_config(reloaded, of_one_model("m", base_path, "model_type: TENSORFLOW")).error_code == 0


def test_a_reload_at_the_start_finds_the_first_models_loaded(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """It is taken once they are, here because a recorded request is held until the caller waits."""
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
            assert ask(server, "/v1/models/m/metadata")[0] == 503
            held.open()
            assert protos.ReloadConfigResponse.FromString(answer.result()).status.error_code == 0
        assert ask(server, "/v1/models/m/metadata")[0] == 200


def test_a_reload_that_waits_for_another_try_does_not_keep_a_stopping_server(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """At a signal its caller is told the error of the last try, and the server exits."""
    (tmp_path / "broken" / "1").mkdir(parents=True)
    server = model_server(f"--model_base_path={saved_models / 'half_plus_two'}", "--model_name=m")
    server.wait_for(available(server, "m", 1))
    config = of_one_model("broken", tmp_path / "broken")
    with grpc.insecure_channel(server.grpc) as channel, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(reload_config, channel, config)
        server.wait_for(lambda: "broken version 1: load failed" in server.log.read_text())
        assert server.stop() == 0
        with pytest.raises(grpc.RpcError) as caught:
            answer.result()
    assert caught.value.code().name == "UNKNOWN"
    assert "due to error: NOT_FOUND: Could not find SavedModel" in caught.value.details()


def test_reloads_at_once_leave_each_other_alone(saved_models: Path, model_server: StartServer) -> None:
    """Each takes the models of the one before away, and none is told that its own were not found."""
    server = model_server(f"--model_base_path={saved_models / 'half_plus_two'}", "--model_name=m")
    server.wait_for(available(server, "m", 1))
    configs = [of_one_model(name, saved_models / "half_plus_two") for name in ("a", "b", "c", "d")]
    with grpc.insecure_channel(server.grpc) as channel, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(reload_config, channel, config) for config in configs * 2]
        assert [each.result().error_code for each in answers] == [0] * 8


def test_a_reload_tells_what_it_has_counted(saved_models: Path, model_server: StartServer) -> None:
    """By the names that TensorFlow has for its counters; what nobody counts has not grown."""
    from google.protobuf import text_format

    server = model_server(f"--model_base_path={saved_models / 'half_plus_two'}", "--model_name=m")
    server.wait_for(available(server, "m", 1))
    loads = "/tensorflow/cc/saved_model/load_attempt_count"
    request = protos.ReloadConfigRequest(metric_names=[loads, "/nowhere"])
    text = "".join(
        f'config {{ name: "{name}" base_path: "{saved_models / "half_plus_two"}" model_platform: "tensorflow" }}'
        for name in ("m", "n")
    )
    text_format.Parse(f"model_config_list {{ {text} }}", request.config, descriptor_pool=protos.POOL)
    with grpc.insecure_channel(server.grpc) as channel:
        run = channel.unary_unary(RELOAD)
        answer = protos.ReloadConfigResponse.FromString(run(request.SerializeToString(), timeout=60))
    assert [(each.name, each.int64_value_increase) for each in answer.metric] == [(loads, 1), ("/nowhere", 0)]


def test_the_config_file_is_followed(saved_models: Path, tmp_path: Path, model_server: StartServer) -> None:
    """A change of the file is taken over; a broken one is not, nor an empty one, which is being written."""
    config = tmp_path / "models.config"
    entry = 'config {{ name: "{0}" base_path: "{1}/{0}" }}'
    config.write_text(f"model_config_list {{ {entry.format('half_plus_two', saved_models)} }}")
    server = model_server(f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1")
    server.wait_for(available(server, "half_plus_two", 1))
    for unfinished in ("model_config_list {", ""):
        config.write_text(unfinished)
        time.sleep(1.2)
        assert predicted(server, "half_plus_two", [1.0]) == [2.5]
    config.write_text(f"model_config_list {{ {entry.format('scalar', saved_models)} }}")
    server.wait_for(available(server, "scalar", 1))
    server.wait_for(lambda: ask(server, HALF, {"instances": [1.0]})[0] == 404)


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
    asked = of_one_model("gate", folder.parent)
    with gate(tmp_path / "held") as held:
        warm_up_with(folder, recorded("mark", [held.mark().encode()]))
        server = model_server(f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1")
        server.wait_for(available(server, "m", 1))
        with grpc.insecure_channel(server.grpc) as channel:
            answer = channel.unary_unary(RELOAD).future(reload_request(asked), timeout=60)
            held.wait_for()
            time.sleep(2.2)
            held.open()
            assert protos.ReloadConfigResponse.FromString(answer.result()).status.error_code == 0
        server.wait_for(lambda: ask(server, "/v1/models/m/metadata")[0] == 200)
        server.wait_for(lambda: ask(server, "/v1/models/gate/metadata")[0] == 404)
