"""Store of sessions: an SQLite file that all workers of a run share, so that any of them knows any session.

A session is a row with its end, its state a row for each key. Every change is one transaction: a worker that
is killed leaves all of it or nothing, and of two at once the later one counts. The file lies in a folder of
the run's own; ids are only ever values in it, never parts of a path.
"""

import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import Struct

from tfs_proxy.values.deployment import SessionOptions
from tfs_proxy.values.errors import SessionFailure, UnknownSession
from tfs_proxy.values.memory import KILOBYTE, MEGABYTE
from tfs_proxy.wire.header_names import NEW_SESSION, NEW_SESSION_ID, SESSION_ID

BUSY_SECONDS = 5.0
"""Longest wait for the transaction of another worker, each of which takes less than a millisecond."""

SWEEP_SECONDS = 60.0
READS, WRITES = "DEFERRED", "IMMEDIATE"
ID_BYTES = 16
_ID = re.compile(r"[0-9a-f]{32}")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, model TEXT NOT NULL, expires INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_end ON sessions (expires);
CREATE TABLE IF NOT EXISTS entries (
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE, key TEXT NOT NULL, size INTEGER NOT NULL,
    value NOT NULL, PRIMARY KEY (session, key));
"""
UNKNOWN = (
    "There is no such session: it has expired, was closed, or was never opened here. "
    f"Open one with {SESSION_ID}: {NEW_SESSION}."
)
MALFORMED = (
    f"{SESSION_ID} must be {NEW_SESSION}, or an id as {NEW_SESSION_ID} had it: 32 characters, 0-9 and a-f."
)


class OpenSession(Struct, frozen=True):
    """Session that is open: its id, and its end."""

    id: str
    expires: datetime


class SessionStore:
    """Sessions of ``model`` in the file of ``options``; one a worker, used by all its threads.

    The file is opened by the first call, in the process that makes it. All methods raise SessionFailure if
    the store can't be used, and those with a session's id UnknownSession if it is not open.
    """

    def __init__(self, options: SessionOptions, model: str = "") -> None:
        self._options, self._model = options, model
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._sweep_at = 0.0

    def open_session(self) -> OpenSession:
        """Open a session. Raises SessionFailure unless there is room for all that one may hold."""
        expires = int(time.time()) + self._options.expiration_seconds
        session_id = secrets.token_hex(ID_BYTES)
        with self._transaction(WRITES) as database:
            self._sweep(database)
            if self._free_bytes(database) < self._options.session_bytes:
                raise self._full("no other session can be opened")
            database.execute("INSERT INTO sessions VALUES (?, ?, ?)", (session_id, self._model, expires))
        return OpenSession(session_id, datetime.fromtimestamp(expires, UTC))

    def find(self, session_id: str) -> OpenSession:
        """Find the session that a client names."""
        if _ID.fullmatch(session_id) is None:
            raise UnknownSession(MALFORMED)
        with self._transaction(READS) as database:
            expires = self._expires(database, session_id)
        if time.time() >= self._sweep_at:
            with self._transaction(WRITES) as database:
                self._sweep(database)
        return OpenSession(session_id, datetime.fromtimestamp(expires, UTC))

    def close_session(self, session_id: str) -> None:
        """Close a session and drop its state."""
        with self._transaction(WRITES) as database:
            self._expires(database, session_id)
            database.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def get(self, session_id: str, key: str) -> bytes | str | None:
        """Return the value under ``key``; None if there is none."""
        with self._transaction(READS) as database:
            self._expires(database, session_id)
            found = database.execute(
                "SELECT value FROM entries WHERE session = ? AND key = ?", (session_id, key)
            ).fetchone()
        return None if found is None else found[0]

    def put(self, session_id: str, key: str, value: bytes | str) -> None:
        """Set a value. Raises SessionFailure if the session would be over its limit."""
        size = len(key.encode()) + len(value.encode() if isinstance(value, str) else value)
        limit = self._options.session_bytes
        with self._transaction(WRITES) as database:
            self._expires(database, session_id)
            others = database.execute(
                "SELECT COALESCE(SUM(size), 0) FROM entries WHERE session = ? AND key <> ?", (session_id, key)
            ).fetchone()[0]
            if others + size > limit:
                raise SessionFailure(
                    f"The session would have {others + size} bytes of state with this value, more than the "
                    f"{limit // KILOBYTE} KB of one session, which are a part of TFS_PROXY_SESSIONS_MAX_MB."
                )
            database.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (session_id, key, size, value)
            )

    def remove(self, session_id: str, key: str) -> bool:
        """Remove a value; False if there is none."""
        with self._transaction(WRITES) as database:
            self._expires(database, session_id)
            removed = database.execute("DELETE FROM entries WHERE session = ? AND key = ?", (session_id, key))
            return bool(removed.rowcount)

    def keys(self, session_id: str) -> list[str]:
        """Return the keys that have values, in order."""
        with self._transaction(READS) as database:
            self._expires(database, session_id)
            rows = database.execute("SELECT key FROM entries WHERE session = ? ORDER BY key", (session_id,))
            return [key for (key,) in rows]

    def count(self) -> int:
        """Count the open sessions of all models."""
        with self._transaction(READS) as database:
            open_ones = database.execute("SELECT COUNT(*) FROM sessions WHERE expires > ?", (time.time(),))
            return int(open_ones.fetchone()[0])

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = self._connected()
                with self._connection as database:
                    database.execute(f"BEGIN {kind}")
                    yield database
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise self._full("nothing can be added to any") from error
            raise SessionFailure(f"The store of sessions can't be used: {error}.") from error

    def _connected(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._options.file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # The state is gone with the run: what a killed worker may not lose, the kernel has.
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA foreign_keys = ON")
        database.executescript(_SCHEMA)
        page_bytes = database.execute("PRAGMA page_size").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {max(self._options.total_bytes // page_bytes, 1)}")
        return database

    def _expires(self, database: sqlite3.Connection, session_id: str) -> int:
        found = database.execute(
            "SELECT expires FROM sessions WHERE id = ? AND model = ? AND expires > ?",
            (session_id, self._model, time.time()),
        ).fetchone()
        if found is None:
            raise UnknownSession(UNKNOWN)
        return int(found[0])

    def _sweep(self, database: sqlite3.Connection) -> None:
        """Remove the sessions that are over."""
        now = time.time()
        self._sweep_at = now + SWEEP_SECONDS
        database.execute("DELETE FROM sessions WHERE expires <= ?", (now,))

    @staticmethod
    def _free_bytes(database: sqlite3.Connection) -> int:
        most, used, free, size = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("max_page_count", "page_count", "freelist_count", "page_size")
        )
        return (most - used + free) * size

    def _full(self, consequence: str) -> SessionFailure:
        return SessionFailure(
            f"The store of sessions is full, so {consequence} until sessions end: close those that are over, "
            f"or raise TFS_PROXY_SESSIONS_MAX_MB={self._options.total_bytes // MEGABYTE}."
        )
