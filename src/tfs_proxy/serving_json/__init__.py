"""TF Serving's JSON: requests and answers, numbers and text, for whoever sends or reads it."""
