"""`tfs-proxy transform` of CSV for a model of several inputs, served for the run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.transform_command import Done, outputs, transform

HEADER = "a,a,a,b\n"
ROWS = [f"{number},2,3,{number}\n" for number in range(200)]
BAD = 120

Run = Callable[..., Done]


@pytest.fixture
def run(saved_models: Path, tmp_path: Path) -> Run:
    """Runs a job of the CSV lines below ``in``, which takes several mini-batches if ``content`` is over 1 MB."""

    def of(content: str, *flags: str, content_type: str = "text/csv") -> Done:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / "a.csv").write_text(content)
        return transform(
            *("--model", str(saved_models / "multi_io"), "--model-server", "embedded"),
            *("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--split-type", "Line"),
            *("--assemble-with", "Line", "--content-type", content_type, "--accept", content_type),
            *("--on-error", "placeholder", *flags),
        )

    return of


@pytest.mark.slow
def test_an_id_column_stays_beside_each_row(run: Run, tmp_path: Path) -> None:
    """Wherever it stands, also without a limit; a bad row has its id, too; an object without the column fails."""
    rows = [f"{number},{number},2,3,{number}\n" for number in range(99)]
    done = run(
        "a,my id,a,a,b\n" + "".join(rows) + 'x,"7,x",2,3,4\n', "--id-column", "my id", "--max-payload-mb", "1"
    )
    written = outputs(tmp_path / "out")["a.csv.out"].decode().splitlines()
    assert (done.status, len(written), written[-1]) == (0, 101, '"7,x",ERROR'), done.log
    assert written[99].startswith("98,196,big,"), written[99]
    assert written[0] == "my id,count,label,sum,sum,sum"
    (tmp_path / "out" / "a.csv.out").unlink()
    whole = run("a,my id,a,a,b\n" + "".join(rows), "--id-column", "my id", "--max-payload-mb", "0")
    assert whole.status == 0, whole.log
    assert outputs(tmp_path / "out")["a.csv.out"].decode().splitlines() == written[:-1]
    both = run("a,my id,a,a,b\n1,x,2,3,4\n", "--id-column", "my id", "--join", "Input")
    assert both.status == 0, both.log
    joined = outputs(tmp_path / "out")["a.csv.out"].decode().splitlines()
    assert (joined[0], joined[1][:10]) == ("a,my id,a,a,b,count,label,sum,sum,sum", "1,x,2,3,4,")
    missing = run("a,a,a,b\n1,2,3,4\n", "--id-column", "my id")
    assert (missing.status, "the header has no column my id" in missing.log) == (1, True), missing.log


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--strategy", "SingleRecord"), ("--join", "Input")])
def test_one_bad_row_costs_one_record(run: Run, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Each half of a refused mini-batch has the header, which is no record; joined rows have one, too."""
    rows = ROWS.copy()
    rows[BAD] = "oops,2,3,4\n"
    done = run(HEADER + "".join(rows), *flags)
    written = outputs(tmp_path / "out")["a.csv.out"].decode().splitlines()
    if "--join" in flags:
        assert written.pop(0) == "a,a,a,b,count,label,sum,sum,sum"
    assert (done.status, done.summary["bad_records"], len(written)) == (0, 1, len(ROWS)), done.log
    bad = "oops,2,3,4,ERROR" if "--join" in flags else "ERROR"
    assert [number for number, line in enumerate(written) if line.endswith("ERROR")] == [BAD]
    assert written[BAD] == bad
    assert done.summary["failures"][0]["record"] == BAD + 1
    assert written[-1].startswith("199,2,3,199," if "--join" in flags else "398,big,")


@pytest.mark.parametrize("flags", [(), ("--join", "Input")])
def test_a_header_is_told_as_the_model_gets_it(run: Run, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A column that the filter leaves out costs no row; nor with an order of columns."""
    rows = [f"{number},{row}" for number, row in enumerate(ROWS)]
    done = run("id," + HEADER + "".join(rows), "--input-filter", "$[1:]", *flags)
    assert (done.status, done.summary["bad_records"], done.summary["records"]) == (0, 0, len(ROWS)), done.log
    ordered = run("id," + HEADER, "--input-filter", "$[1:]", *flags, content_type="text/csv; columns=a,b")
    assert (ordered.status, "leave it out" in ordered.log) == (0, False), ordered.log
