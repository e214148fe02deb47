"""What the catalog said, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

from activity_retention.policy import Table


@dataclass(frozen=True)
class Column:
    """A column: its type as people write it, the type's category, and an enum's labels."""

    type: str
    category: str
    builtin: bool
    labels: tuple[str, ...]
    readable: bool


@dataclass(frozen=True)
class Relation:
    """A table of the policy, as this role sees it; `rows` is the planner's estimate, -1 before any ANALYZE."""

    kind: str
    rows: int
    hides_rows: bool
    may_use_schema: bool
    may_delete: bool
    may_lock: bool
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key that points at a table of the policy; `indexed` when a usable index leads with its columns."""

    name: str
    table: Table
    columns: tuple[str, ...]
    target: Table
    on_delete: str
    indexed: bool


@dataclass(frozen=True)
class Scan:
    """A node of a plan that reads `table`; `index` is None where it reads all of it."""

    table: Table
    index: str | None


@dataclass(frozen=True)
class Facts:
    """What the catalog says about a policy's tables. `references` tells which child columns an index leads with."""

    role: str
    relations: Mapping[Table, Relation]
    foreign_keys: tuple[ForeignKey, ...]
    references: Mapping[tuple[Table, str], bool]
