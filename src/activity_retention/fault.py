"""What an SQLSTATE means for a run."""

from enum import Enum, auto


class Fault(Enum):
    LOST = auto()  # the connection is gone or could not be had
    SHUT_DOWN = auto()  # 57P01: a restart, or an administrator's word
    CONFLICT = auto()  # the same batch may well succeed in a moment
    LOCKED = auto()  # 55P03: somebody held a row or table for longer than lock_timeout
    LATE_CHILD = auto()  # a child that the statement's snapshot did not see, or a key that nobody listed
    CANCELED = auto()  # 57014: our time-out, or a person
    REFUSED = auto()  # rights, or a table that is not there
    POISON = auto()  # the data or a trigger; it will happen again


# RESTRICT violations are 23503 up to PostgreSQL 17 and 23001 from 18 on.
_STATES = {
    "57P01": Fault.SHUT_DOWN,
    "57014": Fault.CANCELED,
    "55P03": Fault.LOCKED,
    "55006": Fault.CONFLICT,
    "23503": Fault.LATE_CHILD,
    "23001": Fault.LATE_CHILD,
    "57P02": Fault.LOST,
    "57P03": Fault.LOST,
    "57P05": Fault.LOST,
    "25P03": Fault.LOST,
    "25P04": Fault.LOST,
    "40003": Fault.LOST,
    "25006": Fault.REFUSED,
    "3F000": Fault.REFUSED,
}
_CLASSES = {
    "08": Fault.LOST,
    "40": Fault.CONFLICT,
    "53": Fault.CONFLICT,
    "58": Fault.CONFLICT,
    "42": Fault.REFUSED,
}


def fault_of(sqlstate: str | None) -> Fault:
    """The fault behind a SQLSTATE; without one the server never answered."""
    if sqlstate is None:
        return Fault.LOST
    return _STATES.get(sqlstate) or _CLASSES.get(sqlstate[:2], Fault.POISON)
