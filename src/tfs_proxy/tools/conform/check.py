"""One check of the contract: its name, level, sentence and source, and the function that tries it."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from tfs_proxy.values.errors import SettingsError, TfsProxyError

if TYPE_CHECKING:
    from tfs_proxy.tools.conform.judging import Judging

Trial = Callable[["Judging"], str | None]
"""Returns what is worth knowing of a check that passed; raises `Violation` or `NotRun`."""


class Level(Enum):
    MUST = "must"
    """SageMaker needs it: see the source."""
    SHOULD = "should"


class RuleSource(Enum):
    """Sources of rules: the sections of docs/reference/sagemaker.md."""

    START_AND_STOP = "Start and stop"
    MODEL = "Model artefacts"
    PING = "Ping"
    INVOCATIONS = "Invocations"
    METRICS = "Metrics"
    HEADERS = "Headers"
    STREAMING = "Streaming"
    BIDIRECTIONAL = "Bidirectional streams"
    MULTI_MODEL = "Multi-model endpoints"
    PIPELINES = "Inference pipelines"
    BATCH = "Batch transform"


class Occasion(Enum):
    """The kind of start that a check needs: checks of the same kind share one start, in this order."""

    RUNNING = "the container as it is"
    FRESH = "a new container"
    STOPPING = "that container, stopped in the middle of a request"
    STARTING = "a container that is stopped while it starts"
    READ_ONLY = "a container whose model folder is read-only"
    ENVIRONMENT = "a container with an environment of 100 entries"
    EMPTY_MODEL = "a container with an empty model folder"
    BATCH = "a container of a transform job"
    PIPELINE = "a container of a pipeline"
    MULTI_MODEL = "a container of a multi-model endpoint"


class Violation(TfsProxyError):
    """Finding of a check: what the contract expects, what the container did, and how to mend it."""

    def __init__(self, *, expected: str, got: str, mend: str = "") -> None:
        super().__init__(f"expected {expected}; got {got}")
        self.expected, self.got, self.mend = expected, got, mend


class NotRun(TfsProxyError):
    """A check does not apply, or could not be tried: the reason."""


class Check(Struct, frozen=True):
    """A rule and how it is tried; ``name`` is ``group/short-name``."""

    name: str
    level: Level
    sentence: str
    source: RuleSource
    trial: Trial
    occasion: Occasion = Occasion.RUNNING

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]


class CheckGroup:
    """The checks of one module: its functions add themselves by the decorators `must` and `should`."""

    def __init__(self, name: str, source: RuleSource, occasion: Occasion = Occasion.RUNNING) -> None:
        self.name, self.source, self.occasion = name, source, occasion
        self.checks: list[Check] = []

    def must(
        self, sentence: str, source: RuleSource | None = None, occasion: Occasion | None = None
    ) -> Callable[[Trial], Trial]:
        """Add a function as a check of the contract; its name is the check's."""
        return self._adding(Level.MUST, sentence, source, occasion)

    def should(
        self, sentence: str, source: RuleSource | None = None, occasion: Occasion | None = None
    ) -> Callable[[Trial], Trial]:
        return self._adding(Level.SHOULD, sentence, source, occasion)

    def add(self, name: str, level: Level, sentence: str, trial: Trial) -> None:
        """Adds a check under its own name: for checks that are made from a table."""
        self.checks.append(Check(f"{self.name}/{name}", level, sentence, self.source, trial, self.occasion))

    def _adding(
        self, level: Level, sentence: str, source: RuleSource | None, occasion: Occasion | None
    ) -> Callable[[Trial], Trial]:
        def added(trial: Trial) -> Trial:
            name = f"{self.name}/{trial.__name__.strip('_').replace('_', '-')}"
            self.checks.append(
                Check(name, level, sentence, source or self.source, trial, occasion or self.occasion)
            )
            return trial

        return added


def selected(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> list[Check]:
    """Checks of ``only`` (all if it is empty) without those of ``skip``; names may be joined by commas.

    Raises SettingsError for an unknown group or check, and if nothing is left.
    """
    wanted, unwanted = _names(checks, only, "--only"), _names(checks, skip, "--skip")
    chosen = [check for check in checks if not wanted or _is_named(check, wanted)]
    chosen = [check for check in chosen if not _is_named(check, unwanted)]
    if not chosen:
        raise SettingsError("No check is left: --skip has all that --only has.")
    return chosen


def _names(checks: Sequence[Check], given: Sequence[str], flag: str) -> set[str]:
    names = {name.strip() for each in given for name in each.split(",") if name.strip()}
    known = {check.name for check in checks} | {check.group for check in checks}
    for name in sorted(names - known):
        groups = ", ".join(dict.fromkeys(check.group for check in checks))
        raise SettingsError(f"{flag} {name} is neither a group ({groups}) nor a check: --list has all names.")
    return names


def _is_named(check: Check, names: set[str]) -> bool:
    return check.name in names or check.group in names
