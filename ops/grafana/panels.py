"""The kinds of panel that the dashboard is made of."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, statetimeline, text, timeseries
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig as Thresholds
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BarAlignment,
    BigValueColorMode,
    BigValueGraphMode,
    GraphDrawStyle,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel = heatmap.Panel | stat.Panel | statetimeline.Panel | text.Panel | timeseries.Panel
Query = prometheus.Dataquery

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${datasource}")

# A job of one run a night shows as one bar a day over a month, and as one of ten minutes over some hours.
_BARS, _SHORTEST_BAR = 30, "10m"


def query(expression: str, legend: str) -> Query:
    return Query().datasource(PROMETHEUS).expr(expression).legend_format(legend).range()


def figure(
    title: str,
    description: str,
    expression: str,
    *,
    colors: Mapping[float | None, str],
    nothing: str,
    unit: str = units.NoUnit,
    words: Mapping[int, str] | None = None,
    legend: str | None = None,
) -> stat.Panel:
    """One number as of now. `colors` go by the least value that they are for; the one of None is for `nothing`."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .targets([query(expression, legend or title).instant().ref_id("A")])
        .unit(unit)
        .no_value(nothing)
        .thresholds(Thresholds().steps([Threshold(least, color) for least, color in colors.items()]))
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .span(4)
        .height(4)
    )
    return panel.mappings([_mapping({value: (word, None) for value, word in words.items()})]) if words else panel


def lines(title: str, description: str, *queries: Query, unit: str) -> timeseries.Panel:
    """Gauges over time. A gap stays a gap."""
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .targets(_lettered(queries))
        .unit(unit)
        .min(0)
        .span_nulls(False)
        .fill_opacity(10)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .legend(common.VizLegendOptions().show_legend(True).calcs(["lastNotNull"]))
        .span(12)
        .height(8)
    )


def bars(title: str, description: str, *queries: Query, unit: str) -> timeseries.Panel:
    """What happened in each stretch of time; the queries have to look ahead from its start."""
    return (
        lines(title, description, *queries, unit=unit)
        .max_data_points(_BARS)
        .interval(_SHORTEST_BAR)
        .draw_style(GraphDrawStyle.BARS)
        .bar_alignment(BarAlignment.AFTER)
        .fill_opacity(80)
        .line_width(0)
    )


def counts(title: str, description: str, count: Query) -> timeseries.Panel:
    """Bars of whole things on top of each other, with their sums in the legend."""
    return (
        bars(title, description, count, unit=units.LocaleFormat)
        .decimals(0)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        .legend(common.VizLegendOptions().show_legend(True).calcs(["sum"]))
    )


def heat_map(title: str, description: str, buckets: Query) -> heatmap.Panel:
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .targets([buckets.format(PromQueryFormat.HEATMAP).ref_id("A")])
        .max_data_points(_BARS)
        .interval(_SHORTEST_BAR)
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .filter_values(heatmap.FilterValueRange().le(0.5))
        .y_axis(heatmap.YAxisConfig().unit(units.Seconds))
        .cell_values(heatmap.CellValues().unit(units.LocaleFormat).decimals(0))
        .show_legend()
        .span(12)
        .height(8)
    )


def states(
    title: str, description: str, *queries: Query, words: Mapping[int, tuple[str, str]]
) -> statetimeline.Panel:
    """A strip for each query; `words` are the name and colour of each value."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .targets(_lettered(queries))
        .unit(units.NoUnit)
        .mappings([_mapping(words)])
        .merge_values(True)
        .show_value(VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(True))
        .span(12)
        .height(8)
    )


def note(title: str, content: str) -> text.Panel:
    return text.Panel().title(title).content(content).span(24).height(6)


def fixed_color(color: str) -> DynamicConfigValue:
    return DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})


def as_limit(panel: timeseries.Panel, name: str) -> timeseries.Panel:
    """Draws one series as the dashed line that the others should keep to."""
    return panel.override_by_name(
        name,
        [
            fixed_color("red"),
            DynamicConfigValue("custom.drawStyle", GraphDrawStyle.LINE),
            DynamicConfigValue("custom.lineWidth", 2),
            DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}),
            DynamicConfigValue("custom.fillOpacity", 0),
        ],
    )


def _lettered(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    return [each.ref_id(letter) for each, letter in zip(queries, "ABC", strict=False)]


def _mapping(words: Mapping[int, tuple[str, str | None]]) -> ValueMap:
    return ValueMap({str(value): ValueMappingResult(word, color) for value, (word, color) in words.items()})
