"""One sentence about an error, for people and logs."""

import psycopg


def sentence(error: Exception) -> str:
    """The server's primary message, and where it happened; never its DETAIL, which may quote a row.

    An error that the server did not send gets its first line.
    """
    if not isinstance(error, psycopg.Error) or not error.diag.message_primary:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return (lines[0] if lines else type(error).__name__).removeprefix("connection failed: ")
    context = (error.diag.context or "").split("\n")[0]
    # A foreign key's own query says nothing that its message does not.
    where = f" ({context})" if context and not context.startswith("SQL statement") else ""
    return error.diag.message_primary + where
