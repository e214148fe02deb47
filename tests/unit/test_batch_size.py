"""Batches shrink when they are too much and grow again while there is room (cases A17, D1)."""

from hypothesis import given
from hypothesis import strategies as st

from activity_retention.batch_size import BatchSize


@given(st.integers(1, 50_000))
def test_halving_ends_at_one(limit: int) -> None:
    size = BatchSize(limit, limit)
    for _ in range(16):
        size = size.halved()
    assert size == BatchSize(limit, 1)
    assert size.halved() == size


def test_halving_takes_half() -> None:
    assert BatchSize(5000, 5000).halved() == BatchSize(5000, 2500)
    assert BatchSize(5000, 3).halved() == BatchSize(5000, 1)


def test_a_quick_batch_doubles_the_next_up_to_the_limit() -> None:
    assert BatchSize(1000, 300).after(took=1, timeout=60).current == 600
    assert BatchSize(1000, 600).after(took=1, timeout=60).current == 1000
    assert BatchSize(1000, 1000).after(took=1, timeout=60).current == 1000


def test_a_batch_that_left_little_room_keeps_its_size() -> None:
    """Doubled, it would take half of its time or more, and time out in turns."""
    assert BatchSize(1000, 300).after(took=15, timeout=60).current == 300
    assert BatchSize(1000, 300).after(took=14.9, timeout=60).current == 600


@given(st.integers(1, 50_000), st.data())
def test_no_batch_is_ever_empty_or_beyond_its_limit(limit: int, data: st.DataObject) -> None:
    size = BatchSize(limit, limit)
    for took in data.draw(st.lists(st.floats(0, 120) | st.none(), max_size=30)):
        size = size.halved() if took is None else size.after(took, timeout=60)
        assert 1 <= size.current <= limit
