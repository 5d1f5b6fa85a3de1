"""``etc/Containerfile`` and ``etc/kubernetes.yml`` name only commands, paths and ports that exist."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml
from starlette.routing import Route

from litelog.config import load_config
from litelog.config.models import DEFAULT_ADDR
from litelog.log.replica_registry import default_state_dir
from litelog.server.app import make_app
from litelog.units import parse_duration
from litelog_cli.config_file import DEFAULT_CONFIG
from tests.builders.command_lines import parse_command

ROOT = Path(__file__).resolve().parents[3]
ROUTES = {route.path for route in make_app(cast("Any", None), cast("Any", None)).routes if isinstance(route, Route)}
PORT = int(DEFAULT_ADDR.rpartition(":")[2])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", "", (ROOT / "etc" / "Containerfile").read_text())
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def last(word: str) -> str:
    return [rest for name, rest in instructions() if name == word][-1]


def test_the_last_image_runs_the_command_as_an_unprivileged_user() -> None:
    assert {name for name, _ in instructions()} <= {
        *("FROM", "COPY", "RUN", "ENV", "USER", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD")
    }
    froms = [at for at, (name, _) in enumerate(instructions()) if name == "FROM"]
    final = instructions()[froms[-1] :]
    users = [rest for name, rest in final if name == "USER"]
    assert users
    assert all(int(part) > 0 for part in users[-1].split(":"))
    assert "-slim" in last("FROM")
    version = re.search(r"python:(\d+\.\d+)", last("FROM"))
    assert version
    least = re.search(r"(\d+)\.(\d+)", PROJECT["project"]["requires-python"])
    assert least
    assert tuple(map(int, version[1].split("."))) >= tuple(map(int, least.groups()))


def test_the_build_has_a_compiler_and_the_python_of_the_last_image() -> None:
    build, final = (rest.split()[0] for name, rest in instructions() if name == "FROM")
    assert final == f"{build}-slim", "python:VERSION has gcc, and the slim image of the same Debian runs what it built"


def test_its_command_is_one_of_the_scripts_and_parses() -> None:
    (program,) = json.loads(last("ENTRYPOINT"))
    assert program in PROJECT["project"]["scripts"]
    parsed = parse_command(json.loads(last("CMD")))
    assert (parsed["verb"], parsed["config_file"]) == ("replicate", DEFAULT_CONFIG)


def test_it_installs_extras_that_exist_from_files_that_are_sent() -> None:
    (install,) = (rest for name, rest in instructions() if name == "RUN" and "pip install" in rest)
    extras = re.search(r"'\.\[([^]]+)\]'", install)
    assert extras
    assert set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = {path.split("/")[0] for path in (*wheel["packages"], *wheel["force-include"])}
    needed = packages | {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert needed == sent
    assert all((ROOT / path).exists() for path in sent)


def test_its_state_lies_in_its_volume_where_no_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = dict(pair.split("=", 1) for pair in last("ENV").split())
    monkeypatch.setenv("XDG_STATE_HOME", variables.get("XDG_STATE_HOME", ""))
    monkeypatch.setattr("os.geteuid", lambda: int(last("USER").split(":")[0]))
    assert default_state_dir() == last("VOLUME")


def test_compose_mounts_the_paths_of_the_image_and_waits_for_the_final_sync() -> None:
    services = yaml.safe_load((ROOT / "etc" / "compose.yml").read_text())["services"]
    mounts = [mount.split(":") for mount in services["litelog"]["volumes"]]
    assert {target for _, target, *_ in mounts} == {"/var/lib/events", last("VOLUME"), DEFAULT_CONFIG}
    assert services["server"]["volumes"][0].split(":") == mounts[0][:2]
    longest = load_config(ROOT / "etc" / "litelog.yml", {}).shutdown_timeout
    assert parse_duration(services["litelog"]["stop_grace_period"]) > longest
    assert list(services["server"]["depends_on"]) == ["litelog"]


def test_its_health_check_asks_where_the_daemon_listens() -> None:
    check = last("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")
    assert f"http://{DEFAULT_ADDR}/healthz" in command[2]
    assert "/healthz" in ROUTES


DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "etc" / "kubernetes.yml").read_text()))
POD: dict[str, Any] = next(each for each in DOCUMENTS if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
RESTORE, SIDECAR = POD["initContainers"]
(SERVER,) = POD["containers"]
CONFIG = load_config(next(each for each in DOCUMENTS if each["kind"] == "ConfigMap")["data"]["litelog.yml"], {})


@pytest.mark.slow
def test_kubernetes_knows_every_field() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for document in DOCUMENTS:
        validate.validate(document, "1.30", strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate({**DOCUMENTS[-1], "spec": {**DOCUMENTS[-1]["spec"], "replica": 2}}, "1.30", strict=True)


def test_the_commands_in_the_pod_exist_and_mean_the_configured_log() -> None:
    (log,) = CONFIG.logs
    restore = parse_command(RESTORE["args"])
    assert (restore["verb"], restore["if_not_exists"], restore["if_replica_exists"]) == ("restore", True, True)
    assert restore["output"] == log.path
    assert restore["replica_urls"] == tuple(replica.url for replica in log.replicas)
    sidecar = parse_command(SIDECAR["args"])
    mounted = {each["mountPath"]: each["name"] for each in SIDECAR["volumeMounts"]}
    assert sidecar["verb"] == "replicate"
    assert mounted[str(Path(str(sidecar["config_file"])).parent)] == "config"
    assert Path(str(sidecar["config_file"])).name in DOCUMENTS[0]["data"]
    with pytest.raises(click.NoSuchOption):
        parse_command([*RESTORE["args"], "--if-not-there"])


def test_the_log_lies_below_the_shared_volume_and_is_not_the_mount_itself() -> None:
    (log,) = CONFIG.logs
    for container in (RESTORE, SIDECAR, SERVER):
        (place,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "events")
        assert Path(log.path).parent == Path(place), "a mount point can be neither made nor exchanged by a restore"


def test_the_probes_request_paths_and_ports_that_the_daemon_serves() -> None:
    assert CONFIG.addr is not None
    assert int(CONFIG.addr.rpartition(":")[2]) == PORT
    assert not CONFIG.addr.startswith("127."), "the kubelet asks the pod's own address"
    ports = {port["name"]: port["containerPort"] for port in SIDECAR["ports"]}
    asked = {name: SIDECAR[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {ports[probe["port"]] for probe in asked.values()} == {PORT}
    assert {probe["path"] for probe in asked.values()} <= ROUTES
    assert asked["readinessProbe"]["path"] == "/readyz"
    assert asked["livenessProbe"]["path"] == "/livez", "a restart does not cure a replica that is late or damaged"


def test_state_and_token_are_where_the_configuration_says() -> None:
    mounted = {each["mountPath"] for each in SIDECAR["volumeMounts"]}
    assert CONFIG.state_dir in mounted
    assert CONFIG.token_file is not None
    assert str(Path(CONFIG.token_file).parent) in mounted
    assert [each for each in DOCUMENTS if each["kind"] == "Secret"] == [], "a token that everybody knows"
    (secret,) = [each["secret"]["secretName"] for each in POD["volumes"] if "secret" in each]
    created = f"kubectl create secret generic {secret} --from-literal={Path(CONFIG.token_file).name}="
    assert created in (ROOT / "etc" / "kubernetes.yml").read_text()
    assert created in (ROOT / "etc" / "docs" / "kubernetes.md").read_text()


def test_the_pod_waits_for_the_final_sync_which_comes_after_the_server() -> None:
    assert SIDECAR["restartPolicy"] == "Always", "only a sidecar is stopped after the server"
    drain = SERVER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["terminationGracePeriodSeconds"] >= drain + CONFIG.shutdown_timeout + 10


@pytest.mark.slow
def test_the_pods_containers_may_do_little() -> None:
    for container in (RESTORE, SIDECAR):
        allowed = container["securityContext"]
        assert allowed["capabilities"] == {"drop": ["ALL"]}
        assert allowed["readOnlyRootFilesystem"]
        assert not allowed["allowPrivilegeEscalation"]
    (numbers,) = (rest for name, rest in instructions() if name == "USER")
    assert POD["securityContext"]["runAsNonRoot"]
    assert numbers == "{runAsUser}:{runAsGroup}".format(**POD["securityContext"])
