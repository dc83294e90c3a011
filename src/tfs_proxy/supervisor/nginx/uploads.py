"""The part of nginx.conf that keeps large bodies from filling the disk on which they wait: pure.

nginx stores a body that is larger than its buffer until it is whole. It has no least rate for a body, only
a time between two reads; so the number of such bodies is limited.
"""

TOO_MANY_STATUS = 590
"""A status that nobody else gives, between ``limit_conn`` and the answer to the client."""

STALLED_SECONDS = 15
"""Between two reads of a body: longer than a network's hiccup, and a stalled upload soon makes room."""

DISK_SHARE = 0.8
"""What bodies may take of the free disk; the rest is for answers to slow readers."""

MOST = 65_535
"""nginx's own limit of the number."""

ERROR_PAGE = f"error_page {TOO_MANY_STATUS} =503 /.refused/uploads;"


def maximum(free_bytes: int, body_bytes: int) -> int:
    """How many bodies of ``body_bytes`` the disk has room for; one at least."""
    return max(1, min(int(free_bytes * DISK_SHARE) // body_bytes, MOST))


def limit(buffer_mb: int) -> str:
    """What counts as a large body, for the http block: by its Content-Length, or chunks of any number.

    ``buffer_mb`` is nginx's buffer, of which it takes a quarter more; at most 7.
    """
    least_mb = buffer_mb * 5 // 4
    return f"""map "$content_length $http_transfer_encoding" $large_body {{
        default "";
        "~^0*(?:[{least_mb}-9][0-9]{{6}}|[1-9][0-9]{{7,}}) " 1;
        "~ ." 1;
    }}
    limit_conn_zone $large_body zone=large_bodies:32k;
    limit_conn_status {TOO_MANY_STATUS};
    limit_conn_log_level warn;"""
