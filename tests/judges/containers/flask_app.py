"""A container as AWS's guide to your own ones shapes it: Flask behind gunicorn, CSV in and CSV out."""

import csv
import io
import pathlib

from flask import Flask, Response, request

MODEL = pathlib.Path("/opt/ml/model")

app = Flask(__name__)


@app.get("/ping")
def ping() -> Response:
    return Response("\n", status=200, mimetype="application/json")


@app.post("/invocations")
def invocations() -> Response:
    if not request.content_type or not request.content_type.startswith("text/csv"):
        return Response("This predictor only supports CSV data", status=415, mimetype="text/plain")
    try:
        rows = [
            [float(cell) for cell in row] for row in csv.reader(io.StringIO(request.get_data(as_text=True)))
        ]
    except ValueError as error:
        return Response(str(error), status=400, mimetype="text/plain")
    return Response("".join(f"{sum(row)}\n" for row in rows), status=200, mimetype="text/csv")
