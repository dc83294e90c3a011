"""The table of sub-commands: all are registered alike, and `serve` starts without the modules of others."""

import re
import subprocess
import sys

import pytest

from tfs_proxy.cli import LISTED, OF_THE_IMAGES, command_parser
from unit.conftest import Command


@pytest.mark.parametrize("name", OF_THE_IMAGES)
def test_words_of_another_program_are_passed_on_as_they_are(name: str) -> None:
    words = ["--port=1", "--help", "-x", "--", "MODEL"]

    assert command_parser(name).parse_args(words).words == words


def test_serve_is_parsed_before_anything_heavy_is_imported() -> None:
    """The port must be open within 250 ms: parsing `serve` loads no run loop, NumPy or event loop."""
    program = (
        "import sys\nfrom tfs_proxy.cli import command_parser\n"
        "command_parser('serve').parse_args([])\n"
        "print([name for name in ('asyncio', 'numpy', 'tfs_proxy.run.run') if name in sys.modules])"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"


def test_without_a_command_the_help_is_an_error(run: Command) -> None:
    """Eight commands are listed in three groups, on standard error."""
    said = run(ends=2)
    assert said.out == ""
    listed = [line.split()[0] for line in said.err.splitlines() if re.match("  [a-z]", line)]
    assert listed == [name for names in LISTED.values() for name in names]


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("serv", "tfs-proxy: error: serv is not a command: did you mean serve?"),
        ("tensorflow_serving --help", ": did you mean tensorflow-serving?"),
        ("pipeline a b", "pipeline is not a command: did you mean serve A B?"),
        ("zzz", "tfs-proxy: error: zzz is not a command: tfs-proxy --help lists them."),
        ("serve model --script x.py", "tfs-proxy pack MODEL --script inference.py writes one"),
        ("settings SAGEMAKER_BIND_PORT", "did you mean SAGEMAKER_BIND_TO_PORT?"),
    ],
)
def test_a_misspelt_word_names_the_one_that_was_meant(words: str, last: str, run: Command) -> None:
    """Nothing is run in its place."""
    assert run(*words.split(), ends=2).err.splitlines()[-1].endswith(last)


def test_settings_are_listed_with_defaults_and_help(run: Command) -> None:
    """All by groups, or those whose names have a part in common; `serve --help` says where they are."""
    listed = run("settings").out
    assert "\nBatching\n" in listed
    assert "SAGEMAKER_GUNICORN_WORKERS" in listed

    assert run("settings", "bind_to").out.splitlines() == [
        "Addresses and HTTP",
        "  SAGEMAKER_BIND_TO_PORT (default: 8080)",
        "      port of HTTP, at which requests arrive; 0 takes a free one",
    ]
    assert "tfs-proxy settings" in command_parser("serve").format_help()


@pytest.mark.parametrize("words", ["--help", "settings"])
def test_a_reader_that_goes_early_hears_nothing(words: str) -> None:
    program = f"{sys.executable} -m tfs_proxy.cli {words} | true"

    run = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)

    assert run.stderr == ""


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("serve --workers 3 m", "SAGEMAKER_GUNICORN_WORKERS: "),
        ("serve --threads=4", "SAGEMAKER_GUNICORN_THREADS: "),
    ],
)
def test_words_that_people_try_are_answered_by_what_to_write(words: str, remedy: str, run: Command) -> None:
    """Settings are no flags; the exit status is a usage error's."""
    assert remedy in run(*words.split(), ends=2).err


def test_the_package_is_the_command() -> None:
    """`python -m tfs_proxy` is what people try where the command is not on PATH."""
    run = subprocess.run(
        [sys.executable, "-m", "tfs_proxy", "--version"], capture_output=True, text=True, check=True
    )

    assert run.stdout.startswith("tfs-proxy ")
