"""SageMaker's endpoint for clients on this machine: `sagemaker-runtime` in front of one container or many."""
