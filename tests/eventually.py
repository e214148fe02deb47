"""Waiting for what another process or thread is about to do."""

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

Answer = TypeVar("Answer")


def eventually(predicate: Callable[[], Answer], seconds: float = 60.0) -> Answer:
    """The first true answer of `predicate`, which is asked again and again for at most so long."""
    deadline, pause, tick = time.monotonic() + seconds, 0.005, Event()
    while not (answer := predicate()):
        assert time.monotonic() < deadline, f"this did not come true within {seconds:.0f} s"
        tick.wait(pause)
        pause = min(0.2, pause * 1.5)
    return answer
