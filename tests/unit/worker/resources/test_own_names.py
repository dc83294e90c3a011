"""Names of inputs that a graph can't have: requests take the author's own ones, and the graph's."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.signature_models import tensor, write_signature_model
from tfs_proxy import testing
from tfs_proxy.values.layout import INPUT_NAMES_FILE

DAY, INCOME = "day of week", "income (USD)"
RECORD = {DAY: 3, INCOME: 1000}


def npz(**arrays: int) -> bytes:
    body = io.BytesIO()
    write: Any = np.savez
    write(body, **{name: np.array([value], np.float32) for name, value in arrays.items()})
    return body.getvalue()


def form(*names: str) -> bytes:
    parts = (
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{RECORD[name]}\r\n' for name in names
    )
    return f"{''.join(parts)}--b--\r\n".encode()


def asked(root: Path, content_type: str, body: str | bytes) -> tuple[int, str]:
    """Status and body of the answer of a model that counts in weeks; recorded names are ``RECORD``'s."""
    with testing.load(root, outputs=lambda x: {"y": x["income_USD"] + 10 * x["day_of_week"]}) as app:
        reply = app.post(body, content_type, "text/csv")
        return reply.status, reply.text


def model(root: Path, names: dict[str, str] | None = None, **inputs: str) -> Path:
    """A model of these inputs by dtype, with recorded ``names``; by default those of RECORD."""
    specs = {name: tensor(dtype, None) for name, dtype in inputs.items()}
    specs = specs or dict.fromkeys(("day_of_week", "income_USD"), tensor("DT_FLOAT", None))
    folder = write_signature_model(root / "m" / "1", specs, {"y": tensor("DT_FLOAT", None)})
    names = {DAY: "day_of_week", INCOME: "income_USD"} if names is None else names
    (folder / INPUT_NAMES_FILE).parent.mkdir()
    if names:
        (folder / INPUT_NAMES_FILE).write_text(json.dumps(names))
    return root


BODIES: dict[str, tuple[str, str | bytes]] = {
    "a record": ("application/json", json.dumps([RECORD])),
    "rows": ("application/json", json.dumps({"instances": [RECORD]})),
    "columns": (
        "application/json",
        json.dumps({"inputs": {name: [value] for name, value in RECORD.items()}}),
    ),
    "a header": ("text/csv", f"{INCOME},{DAY}\n1000,3\n"),
    "an order of columns": (f'text/csv; columns="{INCOME},{DAY}"', "1000,3\n"),
    "a form": ("multipart/form-data; boundary=b", form(DAY, INCOME)),
    "arrays": ("application/x-npz", npz(**RECORD)),
    "both kinds of names": ("application/json", json.dumps([RECORD, {"day_of_week": 3, INCOME: 1000}])),
}


@pytest.mark.parametrize("names", [None, {}], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("case", BODIES)
def test_own_names_are_taken(tmp_path: Path, case: str, names: dict[str, str] | None) -> None:
    """Those of several inputs are known by what `pack` makes of them."""
    status, text = asked(model(tmp_path, names), *BODIES[case])
    assert (status, set(text.split())) == (200, {"1030.0"})


TWICE: dict[str, tuple[str, str]] = {
    "JSON": ("application/json", json.dumps({**RECORD, "day_of_week": 4})),
    "a header": ("text/csv", f"{INCOME},{DAY},day_of_week\n1,2,3\n"),
}


@pytest.mark.parametrize("case", TWICE)
def test_two_names_of_one_input_are_refused(tmp_path: Path, case: str) -> None:
    status, text = asked(model(tmp_path), *TWICE[case])
    assert status == 400
    assert "are names of one input: send one of them." in text


def test_a_graphs_name_wins_and_others_are_unknown(tmp_path: Path) -> None:
    """What somebody has recorded for another input, and names that are almost those."""
    names = {DAY: "day_of_week", "income_USD": "day_of_week"}
    body = json.dumps({"income_USD": 1000, DAY: 3})
    assert asked(model(tmp_path / "wins", names), "application/json", body) == (200, "1030.0\n")

    status, text = asked(model(tmp_path / "typo"), "application/json", body.replace("of ", "of-"))
    assert (status, 'names \\"day of-week\\"' in text) == (400, True)


def test_a_header_of_one_input_of_strings(tmp_path: Path) -> None:
    """Its own name is a header if it is recorded; else any text is a record."""
    for names, records in (({"a text.": "a_text"}, 1), ({}, 2)):
        root = model(tmp_path / str(records), names, a_text="DT_STRING")
        with testing.load(root) as app:
            assert app.post("a text.\ngood\n", "text/csv", "text/csv").text == "0.0\n" * records
