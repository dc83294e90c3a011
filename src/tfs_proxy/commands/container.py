"""``tfs-proxy container``: the images' entry point, which gets the arguments of ``docker run IMAGE``."""

import argparse
import os
import signal
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tfs_proxy.settings.settings import Settings, change_environment, inherited_environment
from tfs_proxy.values.errors import ProgramNotRun
from tfs_proxy.values.layout import SAGEMAKER_MODEL_DIR, SERVING_BASE_PATH

SERVE = "serve"
TENSORFLOW_SERVING = "tensorflow-serving"
NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit statuses of shells for a program that does not exist, or can't be run."""


DESCRIPTION = """\
Run what the arguments of `docker run IMAGE` name: a command of tfs-proxy, flags of tensorflow_model_server
as the image tensorflow/serving takes them, or any program. Without arguments it is serve, or
tensorflow-serving if MODEL_NAME, MODEL_BASE_PATH or a model in /models says so.

`tfs-proxy --help` lists the commands, and `tensorflow-serving --help` all flags of the model server.
"""
USAGE = "[COMMAND | FLAG | PROGRAM] ..."


def run(arguments: argparse.Namespace) -> int:
    """Runs a command of ours, or replaces this process by another program."""
    if arguments.words[:1] in (["-h"], ["--help"]):
        print(arguments.usage(), end="")
        return 0
    if not inherited_environment().get("TFS_PROXY_HOST", "").strip():
        change_environment({"TFS_PROXY_HOST": "all"})
    command = command_of(arguments.words, arguments.commands)
    if command is None:
        run_program(arguments.words, arguments.commands)
    status: int = arguments.main(command)
    return status


def command_of(words: Sequence[str], commands: Collection[str]) -> list[str] | None:
    """The tfs-proxy command that ``words`` name; None if they start another program.

    Raises SettingsError if there are no words and a setting can't be used.
    """
    if not words:
        return [TENSORFLOW_SERVING if holds_served_models(Settings.from_env()) else SERVE]
    if words[0].startswith("--"):
        return [TENSORFLOW_SERVING, *words]
    if words[0] in commands or words[0].startswith("-"):
        return list(words)
    return None


def holds_served_models(
    settings: Settings, served: Path = Path(SERVING_BASE_PATH), archives: Path = SAGEMAKER_MODEL_DIR
) -> bool:
    """True if the container was started like tensorflow/serving: by its variables, or its folder."""
    if settings.serving_model_name or settings.serving_base_path:
        return True
    if settings.model is not None or _has_content(archives):
        return False
    from tfs_proxy.model.report.serving_flags import model_folders

    return bool(model_folders(served))


def _has_content(folder: Path) -> bool:
    try:
        return bool(list(folder.iterdir()))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def run_program(words: Sequence[str], commands: Sequence[str] = ()) -> NoReturn:
    """Replaces this process by the program. Raises ProgramNotRun if it can't be run."""
    # A program inherits ignored signals, and Python ignores SIGPIPE: `bash -c "yes | head"` would complain.
    previous = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(words[0], list(words))  # noqa: S606 - the user asked for this program
    except FileNotFoundError:
        text = f"{words[0]} is neither a command of tfs-proxy ({', '.join(commands)}) nor a program on PATH."
        raise ProgramNotRun(text, NOT_FOUND) from None
    except OSError as error:
        raise ProgramNotRun(f"{words[0]} can't be run: {error.strerror}.", NOT_EXECUTABLE) from error
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGPIPE, previous)
