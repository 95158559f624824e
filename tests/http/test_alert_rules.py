"""Prometheus's own tool evaluates the rules: each alert fires where it should, and nowhere else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ALERTS = Path(__file__).resolve().parents[2] / "deploy/alerts.yaml"
RULES = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]
}
A, B, OTHER = '{instance="a", job="log"%s}', '{instance="b", job="log"%s}', '{instance="c", job="other"%s}'
"""Two services of one log, and one of another log."""
ORDERS = ', topic="orders"'
BOOKING = ORDERS + ', subscription="booking", level="read_committed"'

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool isn't installed (apt-get install prometheus)"
)


class Case(NamedTuple):
    """Series, a sample each minute, and who is told at a time: the labels that matter."""

    alert: str
    series: dict[str, str]
    at: str
    told: tuple[dict[str, str], ...]


def case(alert: str, at: str, *told: dict[str, str], **series: tuple[str, str]) -> Case:
    """``told``: the labels of those that fire; ``series``: of each metric, labels and values."""
    return Case(alert, {f"txnlog_{name}{labels}": values for name, (labels, values) in series.items()}, at, told)


def of_both(labels: str, values: str, name: str) -> dict[str, str]:
    """Return the same series of both services of a log."""
    return {f"txnlog_{name}{service % labels}": values for service in (A, B)}


LOG = {"job": "log"}
ORDERS_OF_LOG = {"topic": "orders", "job": "log"}
CASES = [
    Case(
        "TxnlogDown", {"up" + A % "": "1 1 0x10", "txnlog_build_info" + A % "": "1 1 _x10"}, "5m", ({"instance": "a"},)
    ),
    # One that comes back in time, another program that is down, and a service that nobody wants to scrape any more.
    Case("TxnlogDown", {"up" + A % "": "1 0 1x10", "txnlog_build_info" + A % "": "1 _ 1x10"}, "5m", ()),
    Case("TxnlogDown", {"up" + OTHER % "": "0x10", "txnlog_build_info" + A % "": "1 1 stale"}, "5m", ()),
    case("TxnlogNotReady", "5m", {"instance": "a", "check": "root"}, ready=(A % ', check="root"', "1 0x10")),
    case("TxnlogNotReady", "5m", ready=(A % ', check="root"', "1 0 1x10")),
    case(
        "TxnlogDiskFills", "10m", {"instance": "a", "place": "root"},
        disk_free_bytes=(A % ', place="root"', "40x10"), disk_size_bytes=(A % ', place="root"', "1000x10"),
    ),
    case(  # of a large one 4 GiB are enough
        "TxnlogDiskFills", "10m",
        disk_free_bytes=(A % ', place="root"', "5e9x10"), disk_size_bytes=(A % ', place="root"', "1e12x10"),
    ),
    case("TxnlogCertificateEnds", "1m", {"instance": "a"}, certificate_expires_timestamp_seconds=(A % "", "7200x10")),
    case("TxnlogCertificateEnds", "1m", certificate_expires_timestamp_seconds=(A % "", "864000x10")),
    case("TxnlogHangingTransaction", "8m", ORDERS_OF_LOG, topic_held_back_seconds=(A % ORDERS, "0+60x10")),
    case("TxnlogHangingTransaction", "60m", topic_held_back_seconds=(A % ORDERS, "240x60")),
    case("TxnlogHangingTransaction", "9m", topic_held_back_seconds=(A % ORDERS, "0 60 120 180 240 300 360 0x10")),
    # Both services of a log say the same: one alert. Another log has a topic of that name: one more.
    Case("TxnlogHangingTransaction", of_both(ORDERS, "400x10", "topic_held_back_seconds"), "5m", (ORDERS_OF_LOG,)),
    Case(
        "TxnlogHangingTransaction",
        {f"txnlog_topic_held_back_seconds{log % ORDERS}": "400x10" for log in (A, OTHER)},
        "5m",
        (ORDERS_OF_LOG, {"topic": "orders", "job": "other"}),
    ),
    # A topic without series of its own, alone and beside one that has them.
    case("TxnlogHangingTransaction", "5m", LOG, held_back_seconds=(A % "", "400x10")),
    case(
        "TxnlogHangingTransaction", "5m", ORDERS_OF_LOG,
        held_back_seconds=(A % "", "500x10"), topic_held_back_seconds=(A % ORDERS, "400x10"),
    ),
    case("TxnlogTransactionsTimeOut", "60m", LOG, transactions_timed_out_total=(A % "", "0+1x60")),
    case("TxnlogTransactionsTimeOut", "60m", transactions_timed_out_total=(A % "", "0x30 5x30")),
    # A restart is no progress: the counter begins anew.
    case("TxnlogTransactionsTimeOut", "60m", transactions_timed_out_total=(A % "", "4x20 0x10 1x30")),
    Case("TxnlogTransactionsTimeOut", of_both("", "0x30 4x30", "transactions_timed_out_total"), "60m", (LOG,)),
    case("TxnlogManyMessagesHeldBack", "9m", ORDERS_OF_LOG, topic_held_back_messages=(A % ORDERS, "2000000x10")),
    # Each of two services says 600,000: these are the same messages.
    Case("TxnlogManyMessagesHeldBack", of_both(ORDERS, "600000x10", "topic_held_back_messages"), "9m", ()),
    case("TxnlogCopiesShort", "9m", ORDERS_OF_LOG, topic_short_messages=(A % ORDERS, "1x10")),
    case("TxnlogCopiesShort", "9m", LOG, short_messages=(A % "", "1x10")),
    case("TxnlogCopiesShort", "9m", topic_short_messages=(A % ORDERS, "5 5 5 0 5 5 5 0 5 5 5")),
    case(
        "TxnlogBacklogGrows", "60m", ORDERS_OF_LOG | {"subscription": "booking"},
        subscription_backlog_seconds=(A % BOOKING, "1000x60"),
        subscription_backlog_messages=(A % BOOKING, "0+100x60"),
    ),
    case(
        "TxnlogBacklogGrows", "60m",
        subscription_backlog_seconds=(A % BOOKING, "1000x60"),
        subscription_backlog_messages=(A % BOOKING, "9000-100x60"),
    ),
    case(
        "TxnlogNobodyConsumes", "60m", ORDERS_OF_LOG | {"subscription": "booking"},
        subscription_consumers=(A % BOOKING, "0x60"), subscription_backlog_seconds=(A % BOOKING, "4000x60"),
    ),
    case(
        "TxnlogNobodyConsumes", "60m",
        subscription_consumers=(A % BOOKING, "1x60"), subscription_backlog_seconds=(A % BOOKING, "4000x60"),
    ),
    case("TxnlogNoAppends", "120m", LOG, appended_messages_total=(A % "", "0+10x60 600x90")),
    case("TxnlogNoAppends", "120m", appended_messages_total=(A % "", "0+10x120")),
    case("TxnlogNoAppends", "120m", appended_messages_total=(A % "", "0x120")),  # it never was written to
    # A quiet log beside a busy one is told.
    Case(
        "TxnlogNoAppends",
        {f"txnlog_appended_messages_total{A % ''}": "0+10x60 600x90",
         f"txnlog_appended_messages_total{OTHER % ''}": "0+10x150"},
        "120m",
        (LOG,),
    ),
    # A service that was started again, and counts from 0, is no append.
    case("TxnlogNoAppends", "120m", LOG, appended_messages_total=(A % "", "0+10x60 600x30 0x60")),
    case(
        "TxnlogErrors", "15m", {"instance": "a", "code": "UNAVAILABLE"},
        calls_total=(A % ', call="Append", code="UNAVAILABLE"', "0+60x20"),
    ),
    case("TxnlogErrors", "15m", calls_total=(A % ', call="GetView", code="TOPIC_NOT_FOUND"', "0+60x20")),
    *(
        Case(
            "TxnlogSlowWrites",
            {"txnlog_call_seconds_bucket" + A % f', call="Append", le="{le}"': f"0+{count}x30"
             for le, count in (("0.5", fast), ("2.5", 100), ("+Inf", 100))},
            "20m",
            told,
        )
        for fast, told in ((90, ({"instance": "a"},)), (100, ()))
    ),
    # The first fallback after a start counts, since the counter begins at 0.
    case("TxnlogFallbackReads", "5m", {"tier": "tiered"}, client_fallbacks_total=(A % ', tier="tiered"', "0 0 1x10")),
    case("TxnlogFallbackReads", "30m", client_fallbacks_total=(A % ', tier="tiered"', "0 0 1x40")),
    case(
        "TxnlogTokensRefused", "15m", {"reason": "expired"},
        refused_requests_total=(A % ', reason="expired"', "0+60x20"),
    ),
    case("TxnlogTokensRefused", "15m", refused_requests_total=(A % ', reason="rate"', "0+60x20")),
    case("TxnlogLimited", "20m", {"instance": "a"}, refused_requests_total=(A % ', reason="rate"', "0+120x20")),
    case("TxnlogLimited", "20m", refused_requests_total=(A % ', reason="expired"', "0+120x20")),
    case(
        "TxnlogBackgroundStopped", "10m", {"task": "figures"},
        background_last_success_timestamp_seconds=(A % ', task="figures"', "60x20"),
    ),
    case(
        "TxnlogBackgroundStopped", "10m",
        background_last_success_timestamp_seconds=(A % ', task="figures"', "0+60x20"),
    ),
    case(
        "TxnlogBackgroundStopped", "10m",
        background_last_success_timestamp_seconds=(A % ', task="policies"', "0x20"),
    ),
    case("TxnlogOffloadHangs", "5m", LOG, oldest_offload_seconds=(A % "", "8000x5")),
    case("TxnlogOffloadHangs", "5m", oldest_offload_seconds=(A % "", "600x5")),
    case("TxnlogDatabaseBusy", "9m", {"instance": "a"}, database_waiting_writes=(A % "", "600x10")),
    case("TxnlogDatabaseBusy", "7m", database_waiting_writes=(A % "", "600 600 0 600 600 600 600 600 600 600")),
]  # fmt: skip


def evaluated(one: Case) -> dict[str, Any]:
    """Return a case as promtool takes it."""
    samples = [
        {"labels": "ALERTS" + labels_of({"alertname": one.alert, "alertstate": "firing", **labels}), "value": 1}
        for labels in one.told
    ]
    shown = ", ".join(sorted({"alertname", "alertstate", *(label for labels in one.told for label in labels)}))
    expression = f'sum by ({shown}) (ALERTS{{alertname="{one.alert}", alertstate="firing"}})'
    for sample in samples:
        sample["labels"] = sample["labels"].removeprefix("ALERTS")
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in one.series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": one.at, "exp_samples": samples}],
    }


def labels_of(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    """Feed the rules with figures over time, and look who is told; each alert has a case of both kinds."""
    assert {one.alert for one in CASES if one.told} == {one.alert for one in CASES if not one.told} == set(RULES)
    file = tmp_path / "cases.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [evaluated(one) for one in CASES]}, width=1000)
    )
    promtool("test", "rules", str(file))


def test_what_is_told_can_be_read(tmp_path: Path) -> None:
    """Evaluate an alert with its texts: labels and values stand where they belong, odd names as they are."""
    topic = 'a \\"b\\" {{ c }}'
    name = f"txnlog_topic_held_back_seconds{A % f', topic={chr(34)}{topic}{chr(34)}'}"
    rule = RULES["TxnlogHangingTransaction"]
    said = 'a "b" {{ c }}: read_committed readers have waited 6m 40s for an open transaction'
    labels = {"severity": "page", "job": "log", "topic": 'a "b" {{ c }}'}
    told = {"exp_labels": labels, "exp_annotations": {"summary": said, "runbook": rule["annotations"]["runbook"]}}
    nameless = {"summary": said.replace('a "b" {{ c }}', "Some topic"), "runbook": rule["annotations"]["runbook"]}
    untold = {"exp_labels": {"severity": "page", "job": "log"}, "exp_annotations": nameless}
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": "400x10"}],
            "alert_rule_test": [{"alertname": rule["alert"], "eval_time": "5m", "exp_alerts": [alert]}],
        }
        for series, alert in ((name, told), ("txnlog_held_back_seconds" + A % "", untold))
    ]
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": tests}, width=1000))
    promtool("test", "rules", str(file))
