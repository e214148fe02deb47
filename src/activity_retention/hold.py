"""The hold: while a file exists, no batch starts."""

from pathlib import Path


def hold_reason(path: Path | None) -> str | None:
    """The first line of the hold file, or None where there is none. A file that cannot be looked at holds, too:
    a false stop is cheap, a false delete is not."""
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(500).strip() or "no reason given"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror}"
