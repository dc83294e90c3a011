"""CSV without a header for a model of several inputs."""

from pathlib import Path

import pytest

from support.signature_models import tensor, write_signature_model
from tfs_proxy import testing
from tfs_proxy.model.report.served import look_into
from tfs_proxy.model.report.startup import describe
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.pack.lay_out import record_columns
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import CSV_COLUMNS_FILE

INPUTS = {"a": tensor("DT_FLOAT", None), "b": tensor("DT_FLOAT", None)}
BODY = "1,2\n"


def test_who_knows_the_order_of_columns(tmp_path: Path) -> None:
    """The request, else the setting, else the archive; without any, the names are asked for."""
    folder = write_signature_model(tmp_path / "m" / "1", INPUTS, {"y": tensor("DT_FLOAT", None)})

    def asked(content_type: str = "text/csv", **environ: str) -> object:
        settings = Settings.from_env(environ)
        with testing.load(tmp_path, outputs=lambda x: {"y": x["a"] - 10 * x["b"]}, settings=settings) as app:
            reply = app.post(BODY, content_type, "text/csv")
            return reply.body.decode() if reply.status == 200 else (reply.status, reply.json["error"])

    sentence = (
        "The model takes 2 inputs (a, b): send a header row that names each of them, or their order, as in "
        "Content-Type: text/csv; columns=NAME,NAME, or send JSON."
    )
    assert asked() == (400, sentence)
    (folder / CSV_COLUMNS_FILE).parent.mkdir()
    (folder / CSV_COLUMNS_FILE).write_text("b,a\n")
    assert asked() == "-8.0\n"
    assert asked(TFS_PROXY_CSV_COLUMNS="a,b") == "-19.0\n"
    assert asked("text/csv; columns=b,a", TFS_PROXY_CSV_COLUMNS="a,b") == "-8.0\n"


def test_an_order_of_columns_that_no_model_has(tmp_path: Path) -> None:
    """The report of the start lists the inputs, and `pack` refuses such an order."""
    write_signature_model(tmp_path / "m" / "1", INPUTS, {"y": tensor("DT_FLOAT", None)})

    def warnings(columns: str) -> tuple[str, ...]:
        settings = Settings.from_env({"TFS_PROXY_CSV_COLUMNS": columns})
        return describe(look_into(tmp_path, settings), settings, {}).warnings

    assert warnings("b, a") == ()
    assert warnings("a,zzz") == (
        "TFS_PROXY_CSV_COLUMNS=a,zzz is no order of a model's inputs: m takes a, b.",
    )
    with pytest.raises(SettingsError, match=r"--csv-columns a,zzz is not an order .* which are a, b"):
        record_columns(tmp_path, "a,zzz", required=True)
