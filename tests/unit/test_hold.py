"""While the hold file exists no batch starts."""

from pathlib import Path

import pytest

from activity_retention.hold import hold_reason


def test_without_a_hold_file_nothing_holds() -> None:
    assert hold_reason(None) is None


def test_a_missing_file_does_not_hold(tmp_path: Path) -> None:
    assert hold_reason(tmp_path / "hold") is None
    assert hold_reason(tmp_path / "no such folder" / "hold") is None
    (tmp_path / "file").touch()
    assert hold_reason(tmp_path / "file" / "hold") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"restore under way\nask PIN Engagement\n", "restore under way"),
        (b"  legal hold  ", "legal hold"),
        (b"", "no reason given"),
        (b"\n", "no reason given"),
        (b"caf\xe9\n", "caf\ufffd"),
    ],
)
def test_the_first_line_is_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    hold = tmp_path / "hold"
    hold.write_bytes(content)
    assert hold_reason(hold) == reason


def test_a_long_first_line_is_cut(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.write_text("x" * 100_000)
    assert hold_reason(hold) == "x" * 500


def test_a_file_that_cannot_be_read_holds(tmp_path: Path) -> None:
    """A false stop is cheap, a false delete is not. A folder is unreadable even to root."""
    reason = hold_reason(tmp_path)
    assert reason == f"{tmp_path} cannot be looked at: Is a directory"


def test_a_file_whose_name_cannot_be_resolved_holds(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "cannot be looked at" in (hold_reason(loop) or "")
