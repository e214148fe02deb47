"""The reference schema, as SQL that psql takes."""

from importlib.resources import files
from typing import Literal


def read_sql(name: Literal["tables", "indexes", "role"]) -> str:
    """The text of one file of the reference schema."""
    return files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
