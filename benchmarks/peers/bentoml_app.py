"""Serves one SavedModel by BentoML, in the way of its documentation: MODEL=... bentoml serve bentoml_app:Service."""

import os
from pathlib import Path

import bentoml
import numpy as np
import tensorflow as tf


@bentoml.service
class Service:
    def __init__(self):
        self.loaded = tf.saved_model.load(os.environ["MODEL"])
        self.model = self.loaded.signatures["serving_default"]

    @bentoml.api
    def predict(self, instances: np.ndarray) -> np.ndarray:
        return self.model(tf.constant(instances, tf.float32))["y"].numpy()

    @bentoml.api
    def classify(self, image: Path) -> np.ndarray:
        return self.model(tf.constant([image.read_bytes()]))["y"].numpy()
