from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import txn_source

READING = [
    ("topics", "list"),
    ("topics", "stats", "orders"),
    ("topics", "delete", "orders", "--yes"),
    ("topics", "roll", "orders"),
    ("transactions", "list"),
    ("transactions", "show", "0:0"),
    ("transactions", "abort", "0:0"),
    ("subscriptions", "create", "orders", "booking"),
    ("subscriptions", "list", "orders"),
    ("subscriptions", "list"),
    ("subscriptions", "stats", "orders", "booking"),
    ("subscriptions", "seek", "orders", "booking", "--to", "earliest"),
    ("subscriptions", "set-isolation-level", "orders", "booking", "read_committed"),
    ("subscriptions", "delete", "orders", "booking", "--yes"),
    ("produce", "orders"),
    ("consume", "orders"),
    ("consume", "orders", "--subscription", "booking"),
    ("gc",),
    ("maintain",),
    ("topics", "offload", "orders"),
    ("topics", "delete-offloaded", "orders", "--yes"),
    ("topics", "delete-hot", "orders", "--yes"),
    ("topics", "trim", "orders", "--keep-bytes", "0", "--yes"),
    ("topics", "set-policies", "orders", "--retention-age", "7d"),
    ("topics", "get-policies", "orders"),
    ("topics", "set-data-read-priority", "orders", "tiered-first"),
    ("topics", "get-data-read-priority", "orders"),
    ("topics", "remove-data-read-priority", "orders"),
    ("namespaces", "set-policies", "public/default", "--retention-age", "7d"),
    ("namespaces", "get-policies", "public/default"),
    ("namespaces", "get-data-read-priority", "public/default"),
    ("brokers", "set-policies", "--retention-age", "7d"),
    ("brokers", "get-policies"),
    ("brokers", "get-data-read-priority"),
]


def test_only_serve_and_create_make_a_log(txnlog: Any, root: Path) -> None:
    """A wrong path must not become an empty log: run each other command on a missing root, and look for the folder."""
    for command in READING:
        result = txnlog(*command)
        assert (result.exit_code, result.stdout) == (1, ""), command
        assert result.stderr.startswith(f"[TXNLOG_LOG_NOT_FOUND] There is no log at {root}"), command
        assert not root.exists()


WITHOUT_A_UNIT = [
    ("topics", "set-policies", "orders", "--retention-age", "7"),
    ("topics", "set-policies", "orders", "--offload-after-age", "7"),
    ("topics", "set-policies", "orders", "--offload-deletion-lag", "7"),
    ("topics", "create", "others", "--retention-age", "7"),
    ("topics", "create", "others", "--ledger-max-age", "7"),
    ("namespaces", "set-policies", "public/default", "--retention-age", "7"),
    ("brokers", "set-policies", "--retention-age", "7"),
    ("topics", "trim", "orders", "--older-than", "7", "--yes"),
    ("gc", "--older-than", "7"),
    ("produce", "orders", "--txn-timeout", "7"),
]


def test_duration_without_a_unit_is_wrong_usage(txnlog: Any, log: txn_source.Log) -> None:
    """Write 7 where 7 days are meant: the error shows the units, and nothing is changed."""
    log.create_topic("orders")
    for command in WITHOUT_A_UNIT:
        result = txnlog(*command)
        assert (result.exit_code, result.stdout) == (2, ""), command
        assert "'7' has no unit. Write 7d, 7h, 7m, 7s or 7ms." in result.stderr, command
    assert log.topics() == ["orders"]
    assert log.policies("orders")["retention_age"].value is None


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (("maintain",), "txn_source.client.tiering.maintenance.maintain"),
        (("gc",), "txn_source.client.tiering.garbage.collect_garbage"),
        (("topics", "trim", "orders", "--keep-bytes", "0", "--yes"), "txn_source.Log.trim"),
        (("topics", "delete-hot", "orders", "--yes"), "txn_source.Log.delete_hot"),
        (("topics", "delete-offloaded", "orders", "--yes"), "txn_source.Log.delete_offloaded"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_interrupted_command_says_that_it_can_be_repeated(
    command: tuple[str, ...], call: str, txnlog: Any, log: txn_source.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Press Ctrl-C in a command that works step by step: one line, the shell's status, and the log isn't locked."""
    log.create_topic("orders")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(call, interrupted)
        result = txnlog(*command)
    assert result.exit_code == 130
    assert "Interrupted. What was done stays; run the command again for the rest.\n" in result.stderr
    assert "Traceback" not in result.stderr
    assert txnlog(*command).exit_code == 0


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        ([], {}),
        (["--root", "a", "--endpoint", "b:1"], {}),
        ([], {"TXNLOG_ROOT": "a", "TXNLOG_ENDPOINT": "b:1"}),
    ],
)
def test_one_log_must_be_named(given: list[str], environment: dict[str, str], bare: Any) -> None:
    """Neither and both of root and endpoint are wrong usage with a remedy: run with each and read the text."""
    result = bare(*given, "topics", "list", env=environment)
    text = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert ("Both are given" if given or environment else "Neither is given") in text
    assert "--root PATH (or TXNLOG_ROOT) for an embedded one" in text


def test_root_is_understood_before_and_after_the_subcommand_and_from_the_environment(
    bare: Any, log: txn_source.Log, root: Path
) -> None:
    """All places name the same log: list its topics with each."""
    log.create_topic("orders")
    for result in (
        bare("--root", root, "topics", "list"),
        bare("topics", "list", "--root", root),
        bare("topics", "list", env={"TXNLOG_ROOT": str(root)}),
        bare("--root", "elsewhere", "topics", "list", "--root", root),
        bare("topics", "list", "--root", root, env={"TXNLOG_ENDPOINT": "localhost:1"}),
    ):
        assert "orders" in result.stdout


REFUSED: list[tuple[tuple[str, ...], str]] = [
    (("transactions", "show", "seven"), "[TXNLOG_INVALID_ARGUMENT] 'seven' is not a transaction id."),
    (("gc", "--older-than", "old"), "[TXNLOG_INVALID_ARGUMENT] 'old' is not a duration."),
    (("consume", "orders", "--isolation-level", "x"), "[TXNLOG_INVALID_ARGUMENT] 'x' is not an isolation level."),
    (("consume", "orders", "--start", "{"), "[TXNLOG_INVALID_ARGUMENT] '{' is not JSON"),
    (
        ("consume", "orders", "--data-read-priority", "x"),
        "[TXNLOG_INVALID_ARGUMENT] 'x' is not a read priority. Use",
    ),
    (("topics", "trim", "orders", "--before", "x", "--yes"), "[TXNLOG_INVALID_ARGUMENT] 'x' is not a position"),
    (
        ("topics", "trim", "orders", "--before", "2026-13-01", "--yes"),
        "[TXNLOG_INVALID_ARGUMENT] '2026-13-01' is not",
    ),
    (("topics", "trim", "orders", "--older-than", "x"), "[TXNLOG_INVALID_ARGUMENT] 'x' is not a duration."),
    (("topics", "trim", "orders", "--keep-bytes", "x"), "[TXNLOG_INVALID_ARGUMENT] 'x' is not a size."),
    (("namespaces", "get-policies", "a/b/c"), "[TXNLOG_INVALID_ARGUMENT] 'a/b/c' is not a namespace."),
    (("topics", "create", "a/b"), "[TXNLOG_INVALID_ARGUMENT] 'a/b' is not a topic name."),
    (("topics", "create", "a", "--partitions", "0"), "Usage:"),
    (("topics", "nothing"), "Usage:"),
    (("consume",), "Usage:"),
]


def test_value_that_cannot_be_used_is_wrong_usage(txnlog: Any, log: txn_source.Log) -> None:
    """The caller must mend the command, not the log: give malformed values and expect status 2."""
    log.create_topic("orders")
    for arguments, error in REFUSED:
        result = txnlog(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert result.stderr.startswith(error), arguments


def test_version_is_that_of_the_package(bare: Any) -> None:
    """Compare what the command prints with the package's own number."""
    assert bare("--version").stdout == f"txnlog {txn_source.__version__}\n"


def test_help_answers_without_the_heavy_libraries() -> None:
    """Whoever asks for help shouldn't wait for Arrow, gRPC, SQL or Spark: look at what a help call has imported."""
    program = (
        "import sys\n"
        "from txn_source.cli.app import app\n"
        "app(['produce', '--help'], standalone_mode=False)\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'grpc', 'sqlalchemy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "--txn-size" in result.stdout


def test_error_that_nobody_foresaw_is_one_line(
    txnlog: Any, log: txn_source.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a command fail with an error that isn't the log's; a variable shows where it came from."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError("a\nb.")

    monkeypatch.setattr("txn_source.client.tiering.maintenance.maintain", fail)
    result = txnlog("maintain")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "[TXNLOG_INTERNAL] The command failed with ValueError: a b."
        " Please report it. It shows more if TXNLOG_TRACEBACK=1 is set.\n"
    )
    monkeypatch.setenv("TXNLOG_TRACEBACK", "1")
    with pytest.raises(ValueError, match="a\nb"):
        txnlog("maintain")


@pytest.mark.parametrize("root", ["x" * 300, "damaged"], ids=["name too long", "damaged database"])
def test_error_of_another_kind_is_one_line_too(bare: Any, tmp_path: Path, root: str) -> None:
    """List the topics of a root whose name no file system takes, and of one whose database isn't one."""
    path = tmp_path / root
    if root == "damaged":
        txn_source.connect(path).close()
        for file in path.glob("metadata.db*"):
            file.write_bytes(b"no database" * 1000)
    result = bare("--root", path, "topics", "list")
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("[TXNLOG_")


@pytest.mark.long
def test_standard_streams_may_be_closed(log: txn_source.Log, root: Path) -> None:
    """Close standard input and standard error, as who starts a service may: a command does what it does otherwise."""
    log.create_topic("orders")
    command = [sys.executable, "-m", "txn_source.cli", "doctor", "--root", str(root), "--topic", "orders"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.endswith("\n8 checks: nothing found.\n")) == (0, True), done.stdout
