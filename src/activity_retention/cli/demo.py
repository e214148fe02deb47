"""`activity-retention demo`."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import SecretStr

from activity_retention.config import Loaded
from activity_retention.errors import Refused

if TYPE_CHECKING:
    from activity_retention.result import RunResult
    from activity_retention.sandbox.proof import Check, Counts
    from activity_retention.sandbox.server import PrivateServer

# The least-privilege role of `schema`: the demo shows that it is enough.
_ROLE = "activity_retention"


def demo(
    loaded: Loaded,
    json: bool,
    rows: Annotated[int, typer.Option(min=100, max=20_000_000, help="about how many sample rows")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="the same seed makes the same rows")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="leave the server up afterwards and print its URL")] = False,
    pg_bin: Annotated[
        Path | None, typer.Option("--pg-bin", help="folder of the initdb and postgres to use")
    ] = None,
) -> int:
    """Show the job at work on a private PostgreSQL with sample data, and prove the result."""
    if loaded.sources["database_url"] == "--database-url":
        raise Refused("demo brings a database of its own and touches no other: leave --database-url out")
    from activity_retention.sandbox.binaries import NoPostgres
    from activity_retention.sandbox.server import ServerFailed, private_server

    try:
        with private_server(pg_bin) as server:
            code = _show(loaded, server, rows, seed, as_json=json)
            if keep:
                _wait_for_a_signal(server)
            return code
    except (NoPostgres, ServerFailed) as error:
        raise Refused(str(error)) from None


def _show(loaded: Loaded, server: "PrivateServer", rows: int, seed: int, *, as_json: bool) -> int:
    import psycopg

    from activity_retention.cli.command import print_json
    from activity_retention.cli.connection import looking, where
    from activity_retention.cli.plan import to_json
    from activity_retention.cli.run import run_watched
    from activity_retention.plan import read_plan
    from activity_retention.sandbox.proof import keep_baseline, prove
    from activity_retention.sandbox.sample import load_sample
    from activity_retention.sandbox.schema import create_schema

    loaded = _on(loaded, server.url(user=_ROLE))
    settings = loaded.settings
    _say(f"A private PostgreSQL {server.version} is up; about {rows:,} sample rows go in ...")
    with psycopg.connect(server.url(), autocommit=True) as owner:
        create_schema(owner)
        sample = load_sample(owner, rows=rows, seed=seed)
        _say(
            f"{sample.sessions:,} sessions with {sample.property_object_views:,} views and "
            f"{sample.action_events:,} events: guests and users, Active and Inactive, over two years.\n"
        )
        with looking(settings, "demo") as connection:
            plan = read_plan(connection, settings.job)
            place = where(connection)
        if not as_json:
            from activity_retention.cli.terminal import draw_plan

            draw_plan(plan, place, settings.job, sql=False)
        before = keep_baseline(owner, plan.survey.cutoff)
        finished, code = run_watched(loaded, page=not as_json)
        result = finished.result
        checks = prove(owner, before, drained=result.stop_reason == "empty", deleted=_deleted(result))
    if as_json:
        print_json(
            {
                "plan": to_json(plan, place, loaded, sql=False),
                "run": result.to_json(),
                "proof": [asdict(check) for check in checks],
            }
        )
    else:
        from activity_retention.cli.terminal import draw_proof, draw_result

        draw_result(finished)
        draw_proof(checks)
    return code or _verdict(checks)


def _on(loaded: Loaded, url: str) -> Loaded:
    """The settings over the demo's own server, with batches small enough to watch unless told otherwise."""
    settings = loaded.settings.model_copy(update={"database_url": SecretStr(url), "database_url_file": None})
    if loaded.sources["batch_size"] == "default":
        settings = settings.model_copy(update={"job": settings.job.model_copy(update={"batch_size": 500})})
    return Loaded(settings, loaded.sources)


def _deleted(result: "RunResult") -> "Counts":
    from activity_retention.sandbox.proof import Counts

    events, views, sessions = (result.deleted.get(table, 0) for table in result.policy.tables)
    return Counts(sessions, views, events)


def _verdict(checks: "Sequence[Check]") -> int:
    return 0 if all(check.holds for check in checks) else 1


def _wait_for_a_signal(server: "PrivateServer") -> None:
    _say(f"\nThe server stays up until Ctrl-C. Look for yourself:\n\n  psql {server.url()}\n")
    _say(f"  activity-retention plan --database-url {server.url(user=_ROLE)}")
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
