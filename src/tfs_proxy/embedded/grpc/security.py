"""gRPC's server credentials and channel arguments, from the flags that name them."""

import re
from typing import Any

import grpc

from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.errors import SettingsError
from tfs_proxy.protos import SSLConfig

_NUMBER = re.compile("[+-]?[0-9]{1,10}")
_INT32 = 2**31


def credentials(path: str) -> Any:
    """Server credentials of an SSL config file; None if no file is named.

    Raises SettingsError if it can't be read, holds no key and certificate, or is to verify clients
    without a CA for them.
    """
    if not path:
        return None
    config = read_text(path, SSLConfig())
    if not config.server_key or not config.server_cert:
        raise SettingsError(f"{path} needs server_key and server_cert, both as PEM.")
    if config.client_verify and not config.custom_ca:
        raise SettingsError(f"{path} needs custom_ca, as PEM, for client_verify.")
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        config.custom_ca.encode() or None,
        config.client_verify,
    )


def channel_arguments(text: str) -> list[tuple[str, int | str]]:
    """``--grpc_channel_arguments``: ``key=value`` pairs between commas; numbers of 32 bits are numbers.

    Raises SettingsError for a pair without ``=``.
    """
    arguments: list[tuple[str, int | str]] = []
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"--grpc_channel_arguments: {pair} is not key=value.")
        arguments.append((key.strip(), _number_or_text(value.strip())))
    return arguments


def _number_or_text(value: str) -> int | str:
    number = int(value) if _NUMBER.fullmatch(value) else _INT32
    return number if -_INT32 <= number < _INT32 else value
