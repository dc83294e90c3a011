"""The contract's tests change together with CHANGELOG.md."""

from pathlib import Path

import pytest

from support.loading import load_script

ROOT = Path(__file__).parents[2]
changes = load_script("contract_changes")


def test_the_changelog_says_what_changed_in_the_contract() -> None:
    """Users read there what is new or different for them."""
    names = changes.changed(ROOT)
    assert names == [], (
        "changed since CHANGELOG.md was: write in its newest section what users will notice, then call "
        "`make contract-changes` and commit tests/contract.sha256"
    )


def test_a_change_is_recorded_only_with_a_line_of_the_changelog(tmp_path: Path) -> None:
    """Or if somebody says that users will notice nothing."""
    (tmp_path / "tests" / "contract").mkdir(parents=True)
    test, changelog = tmp_path / "tests" / "contract" / "test_it.py", tmp_path / "CHANGELOG.md"
    test.write_text("1")
    changelog.write_text("# Changelog\n\n## 1.1.0\n\n- One.\n\n## 1.0.0\n")
    changes.record(tmp_path, same_for_users=False)
    assert changes.changed(tmp_path) == []

    test.write_text("2")
    assert changes.changed(tmp_path) == ["tests/contract/test_it.py"]
    changelog.write_text(changelog.read_text() + "\n- An older one.\n")
    with pytest.raises(SystemExit, match=r"test_it\.py: say in the newest section"):
        changes.record(tmp_path, same_for_users=False)
    changelog.write_text(changelog.read_text().replace("- One.", "- One.\n- Two."))
    changes.record(tmp_path, same_for_users=False)
    assert changes.changed(tmp_path) == []

    test.unlink()
    changes.record(tmp_path, same_for_users=True)
    assert changes.changed(tmp_path) == []
