"""Policies on the command line: an option for each, reading and writing their values, and the read priority's own form.

What ``txnlog topics``, ``txnlog namespaces`` and ``txnlog brokers`` say about policies is the same but for the place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from txn_source.cli import completion
from txn_source.cli.output import console, print_json, table
from txn_source.cli.units import format_duration, format_size
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.policies import DEFAULT, POLICIES, EffectivePolicy, parse_policy
from txn_source.model.read_priority import ReadPriority
from txn_source.model.roots import parse_roots
from txn_source.model.topic_name import parse_namespace
from txn_source.model.units import parse_duration, parse_size

if TYPE_CHECKING:
    from txn_source.client.log import Log

_PANEL = "Policies"


@dataclass(frozen=True, slots=True)
class PolicyText:
    """How people write and read one policy: its option, and what it means if it is set nowhere."""

    metavar: str
    help: str
    unset: str
    parse: Callable[[str], Any] = str
    show: Callable[[Any], str] = str


POLICY_TEXTS = {
    "data_read_priority": PolicyText(
        "VALUE", "Which copy of a ledger is read first: tiered-first or bookkeeper-first.", "", ReadPriority.parse
    ),
    "offload_uri": PolicyText(
        "URI",
        "Folder of the offloaded ledgers: a path (a relative one is inside the log's root), file://, s3://, gs:// or"
        " hdfs://. No credentials: they come from the environment, the profile or the machine's role.",
        "in the log's root",
    ),
    "offload_compression_level": PolicyText("N", "Level of zstd in offloaded ledgers, 1 to 22.", ""),
    "offload_after_age": PolicyText(
        "AGE", "Offload a ledger so long after it was closed: 1h, 7d.", "not by age", parse_duration, format_duration
    ),
    "offload_after_bytes": PolicyText(
        "SIZE", "Offload the oldest ledgers of a partition that has more hot bytes: 10g.", "not by size",
        parse_size, format_size,
    ),
    "offload_deletion_lag": PolicyText(
        "AGE", "Delete the hot copy so long after the offload: 4h.", "never", parse_duration, format_duration
    ),
    "retention_age": PolicyText(
        "AGE", "Trim ledgers whose last message is older: 7d.", "not by age", parse_duration, format_duration
    ),
    "retention_bytes": PolicyText(
        "SIZE", "Trim the oldest ledgers of a partition while the rest has so many bytes: 100g.", "not by size",
        parse_size, format_size,
    ),
    "hot_copies": PolicyText(
        "ROOTS", "Roots that have a copy of each hot entry: main,b (`txnlog roots list`).", "", parse_roots
    ),
    "acknowledge_copies": PolicyText(
        "N", "How many copies must be safe before a producer is told so.", "all of hot_copies"
    ),
}  # fmt: skip
"""Every policy by name, in the order in which help and tables list them."""

Remove = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POLICY", help="Unset one, such as offload-after-age; may be repeated.", show_default=False,
        rich_help_panel=_PANEL,
    ),
]  # fmt: skip
Priority = Annotated[
    str | None,
    typer.Argument(
        metavar="VALUE",
        help="tiered-first or bookkeeper-first.",
        show_default=False,
        autocompletion=completion.priorities,
    ),
]
PriorityOption = Annotated[
    str | None,
    typer.Option(
        "--data-read-priority", "-drp", metavar="VALUE", help="The value, as Pulsar's tool takes it.",
        show_default=False,
    ),
]  # fmt: skip


def takes_policies(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each policy; its parameter ``policies`` has those that were given, parsed."""

    @functools.wraps(function)
    def command(log: Log, **options: Any) -> None:
        given = {name: options.pop(name) for name in POLICY_TEXTS}
        function(log, **options, policies={n: _parsed(n, text) for n, text in given.items() if text is not None})

    hints = get_type_hints(function, localns={"Log": Any}, include_extras=True)
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name])
        for p in inspect.signature(function).parameters.values()
        if p.name not in ("log", "policies")
    ]
    parameters = [
        inspect.Parameter("log", inspect.Parameter.POSITIONAL_ONLY, annotation=Any),
        *own,
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name))
            for name in POLICY_TEXTS
        ),
    ]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def change_policies(
    log: Log, policies: Mapping[str, Any], remove: Sequence[str] | None, topic: str | None, namespace: str | None
) -> None:
    """Set some policies of a topic, a namespace or (neither) the broker, unset others, and say so."""
    removed = [name.strip().lower().replace("-", "_") for name in remove or ()]
    for name in removed:
        if name not in POLICIES:
            parse_policy(name, None)
        if name in policies:
            raise typer.BadParameter(f"{name} is to be set, too.", param_hint="'--remove'")
    if not policies and not removed:
        options = ", ".join(_flag(name) for name in POLICY_TEXTS)
        raise typer.BadParameter(f"No policy is given. Give one of {options}, or --remove.")
    log.set_policies(topic, namespace, **policies, **dict.fromkeys(removed))
    done = [f"{name} = {policy_text(name, value)}" for name, value in policies.items()]
    done += [f"{name} is unset" for name in removed]
    print(f"Policies of {_place(topic, namespace)}: {', '.join(done)}.")


def print_in_force(found: Mapping[str, EffectivePolicy], *, as_json: bool) -> None:
    """Print every policy of a topic with its value and where that comes from."""
    if as_json:
        print_json(found)
        return
    listing = table("", "Policy", "Value", "From")
    for name in POLICY_TEXTS:
        listing.add_row(name, policy_text(name, found[name].value), found[name].source)
    console().print(listing)


def print_set(log: Log, namespace: str | None, *, as_json: bool) -> None:
    """Print the policies that are set for a namespace or (None) the broker, and no others."""
    found = _set_for(log, namespace)
    if as_json:
        print_json(found)
    elif found:
        listing = table("", "Policy", "Value")
        for name in POLICY_TEXTS:
            if name in found:
                listing.add_row(name, policy_text(name, found[name]))
        console().print(listing)
    else:
        print(f"No policy is set for {_place(None, namespace)}.")


def set_priority(
    log: Log, value: str | None, option: str | None, topic: str | None = None, namespace: str | None = None
) -> None:
    """Set the read priority that was given as an argument or as an option."""
    text = option if value is None else value
    if text is None or (value is not None and option is not None):
        given = "Neither is given" if text is None else "Both are given"
        raise typer.BadParameter(f"{given}. Name one priority.", param_hint="'VALUE' / '--data-read-priority'")
    wanted = ReadPriority.parse(text)
    log.set_data_read_priority(wanted, topic, namespace)
    print(f"Read priority of {_place(topic, namespace)}: {wanted}.")


def own_priority(log: Log, namespace: str | None = None) -> EffectivePolicy | None:
    """Return the read priority that is set for a namespace or (None) the broker; None if it is unset there."""
    value = log.get_data_read_priority(namespace=namespace)
    return None if value is None else EffectivePolicy(value, "broker" if namespace is None else "namespace")


def print_priority(found: EffectivePolicy | None, *, as_json: bool) -> None:
    """Print a read priority; JSON says where it comes from, too. None is unset."""
    if as_json:
        print_json({"value": None if found is None else found.value, "source": None if found is None else found.source})
    else:
        print("unset" if found is None else found.value)


def remove_priority(log: Log, topic: str | None = None, namespace: str | None = None) -> None:
    """Unset a read priority and say so."""
    log.remove_data_read_priority(topic, namespace)
    print(f"Read priority of {_place(topic, namespace)}: unset.")


def policy_text(name: str, value: Any) -> str:
    """Return a policy's value as people read it."""
    known = POLICY_TEXTS[name]
    return known.unset if value is None else known.show(value)


def origin(policy: EffectivePolicy) -> str:
    """Return in words where a policy comes from."""
    return "by default" if policy.source == DEFAULT else f"set for the {policy.source}"


def _set_for(log: Log, namespace: str | None) -> Mapping[str, Any]:
    from txn_source.model.policies import Scope

    return log.metadata.get_policies(Scope(namespace=None if namespace is None else parse_namespace(namespace)))


def _place(topic: str | None, namespace: str | None) -> str:
    if topic is not None:
        return f"topic {topic!r}"
    return "the broker" if namespace is None else f"namespace {namespace!r}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option(name: str) -> Any:
    known = POLICY_TEXTS[name]
    flags = [_flag(name), *(["-drp"] if name == "data_read_priority" else [])]
    return Annotated[
        str | None,
        typer.Option(*flags, metavar=known.metavar, help=known.help, show_default=False, rich_help_panel=_PANEL),
    ]


def _parsed(name: str, text: str) -> Any:
    try:
        return parse_policy(name, POLICY_TEXTS[name].parse(text))
    except InvalidArgumentError as error:
        fact = error.fact.removeprefix(f"Policy {name!r}: ")
        raise InvalidArgumentError(f"{_flag(name)}: {fact}", error.remedy) from None
