"""What the attack reports: one line per kind of blow."""

from collections.abc import Iterable
from dataclasses import dataclass

SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: ``held`` of ``tried`` blows of one kind against one target; ``note`` has the numbers."""

    blow: str
    target: str
    tried: int
    held: int
    note: str = ""

    @property
    def stands(self) -> bool:
        return self.held == self.tried

    def row(self) -> str:
        note = self.note.replace("|", "\\|").replace("\n", " ")[:SHOWN_CHARACTERS]
        held = f"{self.held:,}" if self.stands else f"**{self.held:,}**"
        return f"| {self.blow} | {self.target} | {self.tried:,} | {held} | {note} |\n"


def fallen(findings: Iterable[Finding]) -> str:
    """The lines of what did not hold, as text; "" if all did."""
    return "".join(finding.row() for finding in findings if not finding.stands)
