"""What a script gives as a body, or as a piece of one -> bytes."""

from tfs_proxy.errors import ScriptFailure


def encoded(body: object, function: str, expected: str) -> bytes:
    """``body`` as bytes, text as UTF-8. Raises ScriptFailure for anything that is neither."""
    match body:
        case bytes():
            return body
        case str():
            try:
                return body.encode()
            except UnicodeEncodeError as error:
                raise ScriptFailure(
                    f"{function} returned text that UTF-8 can't encode: {error.reason}"
                ) from None
        case bytearray() | memoryview():
            return bytes(body)
        case _:
            raise ScriptFailure(f"{function} returned {named(body)}: {expected}")


def named(value: object) -> str:
    """``value`` as an error text calls it."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
