"""One machine of a job that several share: a serving stack, and an engine that gets object after object."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines.local import Begin, Engine, engine_of
from tfs_proxy.transform.failures import RunStopped
from tfs_proxy.transform.job import Effort
from tfs_proxy.transform.ordered_output import Passage
from tfs_proxy.transform.request import Request, endpoint_of, served_content, target_of
from tfs_proxy.transform.send.connection import Endpoint
from tfs_proxy.transform.send.stack import execution_parameters
from tfs_proxy.transform.stores.interface import InputObject
from tfs_proxy.transform.stores.local import local_object
from tfs_proxy.transform.stores.s3 import S3_SCHEME
from tfs_proxy.transform.tally import Counts, Expected, Report, Tally


@dataclass(frozen=True, slots=True)
class Ability:
    """What a machine says of itself once it is ready; ``content`` stands for the model that it serves."""

    effort: Effort
    content: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What all machines of a run keep to, so that it does not matter which of them does an object."""

    mark: str
    strategy: str
    payload_bytes: int | None


@dataclass(frozen=True, slots=True)
class Witness:
    """What a machine must be able to see: one of the inputs, and a file in an output folder."""

    item: InputObject
    sign: Path | None

    def check(self) -> None:
        """Raise SettingsError where this machine sees other folders than the one that made it."""
        item = self.item
        if not item.address.startswith(S3_SCHEME) and not _sees(item):
            raise SettingsError(f"The input {item.address} is not to be seen there: {_SHARE}")
        if self.sign is not None and not self.sign.is_file():
            raise SettingsError(f"The output {self.sign.parent} is not to be seen there: {_SHARE}")


_SHARE = "give s3:// addresses, or folders that all machines share."


def _sees(item: InputObject) -> bool:
    with contextlib.suppress(SettingsError):
        return local_object(Path(item.address), item.name).version == item.version
    return False


class Node:
    """Its stack starts with the first call; `close` ends it. ``name`` tells the run's machines apart."""

    def __init__(self, request: Request, name: str, witness: Witness) -> None:
        self._request = request
        self._name = name
        self._witness = witness
        self._stack = contextlib.ExitStack()
        self._endpoint: Endpoint | None = None
        self._ability: Ability | None = None
        self._feed: Feed | None = None
        self._lock = threading.Lock()

    def open(self) -> Ability:
        """Serve the model, or find the endpoint. Raises StopServing."""
        with self._lock:
            return self._opened()[0]

    def transform(self, item: InputObject, terms: Terms) -> "Future[Report]":
        """Begin with ``item`` as soon as there is room; the report comes when it is written or failed.

        Raises StopServing, at once or in place of the report, where this machine can't go on.
        """
        with self._lock:
            ability, endpoint = self._opened()
            if self._feed is None:
                self._feed = self._fed(ability, endpoint, terms)
            return self._feed.add(item)

    def begun(self) -> Counts:
        """What the objects that are on their way have come to."""
        return self._feed.begun() if self._feed else Counts()

    def close(self) -> None:
        """Give up what is on its way, nothing of which is left, and end the stack."""
        with self._lock:
            if self._feed is not None:
                self._feed.close()
            self._stack.close()

    def _opened(self) -> tuple[Ability, Endpoint]:
        if self._ability is None or self._endpoint is None:
            self._witness.check()
            content = served_content(self._request)
            self._endpoint = self._stack.enter_context(endpoint_of(self._request))
            effort = Effort.of(self._request.job, execution_parameters(self._endpoint))
            self._ability = Ability(effort, content)
        return self._ability, self._endpoint

    def _fed(self, ability: Ability, endpoint: Endpoint, terms: Terms) -> "Feed":
        effort = replace(ability.effort, strategy=terms.strategy, payload_bytes=terms.payload_bytes)
        target = target_of(self._request, self._name)
        requests = Tally(Expected(0, 0))

        def begin(item: InputObject, tally: Tally, release: Release, ended: Ended) -> Passage:
            return Passage(item, target, terms.mark, tally, release, ended)

        return Feed(lambda each: engine_of(self._request, effort, endpoint, requests, each), begin, requests)


Release = Callable[[], None]
Ended = Callable[[Passage], None]


@dataclass(frozen=True, slots=True)
class _Begun:
    """An object on its way."""

    tally: Tally
    report: "Future[Report]"


class Feed:
    """An engine in a thread of its own that gets objects one by one, and a tally of each."""

    def __init__(
        self,
        make: Callable[[Begin], Engine],
        begin: Callable[[InputObject, Tally, Release, Ended], Passage],
        requests: Tally,
    ) -> None:
        self._begin = begin
        self._requests = requests
        self._items: SimpleQueue[InputObject | None] = SimpleQueue()
        self._begun: dict[str, _Begun] = {}
        self._why: BaseException | None = None
        self._lock = threading.Lock()
        self._engine = make(self._passage)
        self._thread = threading.Thread(target=self._run, name="feed")
        self._thread.start()

    def add(self, item: InputObject) -> "Future[Report]":
        """Let it be done; the report of it, and of requests since the report before."""
        begun = _Begun(Tally(Expected(0, 0)), Future())
        with self._lock:
            if self._why is not None:
                begun.report.set_exception(self._why)
            else:
                self._begun[item.name] = begun
                self._items.put(item)
        return begun.report

    def begun(self) -> Counts:
        """The sum of what is on its way."""
        with self._lock:
            counts = [each.tally.counts for each in self._begun.values()]
        return Counts(records=sum(each.records for each in counts), bytes=sum(each.bytes for each in counts))

    def close(self) -> None:
        """Give up what is on its way."""
        self._engine.stop()
        self._items.put(None)
        self._thread.join()

    def _passage(self, item: InputObject, release: Release) -> Passage:
        return self._begin(item, self._begun[item.name].tally, release, self._ended)

    def _ended(self, passage: Passage) -> None:
        if passage.was_stopped:  # the engine says why when it ends, which it does for want of a next object
            self._items.put(None)
            return
        with self._lock:
            begun = self._begun.pop(passage.item.name)
        whole = Tally(Expected(0, 0))
        whole.merge(begun.tally.taken())
        whole.merge(self._requests.taken())
        begun.report.set_result(whole.taken())

    def _run(self) -> None:
        why: BaseException = RunStopped("the run was stopped")
        try:
            self._engine.run(iter(self._items.get, None))
        except BaseException as error:  # noqa: BLE001 - every report hears of it
            why = error
        with self._lock:
            self._why = why
            for each in self._begun.values():
                each.report.set_exception(why)
            self._begun.clear()
