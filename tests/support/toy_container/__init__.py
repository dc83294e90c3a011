"""A container of the standard library that keeps SageMaker's contract, with a switch for each planted fault."""
