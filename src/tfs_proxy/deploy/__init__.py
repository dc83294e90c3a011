"""From a trained model to an endpoint on SageMaker: the requests, the upload and the calls."""
