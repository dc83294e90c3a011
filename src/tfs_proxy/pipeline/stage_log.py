"""The log of a stage within that of its pipeline: entries as they are, with the stage's number."""

import json
from collections.abc import Sequence

from msgspec.structs import replace

from tfs_proxy.observe.logs.entry import entry_handler
from tfs_proxy.observe.logs.foreign import read_event
from tfs_proxy.supervisor.process import ChildProcess


def message_of(line: str) -> str:
    """What a line of a stage says: it is an entry in JSON, or text."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, LookupError, TypeError):
        return line


def show_of_stage(number: int, child: ChildProcess, lines: Sequence[str]) -> None:
    """Log what a stage has printed: JSON gets a field more, text a prefix."""
    handler = entry_handler()
    for line in lines:
        if line.startswith('{"'):
            handler.write_line(f'{{"stage": {number}, {line[1:]}')
        elif not handler.writes_json:
            handler.write_line(f"[stage {number}] {line}")
    if handler.writes_json and not lines[0].startswith('{"'):
        entry = read_event(lines).entry(child.name, child.pid)
        handler.write(replace(entry, fields={**entry.fields, "stage": number}))
