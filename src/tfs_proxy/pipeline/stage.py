"""Archives and settings -> the stages of a pipeline, as values: pure."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from tfs_proxy.errors import SettingsError
from tfs_proxy.settings import Settings, for_inner_stack
from tfs_proxy.supervisor.host.sockets import LOOPBACK
from tfs_proxy.supervisor.process import ProcessSpec

FEWEST, MOST = 2, 15
"""How many containers SageMaker takes in one pipeline (docs/reference/sagemaker.md)."""

SAFE_PORTS = 10
"""Ports in a stage's safe range at least, as many as five model servers need."""


class StageOrder(Struct, frozen=True):
    """What the user asks for: an archive, and variables for this stage alone."""

    archive: str
    variables: Mapping[str, str]


class Stage(Struct, frozen=True):
    """One stage: its number from 1, its archive, the port it listens on, and its whole environment."""

    number: int
    archive: str
    port: int
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        """What logs and errors call it."""
        return f"stage {self.number} ({PurePosixPath(self.archive.rstrip('/')).name})"


def check_count(orders: Sequence[StageOrder]) -> None:
    """Raise SettingsError for fewer or more stages than a pipeline has."""
    if not FEWEST <= len(orders) <= MOST:
        raise SettingsError(f"a pipeline has {FEWEST} to {MOST} stages, not {len(orders)}.")


def ports_needed(order: StageOrder, number: int, environ: Mapping[str, str]) -> int:
    """How many ports in a row a stage needs: one to listen on, and a safe range behind it.

    Raises SettingsError, naming the stage, if its variables can't be used.
    """
    own = {"SAGEMAKER_SAFE_PORT_RANGE": "", **order.variables}
    try:
        settings = Settings.from_env({**environ, **own})
    except SettingsError as error:
        raise SettingsError(f"stage {number}: {error}") from error
    return 1 + max(SAFE_PORTS, 2 * settings.instance_count)


def stage(number: int, order: StageOrder, ports: range, environ: Mapping[str, str]) -> Stage:
    """A stage with its ports, which two of SageMaker's variables set."""
    ports_variables = {
        "SAGEMAKER_BIND_TO_PORT": str(ports[0]),
        "SAGEMAKER_SAFE_PORT_RANGE": f"{ports[1]}-{ports[-1]}",
    }
    return Stage(
        number, order.archive, ports[0], {**for_inner_stack(environ), **order.variables, **ports_variables}
    )


def process(stage: Stage, model_server: str) -> ProcessSpec:
    """The serving stack of a stage."""
    return ProcessSpec(
        name=stage.name,
        argv=(
            *(sys.executable, "-m", "tfs_proxy.cli", "serve", stage.archive),
            *("--host", LOOPBACK, "--model-server", model_server),
        ),
        env=stage.environ,
    )
