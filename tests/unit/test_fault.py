"""What an SQLSTATE means for a run."""

import pytest

from activity_retention.fault import Fault, fault_of


@pytest.mark.parametrize("sqlstate", ["23503", "23001"])
def test_a_restrict_violation_means_the_same_before_and_since_postgresql_18(sqlstate: str) -> None:
    assert fault_of(sqlstate) is Fault.LATE_CHILD


@pytest.mark.parametrize(
    ("sqlstate", "fault"),
    [
        ("40001", Fault.CONFLICT),
        ("40P01", Fault.CONFLICT),
        ("53100", Fault.CONFLICT),
        ("53300", Fault.CONFLICT),
        ("58030", Fault.CONFLICT),
        ("55006", Fault.CONFLICT),
        ("55P03", Fault.LOCKED),
        ("57014", Fault.CANCELED),
        ("57P01", Fault.SHUT_DOWN),
        ("57P02", Fault.LOST),
        ("57P03", Fault.LOST),
        ("57P05", Fault.LOST),
        ("25P03", Fault.LOST),
        ("25P04", Fault.LOST),
        ("40003", Fault.LOST),
        ("08000", Fault.LOST),
        ("08006", Fault.LOST),
        ("42501", Fault.REFUSED),
        ("42P01", Fault.REFUSED),
        ("42703", Fault.REFUSED),
        ("3F000", Fault.REFUSED),
        ("25006", Fault.REFUSED),
        ("P0001", Fault.POISON),
        ("22012", Fault.POISON),
        ("23505", Fault.POISON),
        ("23514", Fault.POISON),
        ("XX000", Fault.POISON),
    ],
)
def test_every_state_has_one_meaning(sqlstate: str, fault: Fault) -> None:
    assert fault_of(sqlstate) is fault


def test_no_state_at_all_means_that_the_server_never_answered() -> None:
    assert fault_of(None) is Fault.LOST
