"""The group ``batch``: what a transform job asks, sends and sets."""

import json
from http import HTTPStatus

from msgspec.structs import replace

from tfs_proxy.tools.conform.check import CheckGroup, NotRun, Occasion, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import (
    expect_all_good,
    expect_chunks_read,
    expect_good,
    expect_taken,
)
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.raw_http import RawReply
from tfs_proxy.tools.conform.requests_file import KnownRequest
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.media_types import CSV, JSON_LINES

GROUP = CheckGroup("batch", RuleSource.BATCH)
PATH = "/execution-parameters"
CONCURRENCY, STRATEGY, PAYLOAD = "MaxConcurrentTransforms", "BatchStrategy", "MaxPayloadInMB"
STRATEGIES = ("MULTI_RECORD", "SINGLE_RECORD")
MOST_MEGABYTES = 100
MOST_AT_ONCE = 64
"""Limit of simultaneous requests of this program, whatever the container says."""
LINE_TYPES = frozenset({CSV, JSON_LINES, "application/jsonl", "application/x-ndjson"})


@GROUP.must("GET /execution-parameters is answered with 200 or 4xx.")
def execution_parameters(judging: Judging) -> str:
    reply = judging.get_once(PATH)
    if reply.status != HTTPStatus.OK and not 400 <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:  # noqa: PLR2004 - 4xx
        raise Violation(expected="200, or 404 if there is no such path", got=reply.shown())
    return f"answered with {reply.status}"


@GROUP.must("An answer of 200 to it is a JSON object.")
def execution_parameters_json(judging: Judging) -> str:
    reply = _answered(judging)
    if not isinstance(reply.json(), dict):
        raise Violation(
            expected="a JSON object", got=reply.shown(), mend="Answer 404 if you have no wishes for a job."
        )
    return reply.shown()


@GROUP.must("MaxConcurrentTransforms is an integer of at least 0.")
def max_concurrent_transforms(judging: Judging) -> str:
    value = _value(judging, CONCURRENCY)
    if not _is_integer(value) or value < 0:
        raise Violation(expected="an integer of at least 0", got=json.dumps(value))
    return str(value)


@GROUP.must("BatchStrategy is MULTI_RECORD or SINGLE_RECORD.")
def batch_strategy(judging: Judging) -> str:
    value = _value(judging, STRATEGY)
    if str(value) not in STRATEGIES:
        raise Violation(expected=" or ".join(STRATEGIES), got=json.dumps(value))
    return str(value)


@GROUP.must("MaxPayloadInMB is an integer from 0 to 100.")
def max_payload(judging: Judging) -> str:
    value = _value(judging, PAYLOAD)
    if not _is_integer(value) or not 0 <= value <= MOST_MEGABYTES:
        raise Violation(expected=f"an integer from 0 to {MOST_MEGABYTES}", got=json.dumps(value))
    return str(value)


@GROUP.must("MaxPayloadInMB times MaxConcurrentTransforms is at most 100.")
def payloads_at_once(judging: Judging) -> str:
    payload, concurrency = _integer(judging, PAYLOAD), _integer(judging, CONCURRENCY)
    if payload * concurrency > MOST_MEGABYTES:
        raise Violation(
            expected=f"at most {MOST_MEGABYTES} MB at once",
            got=f"{payload} MB times {concurrency}",
            mend="Divide 100 by the number of requests at once.",
        )
    return f"{payload} MB times {concurrency}"


@GROUP.must("A body of the MaxPayloadInMB that it answers is taken.")
def declared_payload(judging: Judging) -> str:
    payload = _integer(judging, PAYLOAD)
    if not 0 < payload <= MOST_MEGABYTES:
        raise NotRun(f"{PAYLOAD} is {payload}")
    return expect_taken(judging, payload * MEGABYTE)


@GROUP.must("With a MaxPayloadInMB of 0, bodies in chunks are read.")
def declared_chunks(judging: Judging) -> None:
    payload = _integer(judging, PAYLOAD)
    if payload != 0:
        raise NotRun(f"{PAYLOAD} is {payload}")
    expect_chunks_read(judging)


@GROUP.must("As many requests at once as MaxConcurrentTransforms are all answered.")
def declared_concurrency(judging: Judging) -> str:
    return expect_all_good(judging, max(1, min(_integer(judging, CONCURRENCY), MOST_AT_ONCE)))


@GROUP.should("A body of 100 MB is taken.")
def body_of_100_mb(judging: Judging) -> str:
    return expect_taken(judging, MOST_MEGABYTES * MEGABYTE)


@GROUP.must("It starts and answers with SAGEMAKER_BATCH and the settings of a job.", occasion=Occasion.BATCH)
def environment(judging: Judging) -> None:
    judging.expect_ready("with SAGEMAKER_BATCH=true")
    if judging.known.good:
        expect_good(judging.post(judging.known.good))


@GROUP.should("There are as many lines in the answer as records in the request.")
def record_for_record(judging: Judging) -> str:
    records = _records(judging)
    reply = expect_good(judging.post(replace(records, accept=records.accept or records.content_type)))
    sent, came = _lines(records.body), _lines(reply.body)
    if sent != came:
        raise Violation(
            expected=f"{sent} lines, one for each record",
            got=f"{came} lines: {reply.shown()}",
            mend="One line for each record: else the job can't join answers to records.",
        )
    return f"{sent} records"


@GROUP.should("Accept equal to Content-Type is answered in that type.")
def join(judging: Judging) -> None:
    records = _records(judging)
    reply = expect_good(judging.post(replace(records, accept=records.media_type)))
    if reply.content_type != records.media_type:
        raise Violation(expected=records.media_type, got=reply.content_type or "no Content-Type")


def _answered(judging: Judging) -> RawReply:
    reply = judging.get_once(PATH)
    if reply.status != HTTPStatus.OK:
        raise NotRun(f"GET {PATH} is answered with {reply.status}")
    return reply


def _value(judging: Judging, name: str) -> int:
    """Raises NotRun if /execution-parameters does not have the value."""
    parameters = _answered(judging).json()
    if not isinstance(parameters, dict) or name not in parameters:
        raise NotRun(f"GET {PATH} does not answer {name}")
    value: int = parameters[name]
    return value


def _integer(judging: Judging, name: str) -> int:
    value = _value(judging, name)
    if not _is_integer(value):
        raise NotRun(f"{name} is not an integer")
    return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _records(judging: Judging) -> KnownRequest:
    records = judging.known.records
    if records is None:
        raise NotRun("the requests file has no `records`")
    if records.media_type not in LINE_TYPES:
        raise NotRun(f"records of {records.media_type} are not lines")
    return records


def _lines(body: bytes) -> int:
    return len([line for line in body.splitlines() if line.strip()])
