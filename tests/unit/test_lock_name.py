"""How the lock's name becomes PostgreSQL's bigint (R-RUN-2)."""

from hypothesis import given
from hypothesis import strategies as st

from activity_retention.lock import lock_key, lock_name


def test_the_packaged_policy_has_the_name_of_the_specification() -> None:
    assert lock_name("user-activity") == "job:scheduled:activity-retention"


def test_any_other_policy_has_a_name_of_its_own() -> None:
    assert lock_name("audit") == "job:scheduled:activity-retention:audit"


def test_the_key_of_the_specified_name_never_changes() -> None:
    """The same in SQL, for those who look into pg_locks: the first 8 bytes of the name's SHA-256, big-endian.

    SELECT ('x' || left(encode(sha256('job:scheduled:activity-retention'), 'hex'), 16))::bit(64)::bigint;
    """
    assert lock_key("job:scheduled:activity-retention") == -2615700163897958140


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_key_is_a_bigint(name: str) -> None:
    assert -(2**63) <= lock_key(name) < 2**63


def test_keys_differ_with_their_names() -> None:
    names = {lock_name(policy) for policy in ("user-activity", "audit", "Audit", "audit ")}
    assert len({lock_key(name) for name in names}) == 4
