"""The first stage, a script of SageMaker's scikit-learn container: run, it trains; imported, it serves.

It turns rows of an abalone into ten features: seven numbers, imputed and scaled, and the sex in three.
"""

import argparse
import csv
import json
import os
from io import StringIO
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

NUMBERS = [
    "length",
    "diameter",
    "height",
    "whole_weight",
    "shucked_weight",
    "viscera_weight",
    "shell_weight",
]
FEATURES = ["sex", *NUMBERS]
LABEL = "rings"
TYPES = {"sex": str, **dict.fromkeys([*NUMBERS, LABEL], np.float64)}


def make_preprocessor():
    """Medians for missing numbers, all of them scaled; one feature for each sex."""
    numbers = Pipeline([("imputer", SimpleImputer(strategy="median")), ("scaler", StandardScaler())])
    sexes = Pipeline(
        [
            ("imputer", SimpleImputer(strategy="constant", fill_value="missing")),
            ("onehot", OneHotEncoder(handle_unknown="ignore")),
        ]
    )
    return ColumnTransformer([("num", numbers, NUMBERS), ("cat", sexes, ["sex"])], remainder="drop")


def train(channel, model_dir):
    """Fit on every file of the channel, and save what was fitted."""
    files = sorted(Path(channel).iterdir())
    if not files:
        raise ValueError(f"There are no files in {channel}.")
    tables = [pd.read_csv(name, header=None, names=[*FEATURES, LABEL], dtype=TYPES) for name in files]
    preprocessor = make_preprocessor().fit(pd.concat(tables))
    Path(model_dir).mkdir(parents=True, exist_ok=True)
    joblib.dump(preprocessor, Path(model_dir) / "model.joblib")


def model_fn(model_dir):
    return joblib.load(Path(model_dir) / "model.joblib")


def input_fn(input_data, content_type):
    """Rows with the label or without it, by how many columns they have."""
    if content_type != "text/csv":
        raise ValueError(f"{content_type} is not supported, only text/csv")
    names = {len(FEATURES): FEATURES, len(FEATURES) + 1: [*FEATURES, LABEL]}
    widths = [len(row) for row in csv.reader(StringIO(input_data)) if row]
    for number, width in enumerate(widths, start=1):
        if width not in names or width != widths[0]:
            raise ValueError(
                f"row {number} has {width} columns: "
                f"{len(FEATURES)} are wanted in every row, or {len(FEATURES) + 1} with {LABEL}"
            )
    table = pd.read_csv(StringIO(input_data), header=None, skipinitialspace=True)
    table.columns = names[widths[0]]
    return table


def predict_fn(input_data, model):
    """The features; the label, if there is one, comes first."""
    features = model.transform(input_data)
    if LABEL in input_data:
        return np.insert(features, 0, input_data[LABEL], axis=1)
    return features


def output_fn(prediction, accept):
    """JSON for the next stage of a pipeline, CSV for a batch transform."""
    from sagemaker_containers.beta.framework import encoders, worker

    if accept == "application/json":
        rows = [{"features": row} for row in prediction.tolist()]
        return worker.Response(json.dumps({"instances": rows}), mimetype=accept)
    if accept == "text/csv":
        return worker.Response(encoders.encode(prediction, accept), mimetype=accept)
    raise RuntimeError(f"{accept} is not supported by this script")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-data-dir", default=os.environ["SM_OUTPUT_DATA_DIR"])
    parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
    arguments = parser.parse_args()
    train(arguments.train, arguments.model_dir)
