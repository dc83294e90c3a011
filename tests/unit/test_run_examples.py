"""What the runner of examples and documentation reads in a text, and when it accepts an answer."""

import time
from pathlib import Path
from types import ModuleType

import pytest

from support.loading import load_script

ROOT = Path(__file__).parents[2]
README = """
Text with $ and ports: 8080.

```console
$ python train.py
trained, 0.98 of 450 right
$ X=1 tfs-proxy serve build/model.tar.gz --port 8080
$ curl -s -d @- \\
    localhost:8080/v1/models/m:predict
{"a": 1,
 "b": 2}
```

```bash
$ aws s3 cp
```

```console title="Needs AWS"
$ aws s3 ls
```

```python title="code/inference.py"
URL = "http://localhost:8080"
```
"""


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """scripts/run_examples.py."""
    return load_script("run_examples")


def test_commands_and_what_they_print_are_read_in_order(runner: ModuleType) -> None:
    """Only consoles without a title are; a command may go on in the next line."""
    steps = list(runner.read_steps(README))

    assert [step.command for step in steps] == [
        "python train.py",
        "X=1 tfs-proxy serve build/model.tar.gz --port 8080",
        "curl -s -d @- localhost:8080/v1/models/m:predict",
    ]
    assert [step.printed for step in steps] == ["trained, 0.98 of 450 right", "", '{"a": 1,\n "b": 2}']
    assert [step.serves for step in steps] == [False, True, False]


def test_a_block_with_a_title_is_a_file(runner: ModuleType, tmp_path: Path) -> None:
    """It is written with the ports of this run, in folders that are made for it."""
    (file,) = [part for part in runner.read_parts(README) if isinstance(part, runner.File)]

    runner.write(file, tmp_path, {"8080": "1234"})

    assert (tmp_path / "code" / "inference.py").read_text() == 'URL = "http://localhost:1234"\n'


def test_pages_are_run_in_the_order_of_the_site(runner: ModuleType) -> None:
    """The page that makes the model comes before those that use it."""
    names = runner.page_names()

    assert names[0] == "index.md"
    assert (
        names.index(runner.MODEL_PAGE) < names.index("start/migrate.md") < names.index("how-to/pipelines.md")
    )


def test_ports_become_free_ones_everywhere(runner: ModuleType) -> None:
    """A number that only begins like one stays."""
    moved = runner.moved("localhost:8080 :8500 80800", {"8080": "1234", "8500": "1235"})

    assert moved == "localhost:1234 :1235 80800"


@pytest.mark.parametrize(
    ("wanted", "printed", "alike"),
    [
        ('{"a": [0.98], "b": "x"}', '{\n "b": "x",\n "a": [0.9799]}', True),
        ('{"a": [0.98]}', '{"a": [0.9]}', False),
        ('{"a": [1]}', '{"a": [1, 2]}', False),
        ('["one", "two"]', '["two", "one"]', False),
        ("reads 0.98 of 450", "reads  0.9812 of 450\n", True),
        ("reads 0.98 of 450", "reads 0.98 of 451", False),
        ('{"error": "...a type"}', '{"error": "415: a type"}', True),
        ("1.0\n...\n502.0", "1.0\n1.5\n501.5\n502.0\n", True),
        ("...not a JPEG...400", '{"error": "it is not a JPEG"}400', True),
        ("...not a JPEG...400", '{"error": "it is not a JPEG"}500', False),
    ],
)
def test_answers_are_compared_by_what_they_say(
    runner: ModuleType, wanted: str, printed: str, alike: bool
) -> None:
    """Decimals may differ a little, and JSON by its white space and the order of its keys."""
    assert runner.matches(wanted, printed) is alike


def test_a_command_that_does_not_end_is_told_with_its_page(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, and nobody waits for what it has started."""
    monkeypatch.setattr(runner, "COMMAND_SECONDS", 1)
    page = tmp_path / "README.md"
    page.write_text("```console\n$ sleep 9 | cat\n```\n")

    began = time.monotonic()
    assert runner.run_all({"how-to/page.md": (page, tmp_path)}) == 1
    assert time.monotonic() - began < 5
    assert "how-to/page.md: `sleep 9 | cat` did not end within 1 s\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "readme", sorted((ROOT / "code_examples").glob("*/README.md")), ids=lambda path: path.parent.name
)
def test_every_example_can_be_run_from_its_readme(runner: ModuleType, readme: Path) -> None:
    """It has commands, and fits a screen."""
    text = readme.read_text()

    assert list(runner.read_steps(text))
    assert len(text.splitlines()) <= 20
