"""The reference schema in a sandbox database."""

from typing import Any

from psycopg import Connection

from activity_retention.sql import read_sql


def create_schema(connection: Connection[Any]) -> None:
    """Creates the tables, the indexes and the role.

    The connection must be in autocommit mode. Raises psycopg.errors.DuplicateTable when the tables exist.
    """
    connection.execute(read_sql("tables"))
    # Several statements at once are one transaction, where CONCURRENTLY is refused.
    for statement in read_sql("indexes").split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(read_sql("role"))
