"""A limit in time for what must not hold us up."""

from collections.abc import Callable
from threading import Thread


def at_most(seconds: float, action: Callable[[], None]) -> bool:
    """Runs `action` and answers whether it ended in time; one that did not is left behind, and does not keep the
    process alive. Time-outs of sockets are no such limit: they count anew with every byte."""
    thread = Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
