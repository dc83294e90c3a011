"""The script of the second stage: the model server's numbers in the form of SageMaker's Linear Learner."""

import json


def output_handler(response, context):  # noqa: ARG001
    if response.status_code != 200:
        return response.content, "application/json"
    scores = [{"score": score} for score in response.json()["predictions"]]
    return json.dumps({"predictions": scores}), "application/json"
