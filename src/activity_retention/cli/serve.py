"""`activity-retention serve`."""

import sys
from collections.abc import Callable
from signal import Signals
from threading import Thread
from typing import Any

from activity_retention.config import Loaded
from activity_retention.settings import Settings

_TRY_AGAIN = 5.0


def serve(loaded: Loaded, json: bool) -> int:
    """Run at every time of the schedule, and answer /livez, /readyz and /metrics."""
    from activity_retention.cli.command import print_json
    from activity_retention.cli.stop import Stop
    from activity_retention.config import require_database, traces_wanted
    from activity_retention.health import HealthServer
    from activity_retention.log import stderr_logger
    from activity_retention.readiness import Readiness
    from activity_retention.service import Service
    from activity_retention.telemetry import Telemetry

    settings = loaded.settings
    require_database(settings)
    settings.conninfo()
    logger = stderr_logger(settings.log_level, settings.log_format or ("console" if _on_terminal() else "json"))
    if settings.pushgateway_url or settings.textfile:
        logger.warning("pushgateway_url and textfile are for run: serve answers /metrics instead")
    telemetry = Telemetry(settings, logger, traced=traces_wanted())
    readiness = Readiness(settings)
    stop = Stop(settings.job.grace_period.total_seconds(), lambda: service.cancel(), hangup=_hangup(logger))
    service = Service(settings, telemetry, logger, wait=stop.wait)

    def listen() -> HealthServer:
        return HealthServer(
            settings.metrics_address,
            settings.metrics_port,
            live=service.live,
            ready=lambda: [*service.refusals(), *readiness.troubles()],
            registry=telemetry.metrics.registry,
        )

    with stop:
        Thread(target=_listen, args=(listen, settings, logger, stop.wait), daemon=True).start()
        for trouble in readiness.troubles():
            logger.warning("not ready", reason=trouble)
        service.serve()
    telemetry.close()
    if json:
        print_json({"outcome": "stopped", "signal": Signals(stop.signal).name if stop.signal else None})
    return 0


def _listen(listen: Callable[[], Any], settings: Settings, logger: Any, wait: Callable[[float], bool]) -> None:
    """Listens as soon as the port is free: deleting is safe without an audience, and an alert tells that there was
    none."""
    told = False
    while True:
        try:
            server = listen()
        except OSError as error:
            if not told:
                logger.error(
                    f"metrics_address = {settings.metrics_address}, metrics_port = {settings.metrics_port}: "
                    f"{error.strerror or error}: choose another one for this daemon; it runs without /livez, "
                    f"/readyz and /metrics and tries again every {_TRY_AGAIN:.0f} s"
                )
                told = True
        else:
            logger.info("listening", url=server.url)
            return
        if wait(_TRY_AGAIN):
            return


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def _hangup(logger: Any) -> Callable[[], None] | None:
    """What SIGHUP does: nothing is reloaded. On a terminal that closes it stops the daemon, as any other signal."""
    if sys.stdin.isatty():
        return None
    return lambda: logger.warning("SIGHUP: settings are not reloaded, restart serve to change them")
