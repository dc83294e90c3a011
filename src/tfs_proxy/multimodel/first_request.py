"""The request that start-up suggests when the port serves, before any model is loaded."""

from tfs_proxy.wire.header_names import TARGET_MODEL


def ready_line(url: str, *, loads_on_demand: bool) -> str:
    """Says where requests go, and a curl command: the load of a model, or a request that loads its own."""
    if loads_on_demand:
        return (
            f"ready: {url}  try: curl -H '{TARGET_MODEL}: NAME.tar.gz' "
            f"-H 'Content-Type: application/json' -d '{{\"instances\": [1.0]}}' {url}/invocations"
        )
    return (
        f"ready: {url}, without a model  try: curl -H 'Content-Type: application/json' "
        f'-d \'{{"model_name": "NAME", "url": "/PATH/TO/MODEL"}}\' {url}/models'
    )
