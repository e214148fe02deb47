"""Whether the next run could do its work: the database answers, takes writes, and fits the policy."""

import time
from collections.abc import Sequence
from datetime import timedelta
from threading import Lock

import psycopg

from activity_retention.drain import Clock
from activity_retention.errors import Refused, Unreachable
from activity_retention.preparation import check
from activity_retention.sentence import sentence
from activity_retention.session import open_session
from activity_retention.settings import Settings

# Whoever asks more often gets the last answer.
_SECONDS = 10.0


class Readiness:
    """Looks at the database when it is asked, on a connection of its own."""

    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._looking = Lock()
        self._looked: float | None = None
        self._troubles: Sequence[str] = ()

    def troubles(self) -> Sequence[str]:
        """What stands in the way, empty if nothing does."""
        with self._looking:
            if self._looked is None or self._clock() - self._looked >= _SECONDS:
                self._troubles = self._look()
                self._looked = self._clock()
            return self._troubles

    def _look(self) -> Sequence[str]:
        try:
            with open_session(
                self._settings.conninfo(),
                application_name="activity-retention readiness",
                statement_timeout=timedelta(seconds=5),
                lock_timeout=timedelta(seconds=1),
            ) as session:
                check(session.connection, self._settings.job.the_policy)
        except Refused as error:
            return error.reasons
        except Unreachable as error:
            return (str(error),)
        except psycopg.Error as error:
            return (f"The database said: {sentence(error)}",)
        return ()
