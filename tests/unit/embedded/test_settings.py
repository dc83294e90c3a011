"""The embedded server's flags and configuration files, as values."""

from pathlib import Path

import pytest

from tfs_proxy.embedded import model_config
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.flags import ModelServerFlags, parse
from tfs_proxy.embedded.grpc_server import channel_arguments, credentials
from tfs_proxy.embedded.lifecycle import find
from tfs_proxy.embedded.model_config import ModelSource, Policy, read_options
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.grpc_codes import GrpcCode

SPLIT = "enable_large_batch_splitting { value: true } "


def test_flags_are_read_in_every_form() -> None:
    """Values come behind an equals sign or as the next word; a bool may stand alone or be false."""
    words = "--port=1 --rest_api_port 2 --enable_batching --enable_model_warmup=false -model_name=m"
    flags, remarks = parse(words.split())
    assert (flags.port, flags.rest_api_port, flags.model_name) == (1, 2, "m")
    assert flags.enable_batching
    assert not flags.enable_model_warmup
    assert remarks == ()
    (remark,) = parse(["--flush_filesystem_caches=true"])[1]
    assert remark == "--flush_filesystem_caches has no effect on the embedded model server."
    assert parse(["--enable_batching", "true", "--port", "3"])[0].port == 3


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--nonsense=1"], "Unknown flag of the model server: --nonsense=1"),
        (["word"], "Unknown flag"),
        (["--port"], "--port needs a value"),
        (["--port=x"], "--port=x is not a whole number"),
        (["--per_process_gpu_memory_fraction=x"], "is not a number"),
        (["--port=5_000"], "--port=5_000 is not a whole number"),
        (["--port="], "--port= is not a whole number"),
        (["--rest_api_port=65536"], "--rest_api_port=65536 does not lie between 0 and 65535"),
        (["--tensorflow_inter_op_parallelism=99999999999"], "does not lie between -2147483648"),
        (["--tensorflow_intra_op_parallelism=-1"], "intra_op_parallelism=-1 does not lie between 0"),
        ([f"--max_num_load_retries={'9' * 5000}"], "does not lie between"),
        (["--enable_batching=maybe"], "is neither true nor false"),
        (["--enable_batching=True"], "is neither true nor false"),
        (["--enable_batching="], "is neither true nor false"),
        (["--enable_batching", "1"], "is neither true nor false"),
        (["--batching_parameters_file=f"], "without --enable_batching"),
    ],
)
def test_unusable_flags_are_refused(argv: list[str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        parse(argv)


def config_file(folder: Path, text: str) -> ModelServerFlags:
    path = folder / "models.config"
    path.write_text(text)
    return ModelServerFlags(model_config_file=str(path))


def test_a_config_file_names_models_policies_and_labels(tmp_path: Path) -> None:
    flags = config_file(
        tmp_path,
        """model_config_list {
          config { name: "a" base_path: "/m/a" model_platform: "tensorflow" }
          config { name: "b" base_path: "/m/b" model_version_policy { all {} } version_labels { key: "s" value: 2 } }
          config { name: "c" base_path: "/m/c" model_version_policy { latest { num_versions: 3 } } }
          config { name: "d" base_path: "/m/d" model_version_policy { specific { versions: 4 versions: 1 } } }
        }""",
    )
    assert model_config.from_flags(flags) == (
        ModelSource("a", "/m/a"),
        ModelSource("b", "/m/b", Policy(every=True), {"s": 2}),
        ModelSource("c", "/m/c", Policy(latest=3)),
        ModelSource("d", "/m/d", Policy(specific=(4, 1))),
    )


def test_policies_choose_versions() -> None:
    assert Policy().choose([3, 1, 2]) == (3,)
    assert Policy(latest=2).choose([3, 1, 2]) == (2, 3)
    assert Policy(every=True).choose([3, 1]) == (1, 3)
    assert Policy(specific=(1, 9)).choose([3, 1]) == (1,)
    assert Policy().choose([]) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('model_config_list { config { base_path: "/x" } }', "has no name"),
        (
            'model_config_list { config { name: "a" base_path: "/x" } config { name: "a" base_path: "/y" } }',
            "multiple times",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/x" model_version_policy { specific {} } } }',
            "names no version",
        ),
    ],
)
def test_unusable_configs_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        model_config.from_flags(config_file(tmp_path, text))


def test_a_config_that_does_not_parse_says_where(tmp_path: Path) -> None:
    flags = config_file(tmp_path, "model_config_list {\n  config {\n    nme : 1 }}")
    where = (
        r"ModelServerConfig: 3:5 : .* has no field named \"nme\"\. Invalid protobuf file: '.*models.config'"
    )
    with pytest.raises(SettingsError, match=where):
        model_config.from_flags(flags)


def test_a_config_that_is_read_again_lists_models(tmp_path: Path) -> None:
    path = tmp_path / "models.config"
    path.write_text("model_config_list {}")
    assert model_config.again_from_file(str(path)) == ()
    path.write_text("")
    assert model_config.from_flags(ModelServerFlags(model_config_file=str(path))) == ()
    with pytest.raises(ServingError, match="Cannot transition to requested config") as caught:
        model_config.again_from_file(str(path))
    assert caught.value.code is GrpcCode.FAILED_PRECONDITION
    path.write_text('model_config_list { config { name: "m" base_path: "/m" model_platform: "other" } }')
    with pytest.raises(ServingError, match="Model m requests unsupported platform other"):
        model_config.again_from_file(str(path))


def test_no_model_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--model_base_path"):
        model_config.from_flags(ModelServerFlags())
    with pytest.raises(SettingsError, match="Can't read"):
        model_config.from_flags(ModelServerFlags(model_config_file=str(tmp_path / "missing")))


def test_a_relative_base_path_is_made_absolute() -> None:
    (source,) = model_config.from_flags(ModelServerFlags(model_base_path="models/m", model_name="m"))
    assert Path(source.base_path).is_absolute()


def test_version_folders_are_numbers(tmp_path: Path) -> None:
    """Zeros may lead; files, names, negative numbers and those beyond 63 bits do not count."""
    for name in ("1", "00012", "0012", "-3", "v4", "5.5", "9" * 19, "9" * 200, "²"):
        (tmp_path / name).mkdir()
    (tmp_path / "7").write_text("")
    assert find(str(tmp_path)) == {1: tmp_path / "1", 12: tmp_path / "0012"}
    assert find(f"file://{tmp_path}").keys() == {1, 12}
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        find(str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="reads local folders only"):
        find("gs://bucket/model")


def test_channel_arguments_are_pairs() -> None:
    assert channel_arguments("a.b=1,c=x,d=-2") == [("a.b", 1), ("c", "x"), ("d", -2)]
    for text in (str(2**31), "--5", "1.5", "\N{SUPERSCRIPT TWO}"):
        assert channel_arguments(f"a={text}") == [("a", text)]
    assert channel_arguments("") == []
    with pytest.raises(SettingsError, match="is not key=value"):
        channel_arguments("a")


def test_an_ssl_file_needs_key_and_certificate(tmp_path: Path) -> None:
    path = tmp_path / "ssl.txt"
    path.write_text('server_key: "k"')
    assert credentials("") is None
    with pytest.raises(SettingsError, match="needs server_key and server_cert"):
        credentials(str(path))
    path.write_text('server_key: "k" server_cert: "c" client_verify: true')
    with pytest.raises(SettingsError, match="needs custom_ca"):
        credentials(str(path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: 8",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 8; expected 4",
        ),
        ("allowed_batch_sizes: 2", "last entry was 2; expected 1000"),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: [2, 2, 4]",
            "allowed_batch_sizes entries must be monotonically increasing",
        ),
        ("max_batch_size { value: 0 }", "max_batch_size must be 1 or more; was 0"),
        ("num_batch_threads { value: -1 }", "num_batch_threads must be 1 or more; was -1"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must be 0 or more; was -1"),
        (
            SPLIT + "max_batch_size { value: 4 } max_execution_batch_size { value: 8 }",
            "max_execution_batch_size is larger than max_batch_size",
        ),
        ("nonsense: 1", "Invalid protobuf file"),
    ],
)
def test_batching_parameters_that_do_not_fit_are_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "batching.txt"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_options(str(path))
    assert str(path) in str(caught.value)
    assert why in str(caught.value)


def test_batching_parameters_beyond_what_the_op_takes_are_its_most(tmp_path: Path) -> None:
    """TF Serving takes 64 bits: an hour to wait for a batch, or as good as no end to the queue."""
    path = tmp_path / "batching.txt"
    path.write_text("batch_timeout_micros { value: 3600000000 } max_enqueued_batches { value: 10000000000 }")
    options = read_options(str(path))
    assert (options.batch_timeout_micros, options.max_enqueued_batches) == (2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("", []),
        ("allowed_batch_sizes: [2, 8]", [2, 8]),
        (SPLIT, [1, 2, 3, 4, 5, 6, 7, 8]),
        (SPLIT + "max_execution_batch_size { value: 2 }", [1, 2]),
        (SPLIT + "max_execution_batch_size { value: 4 } allowed_batch_sizes: [2, 4]", [2, 4]),
        (SPLIT + "max_execution_batch_size { value: 4 } allowed_batch_sizes: [2, 4, 8]", [2, 4]),
    ],
)
def test_batches_are_cut_and_padded_to_sizes(tmp_path: Path, text: str, sizes: list[int]) -> None:
    """Without splitting up to max_batch_size, with it up to max_execution_batch_size, where that is given."""
    path = tmp_path / "batching.txt"
    path.write_text(f"max_batch_size {{ value: 8 }} {text}")
    assert read_options(str(path)).op_batch_sizes == sizes
