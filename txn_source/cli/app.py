"""The command line's entry point: the tree of commands.

Modules that take long to import (Arrow, gRPC, SQL, Rich's tables) are imported inside commands, so that ``--help`` and
typing errors answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from txn_source.cli import (
    backups,
    brokers,
    console,
    consume,
    doctor,
    garbage,
    imports,
    maintain,
    migrate,
    namespaces,
    produce,
    quarantine,
    recovery,
    roots,
    serve,
    spark_jar,
    subscriptions,
    tokens,
    topics,
    transactions,
)
from txn_source.cli.connection import Address, Endpoint, Root, TlsCa, TlsCert, TlsKey, TokenFile

app = typer.Typer(
    name="txnlog",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # paragraphs are filled
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"txnlog {version('txn-source')}")
        raise typer.Exit


@app.callback()
def txnlog(
    context: typer.Context,
    root: Root = None,
    endpoint: Endpoint = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A transactional log without brokers, read and written by Spark.

    Exit status: 0, 1 if the log refused (one line on standard error says what and why), 2 for wrong usage.
    """
    shown = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key, "token_file": token_file}
    context.obj = Address(root, endpoint).showing(**shown)


app.command("serve")(serve.serve)
app.add_typer(topics.app, name="topics")
app.add_typer(namespaces.app, name="namespaces")
app.add_typer(brokers.app, name="brokers")
app.add_typer(roots.app, name="roots")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(transactions.app, name="transactions")
app.add_typer(subscriptions.app, name="subscriptions")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("import")(imports.import_)
app.command("console")(console.console)
app.command("maintain")(maintain.maintain)
app.command("backup")(backups.backup)
app.command("restore")(backups.restore)
app.command("after-restore")(backups.after_restore)
app.command("recover")(recovery.recover)
app.command("salvage")(recovery.salvage)
app.command("migrate")(migrate.migrate)
app.command("gc")(garbage.collect)
app.command("doctor")(doctor.doctor)
app.add_typer(tokens.app, name="tokens")
app.command("spark-jar")(spark_jar.spark_jar)


_INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def main() -> None:
    """Run the command line and exit with its status.

    SIGTERM and SIGHUP are taken as Ctrl-C is: a command gives up in order what it holds, such as a transaction. Its
    status is 128 and the signal's number then. A second signal ends it at once.
    """
    _open_standard_streams()
    told: list[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        for each in ends:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in ends:
        signal.signal(each, end)
    try:
        app(prog_name="txnlog")
    except SystemExit as error:
        interrupted = told and error.code == _INTERRUPTED
        raise SystemExit(128 + told[0] if interrupted else error.code) from None


def _open_standard_streams() -> None:
    """Open the standard streams that the caller closed (``2>&-``), so that what is told there goes nowhere.

    Otherwise the first file that is opened gets such a stream's number, and what a library tells there gets into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115, for as long as the process lives
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
