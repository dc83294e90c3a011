"""From a batch to its answer: connections, retries, bad records and the serving stack."""
