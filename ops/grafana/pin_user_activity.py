"""Prints the Grafana dashboard `pin-user-activity` (R-OBS-5); docs/reference/dashboard.md says how to read it."""

import json

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, VariableOption, VariableRefresh
from panels import (
    PROMETHEUS,
    Panel,
    as_limit,
    bars,
    counts,
    figure,
    fixed_color,
    heat_map,
    lines,
    note,
    query,
    states,
)

DAYS = "suffix: days"
HOUR, DAY = 3600, 86_400
OUTCOMES = {
    "completed": "green",
    "failed": "red",
    "refused": "dark-red",
    "cancelled": "yellow",
    "held": "orange",
    "observed": "blue",
    "skipped": "#808080",
}
FAILURE, BACKLOG, LOCK = (f"docs/runbooks/activity-retention-{name}.md" for name in ("failure", "backlog", "lock"))
HOLD = "docs/how-to/hold.md"
RUNBOOKS = f"""\
| What you see | Where to read on |
|---|---|
| overdue, or runs that failed or were refused | `{FAILURE}` |
| a backlog that grows, rows that get older, runs that end at their limit | `{BACKLOG}` |
| runs that are skipped and none that completes | `{LOCK}` |
| on hold | `{HOLD}` |

The files are in the repository of activity-retention; `docs/reference/dashboard.md` says how to read the panels.
"""


def series(name: str) -> str:
    return f'activity_retention_{name}{{policy="$policy"}}'


def largest(name: str) -> str:
    """A gauge over all replicas."""
    return f"max by (policy) ({series(name)})"


def gained(name: str, by: str = "policy") -> str:
    """What a counter of all replicas gained during each bar.

    Grafana asks for the start of every bar that has begun. Looking ahead from there puts a bar where its time is,
    and shows last night's run before the day is over.
    """
    return f"sum by ({by}) (increase({series(name)}[$__rate_interval] offset -$__interval))"


def last_success() -> str:
    """Of any replica, restarts included; the 0 before the first success is no time."""
    return f"(max by (policy) (max_over_time({series('last_success_timestamp_seconds')}[14d])) > 0)"


def overdue() -> str:
    """1 or 0; nothing for a job that has not succeeded yet and has not been there for long."""
    known = f"max by (policy) (max_over_time({series('build_info')}[14d] offset 26h))"
    return f"(time() - {last_success()} > bool {26 * HOUR}) or {known}"


def figures() -> list[Panel]:
    return [
        figure(
            "Last success",
            "Time since a run of any replica completed. Good: under 25 hours. Bad: red, from 26 hours on or when "
            f"there has been none: {FAILURE}.",
            f"clamp_min(time() - {last_success()}, 0)",
            unit=units.Seconds,
            nothing="none in 14 days",
            colors={None: "red", 0: "green", 25 * HOUR: "orange", 26 * HOUR: "red"},
        ),
        figure(
            "Overdue",
            "Whether a night was missed, as the alert ActivityRetentionOverdue sees it. Good: on time. Bad: "
            f"overdue, since data stays longer than promised: {FAILURE}.",
            overdue(),
            nothing="no success yet",
            words={0: "on time", 1: "OVERDUE"},
            colors={None: "orange", 0: "green", 1: "red"},
        ),
        figure(
            "Hold",
            "Whether the hold file exists for any replica. Good: running. Bad: on hold for longer than its reason, "
            f"the first line of the file, since nothing is deleted: {HOLD}.",
            largest("held"),
            nothing="no process",
            words={0: "running", 1: "ON HOLD"},
            colors={None: "red", 0: "green", 1: "orange"},
        ),
        figure(
            "Backlog",
            "Expired rows of the root table when the last run started. Good: about what expires in a day. Bad: "
            f"more each night: {BACKLOG}. Not counted yet is normal from a restart until the next run.",
            largest("eligible_backlog"),
            unit=units.LocaleFormat,
            nothing="not counted yet",
            colors={None: "blue"},
        ),
        figure(
            "Last run left rows",
            "Whether the last run ended before all expired rows were gone. Good: no. Bad: yes, unless a first "
            f"backlog is being worked off and falls: {BACKLOG}.",
            largest("has_more"),
            nothing="no run yet",
            words={0: "no", 1: "yes"},
            colors={None: "blue", 0: "green", 1: "orange"},
        ),
        figure(
            "Version",
            "Version of activity-retention, and how many processes run it. Good: one version. Bad: two for longer "
            "than a rollout takes.",
            f"count by (version) ({series('build_info')})",
            legend="{{version}}",
            nothing="no process",
            colors={None: "red", 1: "blue"},
        ).text_mode(BigValueTextMode.VALUE_AND_NAME),
    ]


def nights() -> list[Panel]:
    outcomes = counts(
        "Outcome of the last 30 nights",
        "One bar a day, whatever time is chosen above. Good: green every day; grey besides is normal, replicas "
        f"that found the lock taken. Bad: red, or a day without green: {FAILURE}; nothing but grey: {LOCK}.",
        query(gained("runs_total", "outcome"), "{{outcome}}"),
    ).time_from("30d")
    for outcome, color in OUTCOMES.items():
        outcomes.override_by_name(outcome, [fixed_color(color)])
    mean = f"{gained('run_duration_seconds_sum')} / ({gained('run_duration_seconds_count')} > 0)"
    limit = (
        f"max by (policy) (max_over_time({series('max_run_duration_seconds')}[$__interval] offset -$__interval))"
    )
    duration = bars(
        "Duration of a run against its limit",
        "How long runs took, on average if there were several. Good: well below the dashed line, max_run_duration. "
        f"Bad: at the line, where runs are cut short, unless the backlog falls: {BACKLOG}.",
        query(mean, "duration"),
        query(limit, "limit"),
        unit=units.Seconds,
    )
    return [
        outcomes,
        as_limit(duration, "limit"),
        counts(
            "Rows deleted",
            "Rows that committed batches deleted, by table. Good: about the same every night, the tables in their "
            "usual proportion. Bad: nothing for days although there is a backlog, or many times the usual.",
            query(gained("deleted_rows_total", "table"), "{{table}}"),
        ),
        heat_map(
            "Batch latency",
            "How many batches took how long, commit included. Good: the same height every night. Bad: they climb, "
            f"or reach batch_timeout, which is 60 s by default: {BACKLOG}.",
            query(gained("batch_duration_seconds_bucket", "le"), "{{le}}"),
        ),
    ]


def levels() -> list[Panel]:
    age = lines(
        "Age of the oldest expired row",
        "Days since the oldest expired row ended, when the last run started. Good: just above the dashed line, the "
        f"retention period; a gap means that none was expired. Bad: it moves away from the line: {BACKLOG}.",
        query(f"({largest('oldest_eligible_age_seconds')} > 0) / {DAY}", "oldest expired row"),
        query(f"{largest('retention_period_seconds')} / {DAY}", "retention period"),
        unit=DAYS,
    )
    dead = 'label_join(pg_stat_user_tables_n_dead_tup, "table", ".", "schemaname", "relname")'
    return [
        lines(
            "Expired rows when a run started",
            "The backlog. Good: level, or falling after the first start. Bad: higher three nights in a row: "
            f"{BACKLOG}. A gap means that no process had counted since it started.",
            query(largest("eligible_backlog"), "backlog"),
            unit=units.LocaleFormat,
        ),
        as_limit(age, "retention period"),
        counts(
            "Retries",
            "Attempts that were made again, by reason. Good: none or a few. Bad: many every night; locked and "
            f"left_locked point to long transactions, too_slow to slow batches: {FAILURE}.",
            query(gained("batch_retries_total", "reason"), "{{reason}}"),
        ).span(8),
        counts(
            "Lock contention",
            "Runs that were skipped because another session held the lock. Good: one less than there are replicas "
            f"each night. Bad: more, or any while no run completes: {LOCK}.",
            query(gained("lock_contention_total"), "skipped runs"),
        ).span(8),
        counts(
            "Missed ticks",
            "Times of the schedule without a run of their own: the one before was still going (running), or the "
            f"process was not there in time (late). Good: none. Bad: some every night: {FAILURE}.",
            query(gained("ticks_missed_total", "reason"), "{{reason}}"),
        ).span(8),
        states(
            "Holds and unfinished runs",
            "Orange where the job was on hold, and where the last run had left expired rows. Good: green. Bad: "
            f"days on hold ({HOLD}); rows left every night while the backlog does not fall: {BACKLOG}.",
            query(largest("held"), "on hold"),
            query(largest("has_more"), "rows left"),
            words={0: ("no", "green"), 1: ("yes", "orange")},
        ),
        lines(
            "Dead rows",
            "Deleted rows that vacuum has not cleared yet; needs postgres_exporter: docs/reference/dashboard.md. "
            f"Good: a peak a night that autovacuum takes away. Bad: the foot of the peaks rises: {BACKLOG}.",
            query(f"max by (table) ({dead}) and on (table) {series('deleted_rows_total')}", "{{table}}"),
            unit=units.LocaleFormat,
        ),
    ]


def dashboard() -> Dashboard:
    policy = (
        QueryVariable("policy")
        .label("Policy")
        .datasource(PROMETHEUS)
        .query("label_values(activity_retention_build_info, policy)")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .current(VariableOption(text="user-activity", value="user-activity"))
    )
    board = (
        Dashboard("pin-user-activity")
        .uid("pin-user-activity")
        .description("activity-retention: what the nightly deletion of expired rows does, and whether it keeps up.")
        .tags(["activity-retention", "postgresql"])
        .time("now-30d", "now")
        .refresh("1m")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(policy)
        .with_row(Row("Retention").id(1))
    )
    for number, panel in enumerate([*figures(), note("Runbooks", RUNBOOKS), *nights(), *levels()], start=2):
        board.with_panel(panel.id(number))
    return board


if __name__ == "__main__":
    print(json.dumps(dashboard().build(), cls=JSONEncoder, indent=2, sort_keys=True))
