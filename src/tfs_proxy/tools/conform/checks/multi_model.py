"""The group ``multi-model``: the calls by which SageMaker loads, lists, invokes and unloads models.

They are one story, told in order: each check does what the ones before it have not done yet.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from threading import Thread
from urllib.parse import quote

from tfs_proxy.tools.conform.busy import said
from tfs_proxy.tools.conform.check import CheckGroup, NotRun, Occasion, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.checks.ping import refuse_bad_ping
from tfs_proxy.tools.conform.judging import PING, Judging
from tfs_proxy.tools.conform.occasions import MODEL_NAMES
from tfs_proxy.tools.conform.raw_http import RawReply, RawRequest
from tfs_proxy.tools.conform.target import PING_SECONDS, Capability
from tfs_proxy.wire.media_types import JSON

GROUP = CheckGroup("multi-model", RuleSource.MULTI_MODEL, Occasion.MULTI_MODEL)
FIRST, SECOND = MODEL_NAMES
MISSING = "0000000000000000000000000000000000000000"
LOAD_SECONDS = 360.0
"""SageMaker's limit for a load: docs/reference/sagemaker.md, Multi-model endpoints."""
BETWEEN_PINGS = 0.05
MOST_PAGES = 100


@GROUP.must("Ping answers 200 with no model loaded.")
def ping_without_models(judging: Judging) -> None:
    judging.expect_ready("with SAGEMAKER_MULTI_MODEL=true")


@GROUP.must('GET /models answers {"models": []} with no model loaded.')
def list_empty(judging: Judging) -> None:
    listed = _listed(judging)
    if listed:
        raise Violation(expected='{"models": []}', got=json.dumps(listed))


@GROUP.must("GET of a model that is not loaded answers 404.")
def get_unknown(judging: Judging) -> None:
    _expect_status(judging.get(f"/models/{MISSING}"), HTTPStatus.NOT_FOUND, "GET /models/NAME")


@GROUP.must("Invoke of a model that is not loaded answers 404.")
def invoke_unknown(judging: Judging) -> None:
    _expect_status(_invoke(judging, MISSING), HTTPStatus.NOT_FOUND, "POST /models/NAME/invoke")


@GROUP.must("DELETE of a model that is not loaded answers 404.")
def unload_unknown(judging: Judging) -> None:
    _expect_status(_unload(judging, MISSING), HTTPStatus.NOT_FOUND, "DELETE /models/NAME")


@GROUP.must("A load from a folder that does not exist is not answered with 2xx.")
def load_missing(judging: Judging) -> str:
    reply = _load(judging, MISSING)
    if reply.is_good:
        raise Violation(expected="4xx or 5xx", got=reply.shown(), mend="Answer 200 once it can be invoked.")
    return f"answered with {reply.status}"


@GROUP.must("POST /models answers 200.")
def load(judging: Judging) -> None:
    _require_model(judging)
    _expect_status(_load(judging, FIRST), HTTPStatus.OK, "POST /models")


@GROUP.must("Ping answers within 2 s while a model loads.", RuleSource.PING)
def ping_while_loading(judging: Judging) -> str:
    _require_loaded(judging, FIRST)
    _unload(judging, FIRST)
    replies: list[RawReply | str] = []
    loading = Thread(target=lambda: replies.append(said(lambda: _load(judging, FIRST))))
    loading.start()
    pings = [_timed_ping(judging)]
    while loading.is_alive():
        pings.append(_timed_ping(judging))
        loading.join(BETWEEN_PINGS)
    loading.join()
    for ping in pings:
        refuse_bad_ping(ping, "while a model loads")
    return f"{len(pings)} pings"


@GROUP.must("A second load of a model answers 409.")
def load_again(judging: Judging) -> None:
    _require_loaded(judging, FIRST)
    _expect_status(_load(judging, FIRST), HTTPStatus.CONFLICT, "POST /models of a loaded model")


@GROUP.must("GET /models has modelName and modelUrl of each loaded model.")
def list_(judging: Judging) -> None:
    _require_loaded(judging, FIRST)
    _expect_listed(judging, {FIRST})


@GROUP.must("nextPageToken, if there is one, lists the other models, to an end.")
def list_pages(judging: Judging) -> str:
    _require_loaded(judging, FIRST)
    _require_loaded(judging, SECOND)
    pages = _pages(judging)
    names = [model.get("modelName") for page in pages for model in page]
    if sorted(map(str, names)) != sorted({str(name) for name in names}):
        raise Violation(expected="each model once", got=", ".join(map(str, names)))
    return f"{len(pages)} pages"


@GROUP.must("GET of a loaded model answers its modelName and modelUrl.")
def get(judging: Judging) -> None:
    _require_loaded(judging, FIRST)
    reply = judging.get(f"/models/{FIRST}")
    expected = _entry(judging, FIRST)
    described = reply.json()
    # AWS's Multi Model Server answers a list of one here.
    described = described[0] if isinstance(described, list) and described else described
    if (
        reply.status != HTTPStatus.OK
        or not isinstance(described, dict)
        or not expected.items() <= described.items()
    ):
        raise Violation(expected=json.dumps(expected), got=reply.shown(300))


@GROUP.must("POST /models/NAME/invoke answers a good request with 2xx.")
def invoke(judging: Judging) -> None:
    _require_loaded(judging, FIRST)
    expect_good(_invoke(judging, FIRST))


@GROUP.must("Two models are loaded, listed and answer side by side.")
def two_models(judging: Judging) -> None:
    for name in MODEL_NAMES:
        _require_loaded(judging, name)
    _expect_listed(judging, set(MODEL_NAMES))
    for name in MODEL_NAMES:
        expect_good(_invoke(judging, name))


@GROUP.must("DELETE of a loaded model answers 200.")
def unload(judging: Judging) -> None:
    _require_loaded(judging, SECOND)
    _expect_status(_unload(judging, SECOND), HTTPStatus.OK, "DELETE of a loaded model")


@GROUP.must("After it, get and invoke answer 404 and the list lacks it.")
def unloaded_is_gone(judging: Judging) -> None:
    _require_unloaded(judging, SECOND)
    _expect_status(judging.get(f"/models/{SECOND}"), HTTPStatus.NOT_FOUND, "GET of an unloaded model")
    _expect_status(_invoke(judging, SECOND), HTTPStatus.NOT_FOUND, "invoke of an unloaded model")
    if any(model.get("modelName") == SECOND for page in _pages(judging) for model in page):
        raise Violation(expected=f"a list without {SECOND}", got="it is still in the list")


@GROUP.must("It can be loaded again.")
def load_after_unload(judging: Judging) -> None:
    _require_unloaded(judging, SECOND)
    _expect_status(_load(judging, SECOND), HTTPStatus.OK, "POST /models of an unloaded model")


@GROUP.should("The image has the label com.amazonaws.sagemaker.capabilities.multi-models=true.")
def label(judging: Judging) -> None:
    _ = judging.container
    judging.expect_label(Capability.MULTI_MODEL, "CreateModel asks for it.")


def _load(judging: Judging, name: str) -> RawReply:
    body = json.dumps({"model_name": name, "url": _url(judging, name)}).encode()
    return judging.ask(RawRequest("POST", "/models", {"Content-Type": JSON}, body), LOAD_SECONDS)


def _unload(judging: Judging, name: str) -> RawReply:
    return judging.ask(RawRequest("DELETE", f"/models/{name}"), LOAD_SECONDS)


def _invoke(judging: Judging, name: str) -> RawReply:
    if judging.known.good is None:
        raise NotRun("no good request is known: use --requests")
    return judging.ask(judging.request(judging.known.good, path=f"/models/{name}/invoke"))


def _url(judging: Judging, name: str) -> str:
    _ = judging.container
    return judging.target.model_url(judging.order, name)


def _entry(judging: Judging, name: str) -> Mapping[str, str]:
    return {"modelName": name, "modelUrl": _url(judging, name)}


def _require_model(judging: Judging) -> None:
    if judging.options.model is None:
        raise NotRun("no model was given to load: use --model")


def _require_loaded(judging: Judging, name: str) -> None:
    """Loads the model if it is not loaded. Raises NotRun if that fails."""
    _require_model(judging)
    reply = _load(judging, name)
    if not reply.is_good and judging.get(f"/models/{name}").status != HTTPStatus.OK:
        raise NotRun(f"the model could not be loaded: {reply.shown()}")


def _require_unloaded(judging: Judging, name: str) -> None:
    _require_loaded(judging, name)
    reply = _unload(judging, name)
    if not reply.is_good:
        raise NotRun(f"the model could not be unloaded: {reply.shown()}")


def _timed_ping(judging: Judging) -> RawReply | str:
    return said(lambda: judging.ask(RawRequest(path=PING), PING_SECONDS))


def _listed(judging: Judging, token: str | None = None) -> list[Mapping[str, object]]:
    return _page(judging, token)[0]


def _page(judging: Judging, token: str | None) -> tuple[list[Mapping[str, object]], str | None]:
    reply = judging.get("/models" + (f"?next_page_token={quote(token)}" if token else ""))
    page = reply.json()
    models = page.get("models") if isinstance(page, dict) else None
    if reply.status != HTTPStatus.OK or not isinstance(page, dict) or not isinstance(models, list):
        raise Violation(expected='200 {"models": [..]}', got=reply.shown())
    if not all(isinstance(model, dict) for model in models):
        raise Violation(expected='{"modelName": .., "modelUrl": ..} for each model', got=reply.shown())
    following = page.get("nextPageToken")
    return models, str(following) if following else None


def _pages(judging: Judging) -> list[list[Mapping[str, object]]]:
    pages: list[list[Mapping[str, object]]] = []
    token = None
    while len(pages) < MOST_PAGES:
        models, token = _page(judging, token)
        pages.append(models)
        if token is None:
            return pages
    raise Violation(expected="a last page without nextPageToken", got=f"none in {MOST_PAGES} pages")


def _expect_listed(judging: Judging, names: set[str]) -> None:
    found = [dict(model) for page in _pages(judging) for model in page]
    for name in names:
        expected = _entry(judging, name)
        if not any(expected.items() <= model.items() for model in found):
            raise Violation(expected=json.dumps(expected), got=json.dumps(found)[:300])


def _expect_status(reply: RawReply, status: int, call: str) -> None:
    if reply.status != status:
        raise Violation(expected=f"{status} for {call}", got=reply.shown())
