"""Runs schemathesis against a server: so many cases, made of the document that the server itself gives.

``python schemathesis_run.py URL --cases 500``, in schemathesis' own environment. Every answer must be
described by the document: its status, media type, headers and body. A status from 500 on is a failure, except
503 and 504. With ``--model NAME PATH`` half of the cases name this model of many, which can be loaded from PATH.
It prints how many requests each operation got, and what their answers were; it ends with 1 if there is a failure.
"""

import argparse
import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis_bodies import register, with_types

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SERVER_ERRORS = 500
EXPECTED = (503, 504)
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
LENGTH = "Inference-Header-Content-Length"
SHARE_WITHOUT_BODY = 0.15
SECONDS = 30.0
ATTEMPTS = 5
"""Hypothesis ends early if it has made all different cases."""


def parsed(_context: Any, response: Any) -> Any:
    """JSON as Python reads it: what TF Serving writes for a number that is not finite is a number all the same."""
    return json.loads(response.content, parse_constant=lambda _: 0.0)


schemathesis.deserializer("application/json")(parsed)


def with_fitting_shapes(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request of the Open Inference Protocol whose inputs have as many values as their shapes say.

    A schema can't say so: almost every request that is made of one is refused.
    """
    inputs = body.get("inputs")
    if not isinstance(inputs, list):
        return body
    return {**body, "inputs": [_fitting(each) if isinstance(each, dict) else each for each in inputs]}


def _fitting(tensor: Mapping[str, Any]) -> Mapping[str, Any]:
    data = tensor.get("data")
    values = [value for value in data if isinstance(value, int | float)] if isinstance(data, list) else []
    named = {key: value for key, value in tensor.items() if key != "parameters"}
    return {**named, "shape": [len(values)], "data": values}


class OneOfMany:
    """A model that paths and bodies may name, and where it can be loaded from."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path

    def put_into(self, case: Any) -> None:
        parameters = dict(case.path_parameters or {})
        known_names = {"name": self._name, "model": self._name, "version": "1"}
        case.path_parameters = {key: known_names.get(key, value) for key, value in parameters.items()}
        if TARGET_MODEL in (case.headers or {}):
            case.headers[TARGET_MODEL] = f"{self._name}.tar.gz"
        if isinstance(case.body, dict):
            known = {"model_name": self._name, "url": self._path, "parameters": {"url": self._path}}
            case.body = {key: known.get(key, value) for key, value in case.body.items()}


def takes_a_model_away(operation: Any) -> bool:
    return operation.method.lower() == "delete" or str(operation.path).endswith("/unload")


class Run:
    def __init__(self, url: str, seed: int, model: OneOfMany | None = None) -> None:
        with urllib.request.urlopen(f"{url}/openapi.json") as answer:
            self.document = with_types(json.load(answer))
        register(self.document)
        schema = schemathesis.openapi.from_dict(self.document)
        schema.config.update(base_url=url)
        self.operations = [found.ok() for found in schema.get_all_operations()]
        self.counts: Counter[tuple[str, int]] = Counter()
        self.failures: list[str] = []
        self._session = requests.Session()
        self._seed = seed
        self._model = model

    def all(self, cases: int) -> None:
        """Spread the cases over the operations; most go to those with bodies."""
        with_body = [operation for operation in self.operations if operation.body]
        without = [operation for operation in self.operations if not operation.body]
        for_others = max(round(cases * SHARE_WITHOUT_BODY), len(without)) if with_body else cases
        shares = [
            (operation, total * (at + 1) // len(operations) - total * at // len(operations))
            for operations, total in ((with_body, cases - for_others), (without, for_others))
            for at, operation in enumerate(operations)
        ]
        for operation, share in sorted(shares, key=lambda each: takes_a_model_away(each[0])):
            self.one(operation, share)

    def one(self, operation: Any, cases: int) -> None:
        """So many cases of one operation, half of them against its own description if that is possible."""
        positive = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        negative = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        answer: Mapping[str, Any] = operation.definition.raw.get("responses", {}).get("200", {})
        accepts = st.sampled_from([None, *[name for name in answer.get("content", {}) if name != "*/*"]])
        sent = 0

        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=max(1, cases),
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(
            case=st.one_of(positive, positive, negative) if operation.body else positive,
            accept=accepts,
            data=st.data(),
        )
        def send(case: Any, accept: str | None, data: Any) -> None:
            nonlocal sent
            if sent < cases:
                self._send(operation, case, accept, data)
                sent += 1

        for _ in range(ATTEMPTS):
            if sent < cases:
                send()

    def _send(self, operation: Any, case: Any, accept: str | None, data: Any) -> None:
        headers = {} if accept is None else {"Accept": accept}
        if self._model is not None and data.draw(st.booleans()):
            self._model.put_into(case)
        if operation.path.endswith("/infer") and isinstance(case.body, dict) and data.draw(st.booleans()):
            case.body = with_fitting_shapes(case.body)
            case.headers = {name: value for name, value in (case.headers or {}).items() if name != LENGTH}
        if case.media_type == "application/octet-stream" and isinstance(case.body, bytes):
            end = case.body.rfind(b"}]}") + 3
            if end > 2 and data.draw(st.booleans()):
                headers[LENGTH] = str(end)
        response = case.call(session=self._session, headers=headers, timeout=SECONDS)
        self.counts[operation.label, response.status_code] += 1
        if response.status_code >= SERVER_ERRORS and response.status_code not in EXPECTED:
            self._fail(case, response, f"status {response.status_code}")
            return
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            self._fail(case, response, "; ".join(str(each) for each in group.exceptions))

    def _fail(self, case: Any, response: Any, what: str) -> None:
        command = case.as_curl_command()
        self.failures.append(f"{what}\n{response.content[:300]!r}\n{command[:600]}\n")

    def report(self) -> None:
        """Print a line for each operation, and the first failures."""
        for label in sorted({label for label, _ in self.counts}):
            statuses = {status: count for (name, status), count in self.counts.items() if name == label}
            print(f"{sum(statuses.values()):6d} {label}: {dict(sorted(statuses.items()))}")
        for failure in self.failures[:20]:
            print(failure)
        total = self.counts.total()
        print(f"{total} cases of {len(self.operations)} operations, {len(self.failures)} failures")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", nargs=2, metavar=("NAME", "PATH"))
    arguments = parser.parse_args()
    run = Run(arguments.url, arguments.seed, OneOfMany(*arguments.model) if arguments.model else None)
    run.all(arguments.cases)
    run.report()
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
