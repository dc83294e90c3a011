"""TF Serving's JSON: requests and answers, numbers and text, for every room that sends or reads it."""
