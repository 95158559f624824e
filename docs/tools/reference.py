"""The reference: pages that are made of the code, so that they say what it does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from docs.tools.error_texts import CAUSES_AND_REMEDIES
from docs.tools.option_texts import DEFAULTS_AND_MEANINGS, FOREIGN_MEANINGS
from docs.tools.protocol import protocol
from docs.tools.python_names import python
from txn_source.cli.app import app
from txn_source.client.reading.columns import DEFAULT_COLUMNS, METADATA_COLUMNS
from txn_source.foreign.kafka import connector_options
from txn_source.foreign.kafka.format import FORMAT as KAFKA
from txn_source.foreign.pulsar.format import FORMAT as PULSAR
from txn_source.http.metric_list import LABELS, METRICS, SERVICE, Metric
from txn_source.metadata.service.requirements import REQUIREMENTS, Need, Of, Own
from txn_source.model.errors import ERROR_CLASSES, TxnLogError
from txn_source.model.policies import POLICIES
from txn_source.reading.options import BATCH_ONLY, READ, STREAM_ONLY
from txn_source.spark import options
from txn_source.upkeep.doctor.codes import CODES

ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yaml"
_BEHIND_GUIDES = "---\nsearch:\n  boost: 0.1\n---\n\n"
"""The search shows these pages, which have every word as a heading, behind those that explain it."""
_OF_EACH_COMMAND = ("Which log", "What the service is shown")
COLUMN_MEANINGS = {
    "__partition": "the partition's number",
    "__ledger_id": "of the message's position",
    "__entry_id": "of the message's position",
    "__batch_index": "the message's index in its entry",
    "__publish_time": "when the service registered it, in UTC; never goes back inside a partition",
    "__event_time": "what the producer gave, or null",
    "__topic": "the topic's name; also there by default in reads of several topics",
    "__producer_name": "who wrote it",
    "__sequence_id": "the producer's own number",
    "__txn_id": "of its transaction, null for a plain message",
    "__txn_status": "`committed`, `aborted` or `open`, as known when the read was planned; null for a plain message",
    "__properties": "what the producer gave, or null",
    "__key": "of a typed topic: the key that the producer gave, or null",
}


def pages() -> dict[str, str]:
    """Return the text of each page by its name on the site."""
    return {
        "reference/options.md": "".join(_options()),
        "reference/columns.md": "".join(_columns()),
        "reference/policies.md": "".join(_policies()),
        "reference/errors.md": "".join(_errors()),
        "reference/findings.md": "".join(_findings()),
        "reference/calls.md": "".join(_calls()),
        "reference/cli.md": "".join(_command_line()),
        "reference/metrics.md": "".join(_metrics()),
        "reference/python.md": _BEHIND_GUIDES + python(),
        "reference/protocol.md": _BEHIND_GUIDES + protocol(),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; bars inside of cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return (
        "".join(
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |\n" for line in lines
        )
        + "\n"
    )


def option_kinds() -> dict[str, tuple[str, ...]]:
    """Return the options of each kind of query, by the heading that they have in the reference."""
    read = tuple(name for name in options.BATCH_READ.values() if name not in options._INTERNAL)
    batch_only = [name for name in options._BATCH_ONLY if name not in options._INTERNAL]
    return {
        "Batch and streaming reads": tuple(name for name in read if name not in batch_only),
        "Batch reads only": tuple(batch_only),
        "Streaming reads only": options._STREAM_ONLY,
        "Writes": options._WRITE,
        "Batch writes only": options._BATCH_WRITE,
        "CREATE TABLE only": options._TABLE,
        "Catalogs, and txn_source.spark.read": (options.NATIVE_READS, "allowDrop"),
    }


def foreign_kinds() -> dict[str, tuple[str, ...]]:
    """Return the options of reads of Kafka's and Pulsar's logs that our own don't have."""
    own = {*READ, *BATCH_ONLY, *STREAM_ONLY}
    kafka = dict.fromkeys((*connector_options.READ_OPTIONS, *connector_options.BATCH_OPTIONS, *KAFKA.open_options))
    pulsar = dict.fromkeys(PULSAR.open_options)
    return {
        "Logs that Kafka wrote": tuple(name for name in kafka if name not in own),
        "Logs that Pulsar wrote": tuple(name for name in pulsar if name not in own),
    }


def _options() -> Iterator[str]:
    yield (
        '# Options of Spark\n\nThe options of `spark.read.format("txnlog")`, `readStream`, `write` and `writeStream`.'
        " Names are taken in any case. An option that doesn't apply to a kind of query is refused, and so is one that"
        " nobody knows.\n\n"
    )
    for heading, names in option_kinds().items():
        yield f"## {heading}\n\n"
        yield table(("option", "default", "meaning"), [(f"`{name}`", *DEFAULTS_AND_MEANINGS[name]) for name in names])
    for heading, names in foreign_kinds().items():
        yield f"## {heading}\n\nBesides those of reads that mean something there.\n\n"
        yield table(("option", "meaning"), [(f"`{name}`", FOREIGN_MEANINGS[name]) for name in names])


def _columns() -> Iterator[str]:
    yield (
        "# Columns\n\nA read has the topic's payload columns (of a raw topic `key binary` and `value binary`), then"
        " metadata columns. `metadataColumns` says which; those of `default` are marked.\n\n"
    )
    rows = [
        (f"`{name}`", f"`{field.type}`", "yes" if name in DEFAULT_COLUMNS else "", COLUMN_MEANINGS[name])
        for name, field in METADATA_COLUMNS.items()
    ]
    yield table(("column", "Arrow's type", "default", "meaning"), rows)
    yield (
        "Position and index together name a message: [message id](../glossary.md). Writes take `__key` (of a typed"
        " topic), `__partition`, `__event_time`, `__properties` and `__topic`;"
        " see [columns of a write](../exactly-once.md#columns-of-a-write).\n"
    )


def _policies() -> Iterator[str]:
    yield (
        "# Policies\n\nSet for a topic, a namespace or the broker; [tiers and policies](../tiers.md) says what they do"
        " and who wins. The second name is that of the setting in `broker.conf`.\n\n"
    )
    rows = [
        (
            f"`{p.name}`",
            f"`{p.setting}`",
            "" if p.default is None else f"`{getattr(p.default, 'value', p.default)}`",
            p.meaning,
        )
        for p in POLICIES.values()
    ]
    yield table(("policy", "in `broker.conf`", "unset means", "meaning"), rows)


def _errors() -> Iterator[str]:
    yield (
        "# Errors\n\nEvery error derives from `txn_source.TxnLogError`, carries `.code`, and reads `[TXNLOG_<CODE>]"
        " fact. What to do.`, in Spark too. What was refused changed nothing.\n\n"
    )
    for code, cls in sorted(ERROR_CLASSES.items()):
        cause, remedy = CAUSES_AND_REMEDIES[code]
        parent = cls.__bases__[0]
        kind = (
            f" It is a `{parent.__name__}`, too."
            if parent is not TxnLogError and issubclass(parent, TxnLogError)
            else ""
        )
        yield (
            f"## {code}\n\n`{cls.__name__}`: {inspect.cleandoc(cls.__doc__ or '')}{kind}\n\n"
            f"**Usual cause.** {cause}\n\n**What to do.** {remedy}\n\n"
        )


def _findings() -> Iterator[str]:
    yield (
        "# Findings of the doctor\n\nWhat [`txnlog doctor`](../doctor.md) can find, with its usual cause and what to"
        " do. Words in capitals stand for what the finding names.\n\n"
    )
    for code in sorted(CODES.values(), key=lambda code: code.name):
        yield (
            f"## {code.name}\n\n{code.severity.value.capitalize()}.\n\n**Usual cause.** {code.cause}\n\n"
            f"**What to do.** {code.remedy_for({})}\n\n"
        )


def _calls() -> Iterator[str]:
    yield (
        f"{_BEHIND_GUIDES}# Calls and roles\n\nWhat each call of the service needs of a [token](../access.md). This"
        " table is applied to every call, also to those that the console makes for its visitors; a call without a row"
        " is refused. A field that isn't set needs nothing. An id that names nothing, and one of a topic that the token"
        " has no role for, have the same answer.\n\n"
    )
    rows = []
    for name, rule in REQUIREMENTS.items():
        needs = [_need(need) for need in rule.needs] or ["a token"]
        if rule.cut:
            needs.append("the answer has what the token's roles show")
        audit = "" if rule.audited is None else _condition(rule.audited).strip() or "always"
        rows.append((f"`{name}`", "; ".join(needs), ", ".join(f"`{field}`" for field in rule.within), audit))
    yield table(("call", "needs", "held by the call itself against what is in its row", "in the audit"), rows)
    yield "\n`OpenProducer` is in the audit if it takes a transactional id over from somebody else.\n"
    yield "\n## Over HTTP\n\n"
    of_console = (
        "a token; figures of topics that it has a role for, all with `monitor` for `*`; the rest as the calls above"
    )
    needs_of = {
        "`/live`": "nothing",
        "`/ready`": "nothing; the errors are shown to `monitor` or `admin` for `*`",
        "`/metrics`": "`monitor` or `admin` for `*`",
        "the console's `/api/…`": of_console,
    }
    yield table(("path", "needs"), list(needs_of.items()))


def _need(need: Need) -> str:
    field, roles = f"`{need.field}`", " or ".join(f"`{role.value}`" for role in need.roles)
    text = {
        Of.LOG: f"{roles} for `*`",
        Of.SOME_TOPIC: f"{roles} for some topic",
        Of.TOPIC: f"{roles} for {field}",
        Of.NAMESPACE: f"{roles} for all topics of {field}",
        Of.PART_OF_NAMESPACE: f"{roles} for a topic of {field}",
        Of.PLACE: f"{field} lies in a [place](../access.md#places) that is listed",
        Of.SEGMENT: f"{field} is of one's own producers, or {roles} for `topic`",
    }.get(need.of)
    if text is None and need.of is Of.TRANSACTION:
        text = f"{field} is one's own" + (f", or {roles} for all topics that it wrote to" if need.own is Own.OR else "")
    if text is None:
        text = f"{roles} for the topic of {field}" + (", which is one's own" if need.own is Own.ONLY else "")
    return text + _condition(need.when)


def _condition(when: str) -> str:
    field, _, value = when.partition("=")
    if not field:
        return ""
    word = "unless" if field.startswith("not ") else "if"
    return f" {word} `{field.removeprefix('not ')}`" + (f" is `{value}`" if value else " is set")


def _command_line() -> Iterator[str]:
    command = typer.main.get_command(app)
    yield (
        "# Command line\n\nEach command has `--help`. Exit status: 0, 1 if the log refused (one line on standard error"
        " says what and why), 2 for wrong usage. `--json` is for programs. The parameters of `txnlog` itself may stand"
        " behind a command, too.\n\n"
    )
    yield from _command(command, "txnlog")


def _command(command: Any, name: str) -> Iterator[str]:
    level = "##" if " " not in name else "###"
    arguments = " ".join(_usage(p) for p in command.params if p.param_type_name == "argument")
    yield f"{level} {name}\n\n{inspect.cleandoc(command.help or '').replace(chr(12), '')}\n\n"
    if not getattr(command, "commands", None):
        yield f"`{' '.join(f'{name} [OPTIONS] {arguments}'.split())}`\n\n"
    rows = [_parameter(p) for p in command.params if p.name != "help" and (" " not in name or not _common(p))]
    if rows:
        yield table(("parameter", "default", "meaning"), rows)
    for child, sub in getattr(command, "commands", {}).items():
        yield from _command(sub, f"{name} {child}")


def _common(parameter: Any) -> bool:
    """True for what each command takes, and the page tells once."""
    return getattr(parameter, "hidden", False) or getattr(parameter, "rich_help_panel", "") in _OF_EACH_COMMAND


def _usage(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _parameter(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.name or '').upper()}`", "", getattr(parameter, "help", None) or ""
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    shown = getattr(parameter, "show_default", True)
    default = parameter.default if shown and parameter.default not in (None, False, (), []) else ""
    if callable(default) or "Sentinel" in type(default).__name__:
        default = ""
    default = shown if isinstance(shown, str) else getattr(default, "value", default)
    return names, f"`{default}`" if default != "" else "", parameter.help or ""


def _metrics() -> Iterator[str]:
    yield (
        "# Metrics\n\nWhat `txnlog serve --metrics-port` exports, besides the process's own (`process_...`);"
        " [the guide](../metrics.md) says how it is found. Those of a service it has counted since it began: add them"
        " up over services. Those of the log are the same from each of its services: take the highest. Each alert has"
        " its [runbook](../runbooks.md).\n\n"
    )
    used_by = alerts_by_metric()
    for heading, metrics in metric_kinds().items():
        yield f"## {heading}\n\n"
        rows = []
        for metric in metrics:
            labels = "".join(f"{', ' if number else '<br>'}`{label}`" for number, label in enumerate(metric.labels))
            alerts = [f"[{alert}](../runbooks.md#{alert.lower()})" for alert in used_by.get(metric.name, ())]
            text = f"{metric.text}. Alert: {', '.join(alerts)}" if alerts else metric.text
            rows.append((f"`{metric.name}`{labels}", metric.kind, text))
        yield table(("metric, and its labels", "kind", "meaning"), rows)
    yield "## Labels\n\n"
    yield table(("label", "values"), [(f"`{label}`", values) for label, values in LABELS.items()])


def metric_kinds() -> dict[str, list[Metric]]:
    """Return all metrics by the heading that they have in the reference."""
    kinds: dict[str, list[Metric]] = {"Of a service": [], "Of the log": [], "Of topics": [], "Of subscriptions": []}
    for metric in METRICS.values():
        own = {"topic": "Of topics", "subscription": "Of subscriptions"}.get(metric.name.split("_")[1], "Of the log")
        kinds["Of a service" if metric.of == SERVICE else own].append(metric)
    return kinds


def alerts_by_metric() -> dict[str, list[str]]:
    """Return the alerts that look at each metric, in the order of the rules."""
    by_sample = {sample: metric.name for metric in METRICS.values() for sample in metric.exported}
    rules = re.findall(r"- alert: (\w+)\n(.*?)annotations:", ALERTS.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, list[str]] = {}
    for alert, rule in rules:
        for name in dict.fromkeys(by_sample[sample] for sample in re.findall(r"\btxnlog_\w+", rule)):
            found.setdefault(name, []).append(alert)
    return found
