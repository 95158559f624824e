"""``txnlog serve``: the metadata service over a root, on a port, until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
from typing import Annotated

import typer

from txn_source.cli.connection import ROOT_VARIABLE, Root, address_of
from txn_source.cli.output import reports_errors

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 6650
_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_log = logging.getLogger("txnlog")


@reports_errors
def serve(
    context: typer.Context,
    root: Root = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Only this machine can reach the default one, because the service asks nobody"
            " for a password; 0.0.0.0 or :: opens it to the network."
        ),
    ] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = DEFAULT_PORT,
) -> None:
    """Run the metadata service of a log; a missing or empty root becomes a new log.

    One line is logged (on standard error) when it serves, with its address, and one when it has stopped. SIGTERM and
    Ctrl-C stop it: calls under way are finished, new ones refused.
    """
    path = _root(context, root)
    # Before any thread starts, so that all inherit it: the signals wait until sigwait takes them, wherever we are.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own report of a taken port would come before ours
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    from txn_source.client.target import Target
    from txn_source.metadata.server import Server

    target = Target.of(path, None, create=True)
    stub, storage_uri = target.open()
    log_id = stub.get_log().log_id
    stub.close()
    with Server(target.service(), f"[{host}]" if ":" in host and not host.startswith("[") else host, port) as server:
        _log.info("serving on %s, root %s, log %s", server.address, storage_uri, log_id)
        received = signal.Signals(signal.sigwait(_STOP_SIGNALS))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)  # a second one ends it at once
    _log.info("stopped serving on %s (%s)", server.address, received.name)


def _root(context: typer.Context, root: str | None) -> str:
    address = address_of(context).override(root, None)
    path = os.environ.get(ROOT_VARIABLE) or None if address.root is None else address.root
    if address.endpoint is not None or path is None:
        raise typer.BadParameter(
            f"A service runs over the folder of a log. Name it with --root PATH (or {ROOT_VARIABLE}), and no endpoint.",
            param_hint="'--root'",
        )
    return path
