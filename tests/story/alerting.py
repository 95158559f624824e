"""Whether an alert of ``deploy/alerts.yaml`` would fire, over what a service exports now."""

from __future__ import annotations

import http.client
import operator
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

ALERTS = Path(__file__).resolve().parents[2] / "deploy/alerts.yaml"
Samples = dict[frozenset[tuple[str, str]], float]
"""Values by their labels."""
_COMPARISONS = {">": operator.gt, "<": operator.lt, "==": operator.eq}


def scraped(address: str) -> dict[str, Samples]:
    """Return what a service exports, as Prometheus has it: samples by name, with the labels of its job."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**sample.labels, "job": "txnlog", "instance": address}
            found.setdefault(sample.name, {})[frozenset(labels.items())] = sample.value
    return found


def firing(alert: str, samples: dict[str, Samples]) -> list[dict[str, str]]:
    """Return for what an alert fires, once its condition has held for long enough."""
    [rule] = [
        rule
        for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
        for rule in group["rules"]
        if rule["alert"] == alert
    ]
    return [dict(labels) for labels in _evaluated(promql_parser.parse(rule["expr"]), samples)]


def _evaluated(expression: Any, samples: dict[str, Samples]) -> Samples:
    """Evaluate what alerts about one moment are made of: series, their maximum by labels, comparisons, sets."""
    match expression:
        case promql_parser.VectorSelector():
            assert not expression.matchers.matchers
            return samples.get(expression.name, {})
        case promql_parser.AggregateExpr():
            assert str(expression.op) == "max", expression.op
            by = set(expression.modifier.labels)
            most: Samples = {}
            for labels, value in _evaluated(expression.expr, samples).items():
                kept = _kept(labels, by)
                most[kept] = max(value, most.get(kept, value))
            return most
        case promql_parser.BinaryExpr() if str(expression.op) == "or":
            return _evaluated(expression.rhs, samples) | _evaluated(expression.lhs, samples)
        case promql_parser.BinaryExpr() if str(expression.op) == "unless":
            on = set(expression.modifier.matching.labels)
            there = {_kept(labels, on) for labels in _evaluated(expression.rhs, samples)}
            found = _evaluated(expression.lhs, samples)
            return {labels: value for labels, value in found.items() if _kept(labels, on) not in there}
        case promql_parser.BinaryExpr():
            compare, limit = _COMPARISONS[str(expression.op)], expression.rhs.val
            found = _evaluated(expression.lhs, samples)
            return {labels: value for labels, value in found.items() if compare(value, limit)}
    raise NotImplementedError(type(expression))


def _kept(labels: frozenset[tuple[str, str]], names: set[str]) -> frozenset[tuple[str, str]]:
    return frozenset(label for label in labels if label[0] in names)
