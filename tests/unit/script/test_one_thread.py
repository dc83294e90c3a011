"""What reading a script shows of calls that work in one thread alone."""

from pathlib import Path

import pytest

from tfs_proxy.script.syntax import bound_to_one_thread, read_ast_names

BOUND = {
    "import sqlite3 as db\nc = db.connect('a')": ["line 2"],
    "from sqlite3 import connect\ndef opened(): return connect('a')\nc = opened()": ["line 2"],
    "import sqlite3\ndef init(context):\n    global c\n    c = sqlite3.connect('a')": ["line 4"],
    "import sqlite3\nc = sqlite3.connect('a', check_same_thread=False)": [],
    "import sqlite3\ndef handler(d, c): sqlite3.connect('a')": [],
    "from signal import signal, SIGALRM\ndef handler(d, c):\n    signal(SIGALRM, print)": ["line 3"],
    "import signal\nsignal.signal(signal.SIGALRM, print)": [],
    "import signal\ndef set(): signal.signal(signal.SIGALRM, print)\nset()": [],
    "def handler(": [],
}


@pytest.mark.parametrize("script", BOUND)
def test_calls_of_one_thread(tmp_path: Path, script: str) -> None:
    """Connections that the import opens and handlers of signals that a request sets; each has its line."""
    (tmp_path / "inference.py").write_text(script)
    ast_names = read_ast_names(tmp_path / "inference.py")
    assert ast_names is not None

    found = list(bound_to_one_thread(ast_names, "inference.py"))

    assert [sentence.split(": ")[0] for sentence in found] == [
        f"inference.py, {line}" for line in BOUND[script]
    ]
