"""One transaction, one statement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.sql import Composed

from activity_retention import statements
from activity_retention.errors import RetentionError
from activity_retention.policy import Policy, Table
from activity_retention.session import Connection, limit, milliseconds


@dataclass(frozen=True)
class BatchResult:
    """A committed batch: rows deleted by table, and the newest anchor among its roots, as text."""

    picked: int
    deleted: Mapping[Table, int]
    floor: str | None


@dataclass(frozen=True)
class Selection:
    """What a batch may take: roots expired at `cutoff`, from `floor` on, at most `size`, none of those `left`."""

    key: int
    cutoff: str
    size: int
    floor: str | None = None
    left: tuple[Any, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "cutoff": self.cutoff,
            "size": self.size,
            "floor": self.floor,
            "left": list(self.left),
        }


class LockNotHeld(RetentionError):
    """The batch found the advisory lock with another session and took nothing (case C9)."""


class NotDeleted(RetentionError):
    """Fewer roots went than were picked: a trigger or rule swallowed the deletion (case B3). Rolled back."""


def delete_batch(
    connection: Connection,
    policy: Policy,
    selection: Selection,
    *,
    timeout: float,
    lock_timeout: float,
    listed: bool = False,
) -> BatchResult:
    """Deletes one batch and commits it, or changes nothing (R-ALG-7).

    `timeout` and `lock_timeout` are in seconds. With `listed` the roots are first picked to the client and then
    deleted by that list, so that a failure has names: it is raised as `ListedFailure`. Otherwise raises
    LockNotHeld, NotDeleted or psycopg.Error.
    """
    ids: list[Any] = []
    try:
        with connection.transaction():
            limit(connection, milliseconds(timeout), milliseconds(lock_timeout))
            if not listed:
                query = statements.batch(policy, floor=selection.floor is not None, leaving=bool(selection.left))
                return _execute(connection, policy, query, selection.parameters)
            ids = _pick(connection, policy, selection)
            query = statements.batch(policy, listed=True)
            return _execute(connection, policy, query, {**selection.parameters, "ids": ids})
    except (psycopg.Error, NotDeleted) as error:
        # Outside of the transaction: a deferred constraint fails at the commit.
        if ids:
            raise ListedFailure(tuple(ids), error) from error
        raise


class ListedFailure(RetentionError):
    """A batch of known roots failed."""

    def __init__(self, ids: tuple[Any, ...], cause: psycopg.Error | NotDeleted) -> None:
        super().__init__(str(cause))
        self.ids = ids
        self.cause = cause


def expired_left(connection: Connection, policy: Policy, cutoff: str) -> bool:
    """Whether an expired root remains, locked by others or not."""
    row = connection.execute(statements.any_expired(policy), {"cutoff": cutoff}).fetchone()
    return row == (True,)


def _pick(connection: Connection, policy: Policy, selection: Selection) -> list[Any]:
    query = statements.pick(policy, floor=selection.floor is not None, leaving=bool(selection.left))
    return [key for (key,) in connection.execute(query, selection.parameters)]


def _execute(connection: Connection, policy: Policy, query: Composed, parameters: Mapping[str, Any]) -> BatchResult:
    row = connection.execute(query, parameters).fetchone()
    if row is None or not row[0]:
        raise LockNotHeld("another session holds the advisory lock")
    _, picked, floor, *counts = row
    deleted = dict(zip(policy.tables, counts, strict=True))
    if deleted[policy.root] != picked:
        raise NotDeleted(
            f"{picked} rows of {policy.root} were picked and {deleted[policy.root]} deleted: "
            f"a trigger or rule on it keeps rows from being deleted"
        )
    return BatchResult(picked, deleted, floor)
