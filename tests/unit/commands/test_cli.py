"""The table of sub-commands: all are registered alike, and `serve` starts without the modules of others."""

import subprocess
import sys

import pytest

from tfs_proxy.cli import COMMANDS, command_parser, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_parsed_by_its_own_module(name: str) -> None:
    """Each module of the table describes itself, adds its arguments and can be run."""
    parser = command_parser(name)
    module = sys.modules[f"tfs_proxy.commands.{COMMANDS[name].module}"]

    assert parser.prog == f"tfs-proxy {name}"
    assert parser.description
    assert callable(module.run)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.foreign_flags])
def test_words_of_another_program_are_passed_on_as_they_are(name: str) -> None:
    """Neither --help nor -- nor an unknown flag is taken by the command's own parser."""
    words = ["--port=1", "--help", "-x", "--", "MODEL"]

    assert command_parser(name).parse_args(words).words == words


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The program's own help names all commands."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in shown] == []


def test_serve_is_parsed_before_anything_heavy_is_imported() -> None:
    """The port must be open within 250 ms: parsing `serve` loads no run loop, NumPy or event loop."""
    program = (
        "import sys\nfrom tfs_proxy.cli import command_parser\n"
        "command_parser('serve').parse_args([])\n"
        "print([name for name in ('asyncio', 'numpy', 'tfs_proxy.supervisor.run') if name in sys.modules])"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"
