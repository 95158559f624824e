"""``txnlog serve``: the metadata service over a root, with maintenance, on a port, until it is told to stop."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli.access_options import (
    AccessOptions,
    AuditLog,
    Insecure,
    MaxAnswers,
    MaxCalls,
    MaxConsumers,
    MaxRequest,
    MaxTransactions,
    Place,
    TlsCert,
    TlsClientCa,
    TlsKey,
    TokenAudience,
    TokenIssuer,
    TokenKeys,
    library,
)
from txn_source.cli.connection import METADATA_VARIABLE, ROOT_VARIABLE, Root, address_of, database_of
from txn_source.cli.maintain import DEFAULT_SNAPSHOTS, SnapshotInterval
from txn_source.cli.output import reports_errors
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import parse_duration
from txn_source.observing.log_format import LogFormat, log_to_standard_error
from txn_source.storage.allowed_places import limited_to
from txn_source.storage.object_uri import is_object_uri, is_relative
from txn_source.storage.root import check_no_memory

if TYPE_CHECKING:
    from txn_source.console.serving import Console
    from txn_source.http.listener import Certificates
    from txn_source.http.monitoring import Monitoring
    from txn_source.metadata.access.door import Door
    from txn_source.metadata.service.service import MetadataService
    from txn_source.metadata.store.database_url import DatabaseUrl
    from txn_source.storage.object_root import Root as LogPlace

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 6650
DEFAULT_INTERVAL = "60s"
_WATCHED = "Who watches it"
_GRACE_S = 3.0
STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_log = logging.getLogger("txnlog")


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often a log is maintained, and its metadata snapshotted, in seconds; 0 and None: never."""

    interval_s: float
    snapshot_interval_s: float | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a service shows over HTTP, each on a port if there is one: metrics, so many topics with their own, and the
    console, with the names that it is known by."""

    metrics_port: int | None
    metrics_topics: int
    console_port: int | None
    console_names: tuple[str, ...]


@reports_errors
def serve(
    context: typer.Context,
    root: Root = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Only this machine can reach the default one; 0.0.0.0 or :: opens it to the"
            " network, which needs --tls-cert, or --insecure."
        ),
    ] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = DEFAULT_PORT,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Policies for all topics, in the syntax of Pulsar's broker.conf. Without it: broker.conf in the root,"
            " if there is one, which embedded logs take too.",
            show_default=False,
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="PostgreSQL database for the metadata, postgresql://user@host/database; several services may share it."
            " With a root on an object store it is needed; a SQLite file's path will do for one service."
            f" A URL with a password is better set as {METADATA_VARIABLE}: others on this machine see command lines."
            " Without it: SQLite in the root.",
            show_default=False,
        ),
    ] = None,
    maintenance_interval: Annotated[
        str,
        typer.Option(
            metavar="AGE",
            help="How often topics' policies are carried out (offload, deletion, retention): 60s, 10m. 0 is never.",
        ),
    ] = DEFAULT_INTERVAL,
    snapshot_interval: SnapshotInterval = DEFAULT_SNAPSHOTS,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port for metrics (/metrics) and checks (/live, /ready) over HTTP; 0 takes a free one. It has the"
            " address and certificates of the other port; where calls need a token, /metrics does, too.",
            rich_help_panel=_WATCHED,
            show_default=False,
        ),
    ] = None,
    metrics_topics: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="So many topics, and subscriptions, have metrics of their own: those that hold back most.",
            rich_help_panel=_WATCHED,
        ),
    ] = 100,
    console_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port for the console, a page for the browser; 0 takes a free one. It has the address and certificates"
            " of the other port; where calls need a token, the page asks for one.",
            rich_help_panel=_WATCHED,
            show_default=False,
        ),
    ] = None,
    console_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which browsers reach the console beside its address, such as a proxy's.",
            rich_help_panel=_WATCHED,
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="How lines of the log are written, on standard error.", rich_help_panel=_WATCHED),
    ] = LogFormat.TEXT,
    traces: Annotated[
        bool,
        typer.Option(
            "--traces",
            help="Send spans of calls by OTLP to where OTEL_EXPORTER_OTLP_ENDPOINT says (txn-source[otel]).",
            rich_help_panel=_WATCHED,
        ),
    ] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = False,
    token_keys: TokenKeys = None,
    token_audience: TokenAudience = "txnlog",
    token_issuer: TokenIssuer = None,
    audit_log: AuditLog = None,
    max_calls: MaxCalls = None,
    max_answers: MaxAnswers = None,
    max_request: MaxRequest = None,
    max_consumers: MaxConsumers = None,
    max_transactions: MaxTransactions = None,
    place: Place = None,
) -> None:
    """Run the metadata service of a log; a missing or empty root becomes a new log.

    One line is logged (on standard error) when it serves, with its address, one when it has stopped, and one whenever
    maintenance did something. SIGTERM and Ctrl-C stop it: calls under way are finished, new ones refused.
    """
    path = root_of(context, root)
    access = AccessOptions(
        tls_cert,
        tls_key,
        tls_client_ca,
        insecure,
        token_keys,
        token_audience,
        token_issuer,
        audit_log,
        max_calls,
        max_answers,
        max_request,
        max_consumers,
        max_transactions,
        place,
    )
    access.check(host)
    rounds = Rounds(parse_duration(maintenance_interval), parse_duration(snapshot_interval) or None)
    configuration = None
    if config is not None:
        from txn_source.client.target import read_configuration

        configuration = read_configuration(config)
    # Before any thread starts, so that all inherit it: the signals wait until sigwait takes them, wherever we are.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own report of a taken port would come before ours
        log_to_standard_error(log_format.value)
        for name in ("txn_source.client.target", "botocore"):
            logging.getLogger(name).setLevel(logging.WARNING)  # the first line is that it serves

        ending = _traced() if traces else nullcontext()
        shown = Shown(metrics_port, metrics_topics, console_port, tuple(console_name or ()))
        with ending:
            _serve(path, metadata, address_for(host), port, configuration, rounds, access, shown)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    path: str,
    metadata: str | None,
    host: str,
    port: int,
    configuration: dict[str, Any] | None,
    rounds: Rounds,
    access: AccessOptions,
    shown: Shown,
) -> None:
    from txn_source.cli.background import BackgroundMaintenance
    from txn_source.client.target import open_service
    from txn_source.metadata.service.in_process import InProcessTransport
    from txn_source.metadata.service.ports import allow_files, bound
    from txn_source.metadata.service.server import Server
    from txn_source.metadata.stub.metadata_stub import MetadataStub
    from txn_source.storage.object_root import root_at
    from txn_source.storage.root import LogRoot

    own = None if configuration is None else configuration.get("offload_uri")
    if own is not None and not is_relative(own):
        access = replace(access, places=[*(access.places or ()), own])  # the operator has listed it there
    tls, door = access.tls(), access.door()
    at = root_at(path)
    url = url_of(metadata, path)
    if not isinstance(at, Path) or not LogRoot(at).exists:
        bound(host, port).close()  # before a log is made for nothing
        for other in (shown.metrics_port, shown.console_port):
            if other is not None:
                bound(host, other).close()
    service = open_service(str(at), url, create=True, configuration=configuration)
    stub = MetadataStub(InProcessTransport(service))
    log = stub.get_log()
    stopped = True
    with ExitStack() as held:
        monitoring = _monitoring(service, at, host, shown, access, door)
        console = _console(service, at, host, shown, access, door)
        observer = None if monitoring is None else monitoring.observer
        maintenance = BackgroundMaintenance(service, at, rounds.interval_s, observer, rounds.snapshot_interval_s)
        allow_files()
        if door is not None and door.verifier is not None:
            held.enter_context(limited_to([*door.places, *(root.uri for root in stub.roots)]))
        server = held.enter_context(Server(service, host, port, tls=tls, door=door, observer=observer))
        _log.info("serving on %s, root %s, log %s", server.address, log.storage_uri, log.log_id)
        if monitoring is not None:
            held.enter_context(monitoring)
            _log.info("metrics on %s://%s/metrics", monitoring.listener.scheme, monitoring.listener.address)
        if console is not None:
            held.enter_context(console)
            _log.info("console on %s", console.address)
        held.enter_context(settled())
        if rounds.interval_s:
            maintenance.start()
        received = wait_for_stop()
        if rounds.interval_s:
            stopped = maintenance.stop(_GRACE_S)
    _log.info("stopped serving on %s (%s)", server.address, received.name)
    if not stopped:
        # Python would wait at its exit for libraries that the thread is inside of, for as long as an upload takes.
        logging.shutdown()
        os._exit(0)


def wait_for_stop() -> signal.Signals:
    """Wait for a signal to stop, and return it; a second signal ends the process at once."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(each)):  # the handler of the other commands
            signal.signal(each, signal.SIG_DFL)
    received = signal.Signals(signal.sigwait(STOP_SIGNALS))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return received


@contextmanager
def settled() -> Iterator[None]:
    """Leave what is loaded by now out of garbage collections: a full one stopped all calls for a tenth of a second,
    nearly all of it for modules that stay."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _traced() -> Iterator[None]:
    """Make spans, and send them."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidArgumentError(f"Traces need the package {error.name}.", "Install txn-source[otel].") from None
    from txn_source.observing.spans import switch_off, switch_on

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "txnlog"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    switch_on(provider)
    try:
        yield
    finally:
        switch_off()
        provider.shutdown()


def _monitoring(
    service: MetadataService, root: LogPlace, host: str, shown: Shown, access: AccessOptions, door: Door | None
) -> Monitoring | None:
    """Return what watches the service, if that is wanted; it listens, and doesn't answer yet."""
    if shown.metrics_port is None:
        return None
    with library():
        from txn_source.http.monitoring import Monitoring

    certificates, topics = _certificates(access), shown.metrics_topics
    return Monitoring(service, root, host, shown.metrics_port, certificates=certificates, door=door, max_topics=topics)


def _console(
    service: MetadataService, root: LogPlace, host: str, shown: Shown, access: AccessOptions, door: Door | None
) -> Console | None:
    """Return the console, if that is wanted; it listens, and doesn't answer yet."""
    if shown.console_port is None:
        return None
    with library():
        from txn_source.console.serving import Console

    certificates, names = _certificates(access), shown.console_names
    return Console(service, root, host, shown.console_port, certificates=certificates, door=door, names=names)


def _certificates(access: AccessOptions) -> Certificates | None:
    from txn_source.http.listener import Certificates

    if access.tls_cert is None or access.tls_key is None:
        return None
    return Certificates(access.tls_cert, access.tls_key, access.tls_client_ca)


def address_for(host: str) -> str:
    """Return a host as it stands before a port: one of IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def url_of(metadata: str | None, root: str) -> DatabaseUrl | None:
    """Return the database that an option or the environment names; None: the root has it.

    Of a root on an object store a SQLite file's path will do, too.
    """
    from txn_source.client.target import metadata_url
    from txn_source.metadata.store.database_url import DatabaseUrl

    text = database_of(metadata)
    if text is None:
        return None
    return metadata_url(text) if is_object_uri(root) else DatabaseUrl(text)


def root_of(context: typer.Context, root: str | None) -> str:
    """Return the folder of the log that a command is to work on."""
    address = address_of(context).override(root, None)
    path = os.environ.get(ROOT_VARIABLE) or None if address.root is None else address.root
    if address.endpoint is not None or path is None:
        raise typer.BadParameter(
            f"A service runs over the folder of a log. Name it with --root PATH (or {ROOT_VARIABLE}), and no endpoint.",
            param_hint="'--root'",
        )
    check_no_memory(path)
    return path
