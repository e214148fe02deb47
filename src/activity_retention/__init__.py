"""Deletes expired rows from PostgreSQL safely, fast and observably.

from activity_retention import ActivityRetentionJob, load_settings

result = ActivityRetentionJob(load_settings().settings).run()
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from activity_retention.config import load_settings
    from activity_retention.errors import Failure, Refused
    from activity_retention.job import ActivityRetentionJob
    from activity_retention.metrics import RunMetrics
    from activity_retention.result import RunResult
    from activity_retention.settings import JobSettings, Settings

__all__ = [
    "ActivityRetentionJob",
    "Failure",
    "JobSettings",
    "Refused",
    "RunMetrics",
    "RunResult",
    "Settings",
    "load_settings",
]

_HOMES = {
    "ActivityRetentionJob": "job",
    "Failure": "errors",
    "JobSettings": "settings",
    "Refused": "errors",
    "RunMetrics": "metrics",
    "RunResult": "result",
    "Settings": "settings",
    "load_settings": "config",
}


def __getattr__(name: str) -> Any:
    # The driver and pydantic take 0.2 s to import: only those who use the job pay for them.
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
