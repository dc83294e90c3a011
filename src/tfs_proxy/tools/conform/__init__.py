"""The contract test of any SageMaker container: checks -> a target that is started -> results."""
