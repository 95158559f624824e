"""Alerts, dashboard and runbooks: they parse, and name what is exported. Commands of runbooks run with the docs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from tests.selection import for_each
from txn_source.http.metric_list import METRICS

ROOT = Path(__file__).resolve().parents[2]
ALERTS, DASHBOARD = ROOT / "deploy/alerts.yaml", ROOT / "deploy/grafana.json"
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
OF_PROMETHEUS = {"instance", "job", "le"}
OWN_SAMPLES = {"up": {"instance", "job"}}
"""What Prometheus itself knows, by its labels."""


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def panel_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"].replace("$__rate_interval", "5m") for panel in panels for target in panel["targets"]]


def variable_queries() -> list[str]:
    variables = json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]
    return [variable["query"] for variable in variables if variable["type"] == "query"]


def selectors(expression: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics that an expression names, with the labels that it matches."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name, {matcher.name for matcher in expression.matchers.matchers}
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        part = getattr(expression, name, None)
        if part is not None:
            yield from selectors(part)
    for part in getattr(expression, "args", None) or ():
        yield from selectors(part)


def grouped(text: str) -> set[str]:
    """Return the labels that an expression groups by."""
    return {label.strip() for found in re.findall(r"\bby \(([^)]*)\)", text) for label in found.split(",")}


@for_each("expression", [*(rule["expr"] for rule in rules()), *panel_expressions()])
def test_expressions_name_what_is_exported(expression: str) -> None:
    """Parse each, and look for its metrics and labels in the list of what a service exports."""
    labels_of = {name: set(metric.labels) for metric in METRICS.values() for name in metric.exported} | OWN_SAMPLES
    found = list(selectors(promql_parser.parse(expression)))
    assert found
    known: set[str] = set()
    for name, labels in found:
        known |= labels_of[name]
        assert labels <= labels_of[name] | OF_PROMETHEUS, name
    assert grouped(expression) <= known | OF_PROMETHEUS


def test_variables_of_the_dashboard_are_labels() -> None:
    """The choices of topics and services are labels of metrics that are exported."""
    for query in variable_queries():
        [(name, label)] = re.findall(r"label_values\((\w+)(?:\{job=\"\$job\"\})?, (\w+)\)", query)
        assert label in {*METRICS[name].labels, *OF_PROMETHEUS}


def test_panels_have_numbers_and_places_of_their_own() -> None:
    """Two panels that share an id, or a place, hide each other."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_each_alert_has_its_runbook_and_each_runbook_its_alert() -> None:
    """Follow the anchors; a page without advice helps nobody at night."""
    headings = re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")
    for section in RUNBOOKS.split("\n## ")[1:]:
        assert all(word in section for word in ("**Means:**", "**See", "**Do:**" if "**Do:**" in section else "do:**"))
        assert "**Over:**" in section.strip().splitlines()[-1]
