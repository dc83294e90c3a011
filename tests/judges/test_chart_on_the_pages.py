"""The page about Kubernetes: each command of helm, rendered by helm from the chart that is here."""

import re
import shlex
from pathlib import Path

from support.judges import ROOT, judge

PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text().replace("\\\n", " ")


def test_the_chart_has_the_values_that_the_page_sets(tmp_path: Path) -> None:
    """The chart refuses names that it does not have, and values that can't work together."""
    for name, text in re.findall(r'^```yaml title="([^"]+)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(text)
    commands = re.findall(r"^\$ helm .* \./tfs-proxy (.*?)(?: --wait.*)?$", PAGE, re.MULTILINE)

    assert len(commands) > 10
    for words in commands:
        flags = shlex.split(words.replace("--values ", f"--values {tmp_path}/"))
        judge("chart").run("helm", "template", ROOT / "deploy" / "chart", *flags, "--kube-version=1.35.0")
