"""What a connection string has to be before libpq is asked."""

_FORM = "write postgresql://user@host:5432/database, special characters of a password percent-encoded"


def check_conninfo(url: str) -> None:
    """Raises ValueError, with a sentence that quotes nothing of it."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except (ProgrammingError, UnicodeError):
        # libpq's own sentence may quote a piece of the password.
        raise ValueError(f"it is not a PostgreSQL URL: {_FORM}") from None
    if not url.strip():
        raise ValueError(f"it is empty: {_FORM}")
    for name in ("host", "dbname"):
        # The password had an @ or a / in it, and what follows is taken for something else.
        if "@" in str(parts.get(name, "")):
            raise ValueError(f"its {name} contains an @: {_FORM}")
    if not all(port.isdigit() or not port for port in str(parts.get("port", "")).split(",")):
        raise ValueError(f"its port is not a number: {_FORM}")
