"""What expires: a root table, its children in the order of their deletion, and what must be left alone."""

from dataclasses import dataclass
from typing import NamedTuple


class Table(NamedTuple):
    """A table's name as the catalog spells it, unquoted."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Child:
    """A table whose rows go with their root: `reference` is its column that holds the root's key."""

    table: Table
    reference: str
    counter: str


@dataclass(frozen=True)
class Policy:
    """One kind of expiring row.

    `anchor` is the column whose age counts, `state_column` and `state` narrow the roots that may go at all
    (R-ALG-3). `children` are deleted in this order, the root last (R-ALG-4). `preserve` is never touched.
    `counter` is a table's name in the result, as the specification gives it (R-ALG-8).
    """

    name: str
    root: Table
    key: str
    anchor: str
    state_column: str
    state: str
    counter: str
    children: tuple[Child, ...]
    preserve: tuple[Table, ...] = ()

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that loses rows, in the order of deletion."""
        return (*(child.table for child in self.children), self.root)

    @property
    def counters(self) -> dict[Table, str]:
        """The result's name for each table's count, root first as in the specification."""
        return {self.root: self.counter, **{child.table: child.counter for child in reversed(self.children)}}


USER_ACTIVITY = Policy(
    name="user-activity",
    root=Table("user_activity", "sessions"),
    key="id",
    anchor="ended_at",
    state_column="status",
    state="Inactive",
    counter="deletedSessions",
    children=(
        Child(Table("user_activity", "action_events"), "session_id", "deletedActionEvents"),
        Child(Table("user_activity", "property_object_views"), "session_id", "deletedPropertyObjectViews"),
    ),
    preserve=(Table("user_activity", "property_object_view_stats"),),
)

PACKAGED = {USER_ACTIVITY.name: USER_ACTIVITY}
