"""``txnlog console``: the console of an embedded log, until it is told to stop."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from txn_source.cli.access_options import Insecure, library
from txn_source.cli.connection import METADATA_VARIABLE, Endpoint, Root, address_of
from txn_source.cli.output import reports_errors
from txn_source.cli.serve import DEFAULT_HOST, STOP_SIGNALS, address_for, root_of, settled, url_of, wait_for_stop
from txn_source.metadata.stub.credentials import is_loopback
from txn_source.model.errors import InvalidArgumentError

DEFAULT_CONSOLE_PORT = 6651


@reports_errors
def console(
    context: typer.Context,
    root: Root = None,
    endpoint: Endpoint = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Only this machine can reach the default one.")
    ] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = DEFAULT_CONSOLE_PORT,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"Where the metadata is, if it isn't in the root: as of `txnlog serve` (or set {METADATA_VARIABLE}).",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--console-name",
            metavar="NAME",
            help="A name by which browsers reach it beside its address, such as a proxy's.",
            show_default=False,
        ),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Show an embedded log in the browser: what is in it, who blocks whom, subscriptions, messages.

    The address is printed. Whoever reaches it may do everything that the console can, so only this machine does unless
    --host says otherwise. A log behind a service has its own console: `txnlog serve --console-port`.
    """
    if address_of(context).override(root, endpoint).endpoint is not None:
        raise InvalidArgumentError(
            "A log behind a service is shown by the service's own console.",
            "Start it with `txnlog serve --console-port 6651`, and open that port in the browser.",
        )
    if not insecure and not is_loopback(host):
        raise InvalidArgumentError(
            f"The console would listen on {host} in plain text, for whoever reaches it.",
            "Give --insecure if that is meant, or use `txnlog serve --console-port` with certificates and tokens.",
        )
    path = root_of(context, root)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before any thread starts: all inherit it
    try:
        _show(path, metadata, address_for(host), port, names or [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _show(path: str, metadata: str | None, host: str, port: int, names: list[str]) -> None:
    with library():
        from txn_source.console.serving import Console
    from txn_source.client.target import open_service
    from txn_source.storage.object_root import root_at

    at = root_at(path)
    service = open_service(str(at), url_of(metadata, path))
    try:
        with Console(service, at, host, port, names=names) as shown, settled():
            print(f"The console of {path} is at {shown.address}", flush=True)
            wait_for_stop()
    finally:
        service.close()
