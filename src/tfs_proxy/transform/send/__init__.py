"""Sends batches and handles their answers: connections, retries, bad records, the serving stack."""
