"""The files of ``deploy``: they are what their programs take, fit each other, and start what this release has."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml

from txn_source.cli.app import app

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
UNIT = (DEPLOY / "txnlog.service").read_text(encoding="utf-8")
MANIFEST: list[Any] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
BIN = Path(sys.executable).parent


def of_kind(kind: str) -> Any:
    [found] = [each for each in MANIFEST if each["kind"] == kind]
    return found


DEPLOYED = of_kind("Deployment")["spec"]
POD = DEPLOYED["template"]["spec"]
JOB_POD = of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
[SERVICE], [GC] = POD["containers"], JOB_POD["containers"]


def instructions(name: str) -> list[str]:
    """Return what a Dockerfile's instructions of a name say."""
    return [line.partition(" ")[2].strip() for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")]


def parse(arguments: list[str]) -> dict[str, Any]:
    """Return the options of a command line of txnlog; one that isn't there fails."""
    command: Any = typer.main.get_command(app)
    context = click.Context(command, info_name="txnlog")
    name, found, rest = command.resolve_command(context, arguments)
    given: dict[str, Any] = found.make_context(name, rest, parent=context).params
    return given


# The image


def test_image_runs_as_nobody_in_particular() -> None:
    """The user has a number, which Kubernetes can tell from root's, and is the manifest's; nothing is added as root."""
    [user] = instructions("USER")
    context = POD["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert int(context["runAsUser"]) > 0
    assert DOCKERFILE.index("USER ") > DOCKERFILE.rindex("\nRUN ")


def test_image_starts_the_command_line() -> None:
    """The entry point is a list, so that signals reach it, and its default command can be parsed."""
    [entry], [command] = instructions("ENTRYPOINT"), instructions("CMD")
    assert yaml.safe_load(entry) == ["txnlog"]
    assert yaml.safe_load(command) == ["serve", "--help"]
    assert instructions("EXPOSE") == [" ".join(str(port["containerPort"]) for port in SERVICE["ports"])]


def test_images_python_is_one_that_the_package_takes() -> None:
    """Both stages begin with the same image, by a version."""
    bases = {each.split()[0] for each in instructions("FROM")}
    [base] = bases
    assert re.fullmatch(r"python:3\.1[1-9]-slim", base)


@pytest.mark.long
def test_image_is_built_as_written(tmp_path: Path) -> None:
    """Run the Dockerfile's commands in a fresh environment: the service is there and starts, without Spark."""
    venv.create(tmp_path / "image", with_pip=True)
    (tmp_path / "source").mkdir()
    wanted = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    for name in wanted:
        subprocess.run(["cp", "-r", "--parents", name, tmp_path / "source"], cwd=DEPLOY.parent, check=True)
    environment = {"PATH": f"{tmp_path}/image/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    for run in instructions("RUN"):
        code = re.sub(r"--mount=\S+", "", run).replace("/wheels", str(tmp_path / "wheels"))
        done = subprocess.run(
            ["sh", "-e", "-c", code], cwd=tmp_path / "source", env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    missing = [tmp_path / "image/bin/python", "-c", "import pyspark"]
    assert subprocess.run(missing, env=environment, capture_output=True).returncode != 0
    for line in (["serve", "--help"], ["gc", "--help"], ["tokens", "--help"], ["maintain", "--help"]):
        done = subprocess.run(["txnlog", *line], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    served = subprocess.Popen(
        ["txnlog", "serve", "--root", tmp_path / "log", "--port", "0"], env=environment, stderr=subprocess.PIPE
    )
    assert served.stderr is not None
    assert b"serving on" in served.stderr.readline()
    served.terminate()
    assert b"SIGTERM" in served.communicate()[1]
    assert served.returncode == 0


# systemd


def test_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Verify the unit, with this installation's command, and how much it leaves open."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    unit, command = tmp_path / "txnlog.service", tmp_path / "bin"
    command.symlink_to(BIN)  # whose path may have a space, which ExecStart would take for its end
    unit.write_text(UNIT.replace("/opt/txnlog/bin", str(command)))
    verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run([analyze, "security", "--offline=yes", unit], capture_output=True, text=True)
    level = re.search(r"exposure level for txnlog\.service: ([\d.]+)", judged.stdout)
    assert level is None or float(level[1]) < 2  # older ones judge loaded units only


def test_unit_starts_a_service() -> None:
    """Parse its command line, and see that it stops later than the service needs, and starts again."""
    [line] = re.findall(r"^ExecStart=(.*)$", UNIT.replace("\\\n", " "), re.MULTILINE)
    program, *arguments = shlex.split(line)
    assert program.endswith("/txnlog")
    assert arguments[0] == "serve"
    given = parse(arguments)
    assert (given["host"], given["port"], given["insecure"]) == ("::", 6650, False)
    assert given["tls_cert"]
    assert given["token_keys"]
    assert "Restart=always" in UNIT


# Kubernetes


def test_manifest_is_what_kubernetes_takes() -> None:
    """Validate against the schemas of several releases."""
    validate = pytest.importorskip("kubernetes_validate")
    for release in ("1.28", "1.33"):
        for each in MANIFEST:
            validate.validate(each, release, strict=True)
        with pytest.raises(validate.ValidationError):
            validate.validate({**MANIFEST[0], "nonsense": 1}, release, strict=True)


def test_manifest_selects_its_pods() -> None:
    """Whatever has a selector selects the service's pods, and those alone."""
    labels = DEPLOYED["template"]["metadata"]["labels"]
    other = of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    spread = POD["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    selectors = [DEPLOYED["selector"]["matchLabels"], of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    for selector in (*selectors, of_kind("Service")["spec"]["selector"], spread):
        assert selector.items() <= labels.items()
        assert not selector.items() <= other.items()
    assert of_kind("PodDisruptionBudget")["spec"]["minAvailable"] < DEPLOYED["replicas"]


def test_manifest_has_the_ports_of_the_service() -> None:
    """Service, probes and command line mean one port, and the collector calls the service by its name."""
    given = parse(SERVICE["args"])
    for port, exposed, option in zip(
        SERVICE["ports"], of_kind("Service")["spec"]["ports"], ("port", "metrics_port"), strict=True
    ):
        assert given[option] == port["containerPort"] == exposed["port"]
        assert exposed["targetPort"] == port["name"]
    for probe, path in (("startupProbe", "/live"), ("readinessProbe", "/ready"), ("livenessProbe", "/live")):
        assert SERVICE[probe]["httpGet"] == {"path": path, "port": "metrics", "scheme": "HTTPS"}
    parse(GC["args"])
    endpoint = {each["name"]: each.get("value") for each in GC["env"]}["TXNLOG_ENDPOINT"]
    assert endpoint == f"{of_kind('Service')['metadata']['name']}:{given['port']}"


@pytest.mark.parametrize(("pod", "container"), [(POD, SERVICE), (JOB_POD, GC)], ids=["service", "gc"])
def test_pods_may_do_little(pod: Any, container: Any) -> None:
    """No root, no new rights, no writing but to a folder of their own, no account of the cluster; what is mounted is
    there, and each file that is named lies in something mounted."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert set(container["resources"]) == {"requests", "limits"}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["volumes"]}
    named = re.findall(r"/etc/\S+", " ".join([*container["args"], *(e.get("value", "") for e in container["env"])]))
    assert named
    assert all(any(name.startswith(f"{mount}/") for mount in mounts.values()) for name in named)


def test_secrets_come_by_reference() -> None:
    """No Secret is in the manifest, and no environment variable with one has its value there."""
    assert not [each for each in MANIFEST if each["kind"] == "Secret"]
    for each in (*SERVICE["env"], *GC["env"]):
        if re.search(r"METADATA|KEY", each["name"]):
            assert "secretKeyRef" in each["valueFrom"]
