"""The axes that a search may change: settings with few options each, from the machine and the model."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from tfs_proxy.run.programs.model_server import rest_threads
from tfs_proxy.settings.settings import TABLE, Settings

VARIABLES: Mapping[str, str] = {row.field: row.variable for row in TABLE}
EXTRA_ARGS = VARIABLES["extra_args"]
REST_THREADS_FLAG = "--rest_api_num_threads"

Point = tuple[int, ...]
"""The index of the chosen option on each axis; 0 is the default."""


class Option(Struct, frozen=True):
    """One value of an axis: its text in a table, and the ``variables`` that set it."""

    label: str
    variables: Mapping[str, str] = field(default_factory=dict)


class Axis(Struct, frozen=True):
    """Options of one setting, the default first; without the axis ``needs`` it has no effect."""

    name: str
    options: tuple[Option, ...]
    needs: str | None = None


class TunedModel(Struct, frozen=True):
    """The model that is measured.

    ``has_script`` says that a script answers the requests, ``batches`` that every input and output has a
    first dimension of an open size.
    """

    through_workers: bool
    has_script: bool
    batches: bool


class Space(Struct, frozen=True):
    """All points of some axes; ``fixed`` are variables that the user has set, which are not changed."""

    axes: tuple[Axis, ...]
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def default(self) -> Point:
        return (0,) * len(self.axes)

    def place(self, name: str) -> int | None:
        """Index of the axis ``name``; None if there is none."""
        return next((place for place, axis in enumerate(self.axes) if axis.name == name), None)

    def canonical(self, point: Point) -> Point:
        """The equivalent point with 0 on each axis that has no effect."""
        return tuple(
            0 if axis.needs and (place := self.place(axis.needs)) is not None and not point[place] else chosen
            for axis, chosen in zip(self.axes, point, strict=True)
        )

    def chosen(self, point: Point) -> Iterator[tuple[Axis, Option]]:
        """The options of a point that differ from the defaults."""
        for axis, number in zip(self.axes, self.canonical(point), strict=True):
            if number:
                yield axis, axis.options[number]

    def environment(self, point: Point) -> dict[str, str]:
        """The variables that set a stack to ``point``; none for the default."""
        return {name: value for _, option in self.chosen(point) for name, value in option.variables.items()}

    def label(self, point: Point) -> str:
        return ", ".join(option.label for _, option in self.chosen(point)) or "defaults"


def space_of(workload: TunedModel, settings: Settings) -> Space:
    """The settings to search for ``workload``, without those that the user has set."""
    fixed = _given(settings)
    axes = [
        *(_worker_axes(workload, settings) if workload.through_workers else ()),
        *(() if workload.has_script or EXTRA_ARGS in fixed else (_rest_threads(settings),)),
        _intra_op(settings),
        *(_batching_axes(settings) if workload.batches else ()),
    ]
    free = [axis for axis in axes if len(axis.options) > 1 and not _variables(axis) & fixed.keys()]
    return Space(_without_orphans(free, settings), fixed)


_SEARCHED = (
    "gunicorn_workers",
    "gunicorn_threads",
    "rest_threads",
    "intra_op_parallelism",
    "enable_batching",
    "max_batch_size",
    "batch_timeout_micros",
)


def _given(settings: Settings) -> dict[str, str]:
    given = {
        row.variable: f"{getattr(settings, row.field)}".lower()
        for row in TABLE
        if row.field in _SEARCHED and row.variable in settings.given
    }
    # The model server uses the last of two equal flags, which is the user's.
    if any(word.startswith(REST_THREADS_FLAG) for word in settings.extra_args):
        given[EXTRA_ARGS] = shlex.join(settings.extra_args)
    return given


def _variables(axis: Axis) -> set[str]:
    return {name for option in axis.options for name in option.variables}


def _without_orphans(axes: Sequence[Axis], settings: Settings) -> tuple[Axis, ...]:
    """The axes without those that need batching, if the user has switched it off."""
    names = {axis.name for axis in axes}
    return tuple(
        axis for axis in axes if axis.needs is None or axis.needs in names or settings.enable_batching
    )


def _numbers(field_name: str, unit: str, default: int, values: Sequence[int]) -> tuple[Option, ...]:
    others = [value for value in dict.fromkeys(values) if value != default and value > 0]
    return (
        Option(_counted(default, unit)),
        *(Option(_counted(value, unit), {VARIABLES[field_name]: str(value)}) for value in others),
    )


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit.removesuffix('s') if count == 1 else unit}"


def _worker_axes(workload: TunedModel, settings: Settings) -> Iterator[Axis]:
    cores, workers = settings.machine.cores, settings.gunicorn_workers
    # A script works in the workers; without one, workers only pass requests on.
    counts = [max(1, cores // 2), cores, *([2 * cores] if workload.has_script else ())]
    yield Axis("workers", _numbers("gunicorn_workers", "workers", workers, counts))
    yield Axis("threads", _numbers("gunicorn_threads", "threads", settings.gunicorn_threads, (4, 16)))


def _rest_threads(settings: Settings) -> Axis:
    """Threads of the model server's REST API, which answers most requests itself without a script."""
    cores = settings.machine.cores
    default = rest_threads(settings, script=False, models=1)
    _, *others = _numbers("rest_threads", "REST threads", default, (2 * cores, 8 * cores))
    # The default depends on batching.
    return Axis("rest_threads", (Option("default REST threads"), *others))


def _intra_op(settings: Settings) -> Axis:
    cores = settings.machine.cores
    counts = (1, cores) if cores > 2 else (1,)  # noqa: PLR2004 - as many as 2 cores is TensorFlow's own choice
    return Axis(
        "intra_op",
        _numbers("intra_op_parallelism", "intra-op threads", settings.intra_op_parallelism, counts),
    )


def _batching_axes(settings: Settings) -> Iterator[Axis]:
    switch = VARIABLES["enable_batching"]
    on = {switch: "true"}
    if not settings.enable_batching:
        yield Axis("batching", (Option("no batching"), Option("batching", on)))
    yield Axis(
        "batch_size", _numbers("max_batch_size", "in a batch", settings.max_batch_size, (32, 128)), "batching"
    )
    yield Axis(
        "batch_timeout",
        _numbers("batch_timeout_micros", "µs to fill it", settings.batch_timeout_micros, (200, 5000)),
        "batching",
    )
