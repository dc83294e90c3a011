"""Metrics of the run: the supervisor's knowledge of its processes, workers and models at one moment."""

import os
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from tfs_proxy import __version__
from tfs_proxy.observe import catalogue
from tfs_proxy.observe.begun_requests import all_under_way, under_way
from tfs_proxy.observe.metric import MeasuredMetric, MetricDescription, Points
from tfs_proxy.observe.process_usage import NeverFalling, ProcessUsage, usage, usage_of_tree
from tfs_proxy.run.front import Front
from tfs_proxy.run.process import ProcessState
from tfs_proxy.run.readiness import RUN_STATES, StartSteps
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.values.resources import available_resources
from tfs_proxy.wire.header_names import IN_FLIGHT

SUPERVISOR = "supervisor"
MetricSource = Callable[[], Iterable[MeasuredMetric]]


class Measured(Protocol):
    """The stack, or the stacks of a run, whose processes are measured."""

    @property
    def children(self) -> StackChildren:
        """The processes that serve now."""


class RunMetrics:
    """Measures the processes of ``measured`` whenever `/metrics` is asked for; ``sources`` add their own.

    ``steps`` are those of the run's start, ``front`` is its front if these are the metrics of a run.
    ``journals`` has the workers' notes of their requests, of which each worker answers ``threads_each`` at a
    time; None where the stacks of many models tell that.
    """

    def __init__(
        self,
        measured: Measured,
        journals: Path,
        *sources: MetricSource,
        front: Front | None = None,
        steps: StartSteps | None = None,
        threads_each: int | None = None,
    ) -> None:
        self._sources = sources
        self._measured = measured
        self._front = front
        self._steps = steps
        self._cpu_seconds: dict[str, NeverFalling] = defaultdict(NeverFalling)
        self._memory_limit = available_resources().memory_bytes
        self._journals = journals
        self._threads_each = threads_each

    def measure(self, headers: Mapping[str, str]) -> list[MeasuredMetric]:
        """All metrics now, for a scrape with these headers."""
        by_nginx = headers.get(IN_FLIGHT.lower(), "")
        if self._front is not None and by_nginx.isdecimal():
            count = self._front.in_flight(int(by_nginx))
        else:
            count = all_under_way(self._journals)
        readiness = self._measured.children.readiness
        captured = readiness.heartbeats.counts
        steps = (self._steps or readiness.steps).seconds()
        states = dict[tuple[str, ...], float]()
        load_seconds = dict[tuple[str, ...], float]()
        for servable, state in readiness.states.servables.items():
            version = "any" if servable.version is None else str(servable.version)
            labels = (servable.model, version, str(servable.instance))
            # Ours for a model without versions is a sentence.
            states[*labels, state.state if state.state.isupper() else "NOT_FOUND"] = 1.0
            if servable in readiness.states.load_seconds:
                load_seconds[labels] = readiness.states.load_seconds[servable]
        points: Mapping[MetricDescription, Points] = {
            catalogue.WORKER_STARTS: {(): captured.starts},
            catalogue.CAPTURE_RECORDS: {("written",): captured.captured, ("dropped",): captured.uncaptured},
            catalogue.BUILD_INFO: {(__version__, platform.python_version()): 1},
            catalogue.READY: {(): float(readiness.reason() is None)},
            catalogue.PHASE: {(state.of_run,): float(state is readiness.state) for state in RUN_STATES},
            catalogue.STARTUP_SECONDS: {(step,): seconds for step, seconds in steps.items()},
            catalogue.MEMORY_LIMIT: {} if self._memory_limit is None else {(): self._memory_limit},
        }
        return [
            *map(MeasuredMetric, points, points.values()),
            *self._processes({SUPERVISOR: os.getpid()}),
            *self._workers(self._threads_each),
            MeasuredMetric(catalogue.MODEL_STATE, states),
            MeasuredMetric(catalogue.MODEL_LOAD_SECONDS, load_seconds),
            MeasuredMetric(catalogue.REQUESTS_IN_FLIGHT, {(): max(count - 1, 0)}),  # without this scrape
            *(metric for source in self._sources for metric in source()),
        ]

    def measure_stack(self, threads_each: int) -> Iterator[MeasuredMetric]:
        """Only processes and workers now: the part that each of several stacks has for itself."""
        yield from self._processes({})
        yield from self._workers(threads_each)

    def _processes(self, alone: Mapping[str, int]) -> Iterator[MeasuredMetric]:
        """The children, each with all below it; and each process of ``alone``, which has pids, by itself."""
        stack = self._measured.children
        front = [] if self._front is None else self._front.in_start_order()
        children = [*stack.in_start_order(), *front]
        yield MeasuredMetric(
            catalogue.PROCESS_UP,
            {(child.name,): float(child.state is ProcessState.RUNNING) for child in children},
        )
        yield MeasuredMetric(
            catalogue.PROCESS_RESTARTS,
            {(name, how): times for (name, how), times in stack.deaths.counts.items()},
        )
        asked = [
            *((child.name, child.pid, usage_of_tree) for child in children),
            *((name, pid, usage) for name, pid in alone.items()),
        ]
        usages: dict[str, ProcessUsage] = {}
        for name, pid, usage_of in asked:
            usages[name] = usage_of(pid) if pid else ProcessUsage()
            if pid:
                self._cpu_seconds[name].note(pid, usages[name].cpu_seconds)
        yield MeasuredMetric(
            catalogue.PROCESS_MEMORY, {(name,): of.resident_bytes for name, of in usages.items()}
        )
        yield MeasuredMetric(
            catalogue.PROCESS_CPU, {(name,): self._cpu_seconds[name].value for name in usages}
        )
        yield MeasuredMetric(catalogue.PROCESS_FILES, {(name,): of.open_files for name, of in usages.items()})

    def _workers(self, threads_each: int | None) -> Iterator[MeasuredMetric]:
        heartbeats = self._measured.children.readiness.heartbeats
        alive = heartbeats.alive
        yield MeasuredMetric(catalogue.WORKERS, {(): len(alive)})
        yield MeasuredMetric(catalogue.WORKERS_CONFIGURED, {(): heartbeats.wanted})
        yield MeasuredMetric(catalogue.WORKERS_STUCK, {(): sum(state.hangs for state in alive.values())})
        if (unhealthy := heartbeats.unhealthy) is not None:
            yield MeasuredMetric(catalogue.SCRIPT_HEALTHY, {(heartbeats.model,): float(not unhealthy)})
        if threads_each is not None:
            yield MeasuredMetric(catalogue.WORKER_THREADS, {(): heartbeats.wanted * threads_each})
            busy = sum(under_way(self._journals / str(pid)) for pid in alive)
            yield MeasuredMetric(catalogue.WORKER_THREADS_BUSY, {(): busy})
            stuck = sum(state.stuck for state in alive.values())
            yield MeasuredMetric(catalogue.WORKER_THREADS_STUCK, {(): stuck})
