"""What is loaded of botocore's description of S3: enough for every request, and no more."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botocore")

from botocore import xform_name
from botocore.regions import EndpointResolver
from botocore.session import Session

import replica_clients.s3
from replica_clients.s3.model_files import CLIENTS, OPERATIONS, SERVICES, ModelFiles, ServiceLoader

SENT_BY_BOTOCORE = {"head_bucket", "create_session"}


def load(name: str, *, whole: bool) -> Any:
    """A file of botocore's, as its own loader reads it, or as ours does."""
    loader = Session().get_component("data_loader")
    if not whole:
        loader.file_loader = ModelFiles()
    return loader.load_data(name)


def test_every_operation_that_the_package_names_is_kept_and_no_other() -> None:
    source = "".join(path.read_text() for path in Path(replica_clients.s3.__file__).parent.glob("*.py"))
    every = {xform_name(name) for name in load("s3/2006-03-01/service-2", whole=True)["operations"]}
    named = {name for name in re.findall(r'"([a-z_0-9]+)"', source) if name in every}
    assert {xform_name(name) for name in OPERATIONS} == named | SENT_BY_BOTOCORE


def test_kept_operations_are_described_as_botocore_describes_them() -> None:
    def undocumented(described: Any) -> Any:
        if isinstance(described, dict):
            return {key: "" if key == "documentation" else undocumented(value) for key, value in described.items()}
        return [undocumented(value) for value in described] if isinstance(described, list) else described

    whole, kept = (load("s3/2006-03-01/service-2", whole=each) for each in (True, False))
    assert kept["metadata"] == whole["metadata"]
    assert kept["operations"].keys() == OPERATIONS
    for part in ("operations", "shapes"):
        assert kept[part] == {name: undocumented(whole[part][name]) for name in kept[part]}
    assert len(json.dumps(kept)) < len(json.dumps(whole)) / 10


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_endpoints_are_those_of_botocore_in_each_region(service: str) -> None:
    described = load("endpoints", whole=True)
    places = [(part["partition"], name) for part in described["partitions"] for name in (*part["regions"], "new-1")]
    whole, kept = EndpointResolver(described), EndpointResolver(load("endpoints", whole=False))
    assert len(places) > 30
    for partition, region in places:
        expected = whole.construct_endpoint(service, region, partition)
        assert kept.construct_endpoint(service, region, partition) == expected, (partition, region)


@pytest.mark.parametrize("name", ["s3/2006-03-01/endpoint-rule-set-1", "partitions", "_retry"])
def test_other_files_are_whole(name: str) -> None:
    whole, kept = (load(name, whole=each) for each in (True, False))
    assert kept == whole


def test_services_that_give_credentials_keep_all_operations() -> None:
    whole, kept = (load("sts/2011-06-15/service-2", whole=each) for each in (True, False))
    assert kept["operations"].keys() == whole["operations"].keys()
    assert kept["shapes"].keys() == whole["shapes"].keys()


@pytest.mark.parametrize("type_name", ["service-2", "endpoint-rule-set-1", "paginators-1", "unknown-1"])
def test_the_services_that_are_known_are_those_of_botocore(type_name: str) -> None:
    every = Session().get_component("data_loader").list_available_services(type_name)
    loader = ServiceLoader(None, ModelFiles())
    assert loader.list_available_services(type_name) == [name for name in every if name in CLIENTS]


def test_a_client_looks_into_few_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore would look into those of all services."""
    looked = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(path) or listdir(path))
    session = Session()
    session.register_component("data_loader", ServiceLoader(None, ModelFiles()))
    session.create_client("s3", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    assert 0 < len(looked) < 50


def test_more_folders_are_searched_first(tmp_path: Path) -> None:
    place = tmp_path / "sts" / "2099-01-01" / "service-2.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"shapes": {}}')
    loader = ServiceLoader(str(tmp_path), ModelFiles())
    assert loader.determine_latest_version("sts", "service-2") == "2099-01-01"
    assert loader.load_service_model("sts", "service-2", "2099-01-01") == {"shapes": {}}


def description(folder: Path, service: str, content: str) -> str:
    """The name of a description of a service in ``folder``, as a loader asks for it."""
    place = folder / service / "2099-01-01" / "service-2"
    place.parent.mkdir(parents=True)
    place.with_suffix(".json").write_text(content)
    return str(place)


@pytest.mark.parametrize("content", ['{"operations": [}', '{"operations" {}}', '{"shapes": {', '{"shapes": {}'])
def test_a_description_that_is_no_json_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1 column"):
        ModelFiles().load_file(description(tmp_path, "s3", content))


@pytest.mark.parametrize(
    "content",
    [
        ["shapes"],
        {"shapes": {}},
        {"operations": [{"name": "GetObject"}], "shapes": {}},
        {"operations": {"GetObject": {"input": {"shape": "elsewhere"}}}, "shapes": {}},
    ],
)
def test_a_description_of_another_layout_is_loaded_as_it_is(content: object, tmp_path: Path) -> None:
    assert ModelFiles().load_file(description(tmp_path, "s3", json.dumps(content))) == content


def test_endpoints_of_another_layout_are_loaded_as_they_are(tmp_path: Path) -> None:
    content = {"partitions": {"aws": {"services": {"ec2": {}}}}}
    (tmp_path / "endpoints.json").write_text(json.dumps(content))
    assert ModelFiles().load_file(str(tmp_path / "endpoints")) == content


def test_only_the_folder_of_a_service_says_which_it_is(tmp_path: Path) -> None:
    """botocore may lie below a folder named ``s3``. The other services keep all operations there, too."""
    content = {"operations": {"AssumeRole": {}, "PutObject": {}}, "shapes": {}}
    kept = [ModelFiles().load_file(description(tmp_path / "s3", name, json.dumps(content))) for name in ("sts", "s3")]
    assert kept == [content, {"operations": {"PutObject": {}}, "shapes": {}}]


def test_a_file_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert ModelFiles().load_file(str(tmp_path / "missing")) is None
