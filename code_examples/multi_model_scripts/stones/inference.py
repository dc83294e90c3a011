"""Kilograms in, stones out, as CSV or JSON: only the answer has something that no conversion gives, its unit."""

from tfs_proxy import Context, ModelResponse


def output_handler(response: ModelResponse, context: Context) -> tuple[str, str]:  # noqa: ARG001
    """One line for all."""
    return " ".join(f"{number:.1f} st" for number in response.json()["predictions"]), "text/plain"
