"""Signals: the first one stops the run between batches, the second one, or the end of the grace period, cancels the
running statement (case D9)."""

import signal
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """While entered, SIGINT, SIGTERM and SIGHUP stop the run; `wait` is what the run waits with, `signal` the first
    one that came. With `hangup`, SIGHUP stops nothing and calls that instead."""

    def __init__(
        self, grace_period: float, cancel: Callable[[], None], hangup: Callable[[], None] | None = None
    ) -> None:
        self.signal: int | None = None
        self._grace_period = grace_period
        self._cancel = cancel
        self._hangup = hangup
        self._stopped = Event()
        self._arrived: SimpleQueue[int | None] = SimpleQueue()
        self._obeying = Thread(target=self._obey, name="signals", daemon=True)
        self._before: dict[int, Any] = {}

    def wait(self, seconds: float) -> bool:
        return self._stopped.wait(seconds)

    @property
    def exit_code(self) -> int:
        """128 and the signal, as a shell would say it."""
        return 128 + (self.signal or signal.SIGINT)

    def __enter__(self) -> "Stop":
        for number in _SIGNALS:
            # nohup has SIGHUP ignored, and is to be believed.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        self._obeying.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._arrived.put(None)
        self._obeying.join()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A handler runs between two instructions of the main thread, which may hold the lock of the event:
        # SimpleQueue.put is the one thing that is safe to call here.
        self._arrived.put(number)

    def _obey(self) -> None:
        self.signal = self._next(None)
        if self.signal is None:
            return
        self._stopped.set()
        try:
            second = self._next(self._grace_period)
        except Empty:
            second = self.signal
        if second is not None:
            self._cancel()

    def _next(self, seconds: float | None) -> int | None:
        """The next signal that means us, None at the end; raises Empty when none came for so long."""
        while (number := self._arrived.get(timeout=seconds)) == signal.SIGHUP and self._hangup:
            self._hangup()
        return number
