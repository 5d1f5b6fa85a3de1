"""Executes the few ``kubectl`` commands that the documents show, on a cluster that is a file.

It knows what each manifest creates, so a command that names an object, a pod, a container or a label that no manifest
has fails, and so does an undo that leaves something. It starts no containers: ``exec`` of ``litelog status`` checks the
configuration that the pod has at that path.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from litelog.config import load_config

CLUSTER = Path(os.environ.get("HOME", ".")) / "cluster.json"


def main(arguments: list[str]) -> None:
    cluster: dict[str, Any] = json.loads(CLUSTER.read_text()) if CLUSTER.exists() else {}
    _run(arguments, cluster)
    CLUSTER.write_text(json.dumps(cluster))


def _run(arguments: list[str], cluster: dict[str, Any]) -> None:
    match arguments:
        case ["create", "secret", "generic", name, pair] if pair.startswith("--from-literal="):
            key, _, value = pair.partition("=")[2].partition("=")
            assert value, "an empty secret"
            _add(cluster, f"secret/{name}", {"stringData": {key: value}})
        case ["apply", "-f", path]:
            for document in yaml.safe_load_all(Path(path).read_text()):
                _add(cluster, f"{document['kind'].lower()}/{document['metadata']['name']}", document)
                if document["kind"] == "StatefulSet":
                    _require_volumes(cluster, document)
                    _scale(cluster, document, document["spec"]["replicas"])
        case ["scale", name, count] if count.startswith("--replicas="):
            _scale(cluster, cluster[name], int(count.partition("=")[2]))
        case ["delete", *what]:
            _delete(what, cluster)
        case _:
            _look(arguments, cluster)


def _delete(what: list[str], cluster: dict[str, Any]) -> None:
    match what:
        case ["-f", path]:
            for document in yaml.safe_load_all(Path(path).read_text()):
                if document["kind"] == "StatefulSet":
                    _scale(cluster, document, 0)
                del cluster[f"{document['kind'].lower()}/{document['metadata']['name']}"]
        case ["persistentvolumeclaim", "-l", label]:
            key, _, value = label.partition("=")
            found = [name for name in cluster if name.startswith("claim/") and cluster[name].get(key) == value]
            assert found, f"no claim has the label {label}"
            for name in found:
                del cluster[name]
            assert not cluster, f"an undo that leaves {sorted(cluster)}"
        case ["persistentvolumeclaim", name]:
            assert not [each for each in cluster if each.startswith("pod/")], "a pod still uses it"
            del cluster[f"claim/{name}"]
        case ["secret", name]:
            del cluster[f"secret/{name}"]
        case _:
            sys.exit(f"kubectl: cannot delete here: {what}")


def _look(arguments: list[str], cluster: dict[str, Any]) -> None:
    match arguments:
        case ["rollout", "status", name]:
            assert name in cluster, name
        case ["exec", pod, "-c", container, "--", "litelog", "status", "--config", path]:
            _require_container(cluster, pod, container)
            load_config(str(_mounted(cluster, pod, container, path)))
        case ["logs", pod, "-c", container]:
            _require_container(cluster, pod, container)
        case _:
            sys.exit(f"kubectl: no such command here: {arguments}")


def _add(cluster: dict[str, Any], name: str, document: dict[str, Any]) -> None:
    assert name not in cluster, f"{name} exists"
    cluster[name] = document


def _require_volumes(cluster: dict[str, Any], document: dict[str, Any]) -> None:
    """The config maps and secrets that the pods mount must exist."""
    for volume in document["spec"]["template"]["spec"]["volumes"]:
        name = f"configmap/{volume['configMap']['name']}" if "configMap" in volume else ""
        name = name or f"secret/{volume['secret']['secretName']}"
        assert name in cluster, f"{name} does not exist: no pod would start"


def _scale(cluster: dict[str, Any], document: dict[str, Any], count: int) -> None:
    """Make or delete the pods of a stateful set. Its claims stay."""
    name, spec = document["metadata"]["name"], document["spec"]
    for pod in [each for each in cluster if each.startswith(f"pod/{name}-")]:
        del cluster[pod]
    for number in range(count):
        template = spec["template"]["spec"]
        containers = [each["name"] for each in (*template["initContainers"], *template["containers"])]
        cluster[f"pod/{name}-{number}"] = containers
        for claim in spec["volumeClaimTemplates"]:
            cluster[f"claim/{claim['metadata']['name']}-{name}-{number}"] = spec["selector"]["matchLabels"]


def _mounted(cluster: dict[str, Any], pod: str, container: str, path: str) -> Path:
    """A copy of the file that a container has at ``path``, from a config map."""
    spec = cluster[f"statefulset/{pod.rpartition('-')[0]}"]["spec"]["template"]["spec"]
    (found,) = [each for each in (*spec["initContainers"], *spec["containers"]) if each["name"] == container]
    (mount,) = [each for each in found["volumeMounts"] if each["mountPath"] == str(Path(path).parent)]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    copy = CLUSTER.with_name(Path(path).name)
    copy.write_text(cluster[f"configmap/{volume['configMap']['name']}"]["data"][Path(path).name])
    return copy


def _require_container(cluster: dict[str, Any], pod: str, container: str) -> None:
    assert container in cluster[f"pod/{pod}"], f"{pod} has {cluster[f'pod/{pod}']}"


if __name__ == "__main__":
    main(sys.argv[1:])
