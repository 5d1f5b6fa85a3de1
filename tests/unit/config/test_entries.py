"""Folders of logs in the configuration: their keys, the logs that match, and the URLs of their replicas."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.config import Config, FolderConfig, ReplicaConfig, load_config
from litelog.config.entries import find_name, format_name, name_url
from litelog.errors import InvalidConfigError

NAMES = st.lists(
    st.text(st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=12).filter(
        lambda part: part not in (".", "..")
    ),
    min_size=1,
    max_size=4,
).map("/".join)

SHAPES = ("s3://bucket", "s3://bucket/a/", "/backup", "file:///b%20c", "s3://b/{name}/x?endpoint=e", "s3://b/p?e=f#g")


def folder(pattern: str = "*", *, recursive: bool = False, url: str = "/backup", dir: str = "/logs") -> FolderConfig:  # noqa: A002
    return FolderConfig(dir=dir, pattern=pattern, recursive=recursive, replicas=(ReplicaConfig(url=url),))


def problems_of(text: str) -> list[str]:
    with pytest.raises(InvalidConfigError) as caught:
        load_config(textwrap.dedent(text), {})
    return caught.value.problems


def test_every_key_of_a_folder_is_read_next_to_logs() -> None:
    config = load_config(
        """
        sync-interval: 5s
        poll-interval: 3s
        logs:
          - {path: /x, replicas: [{url: /y}]}
          - dir: /logs
            pattern: "*/*"
            recursive: true
            watch: false
            format: lines
            segment-pattern: "*.log"
            takeover: true
            truncate: {max-age: 1d}
            replicas: [{url: "s3://bucket/{name}"}, {url: /b, sync-interval: 1s}]
        """,
        {},
    )
    (found,) = config.folders
    assert [log.path for log in config.own_logs] == ["/x"]
    assert (found.dir, found.pattern, found.recursive, found.watch) == ("/logs", "*/*", True, False)
    assert (found.format, found.segment_pattern, found.takeover, found.poll_interval) == ("lines", "*.log", True, 3.0)
    assert [replica.sync_interval for replica in found.replicas] == [5.0, 1.0]
    log = found.named("a/b")
    assert (log.path, log.format, log.pattern, log.takeover, log.poll_interval) == (
        "/logs/a/b",
        "lines",
        "*.log",
        True,
        3.0,
    )
    assert log.truncate == found.truncate
    assert [replica.url for replica in log.replicas] == ["s3://bucket/a/b", "/b/a/b"]


def test_a_folder_has_defaults() -> None:
    (found,) = load_config("logs: [{dir: /logs, replicas: [{url: /b}]}]", {}).folders
    assert (found.pattern, found.recursive, found.watch, found.segment_pattern) == ("*", False, True, None)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("pattern: ../*", "logs[0].pattern: must be a relative path of patterns"),
        ("pattern: /a", "logs[0].pattern: must be a relative path of patterns"),
        ("pattern: a//b", "logs[0].pattern: must be a relative path of patterns"),
        ("pattern: '**/a'", "logs[0].pattern: has no **: recursive: true looks at any depth"),
        ("segment-pattern: '*.log'", "logs[0].segment-pattern: only the formats lines and raw have a pattern"),
        ("watch: maybe", "logs[0].watch: must be true or false"),
        ("recursiv: true", "logs[0].recursiv: unknown key; did you mean recursive?"),
        ("path: /x", "logs[0].path: unknown key"),
    ],
)
def test_invalid_keys_of_a_folder_are_reported_with_their_line(entry: str, problem: str) -> None:
    (found,) = problems_of(f"logs:\n  - dir: /logs\n    {entry}\n    replicas: [{{url: /b}}]\n")
    assert found.startswith("line 3, column")
    assert problem in found


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://{name}/x", "{name} may appear only once, in a URL's path"),
        ("s3://b/{name}/{name}", "{name} may appear only once, in a URL's path"),
        ("s3://b/x?prefix={name}", "{name} may appear only once, in a URL's path"),
        ("s3://b/x-{name}", "{name} must stand between slashes"),
        ("s3://b/{name}.d", "{name} must stand between slashes"),
    ],
)
def test_a_name_stands_in_the_path_of_a_url_as_a_part_of_it(url: str, problem: str) -> None:
    (found,) = problems_of(f"logs: [{{dir: /logs, replicas: [{{url: '{url}'}}]}}]")
    assert f"logs[0].replicas: {problem}" in found


def test_two_folders_have_two_places() -> None:
    (found,) = problems_of("logs:\n- {dir: /a, replicas: [{url: /x}]}\n- {dir: /b, replicas: [{url: /x/}]}")
    assert found.endswith(
        "logs[1].replicas[0].url: is the same as logs[0].replicas[0].url; name every log and replica once"
    )


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("orders", "orders"),
        ("kafka/orders.v2_x-1", "kafka/orders.v2_x-1"),
        ("a b", "a=20b"),
        ("ä", "=C3=A4"),
        ("a=b", "a=3Db"),
        ("50%", "50=25"),
        ("...", "..."),
        ("epochs", "=65pochs"),
        ("a/Generations", "a/=47enerations"),
        ("generations2", "generations2"),
        ("?q#f", "=3Fq=23f"),
    ],
)
def test_a_name_is_spelled_with_characters_that_every_store_takes(name: str, spelled: str) -> None:
    assert format_name(name) == spelled


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "a//b", "/a", "a/", "a\0b", "\udcff", "x" * 513])
def test_a_name_that_cannot_be_spelled_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is "):
        format_name(name)


@pytest.mark.slow
@given(first=NAMES, second=NAMES, shape=st.sampled_from(SHAPES))
def test_two_names_never_have_one_url_and_a_url_shows_its_name(first: str, second: str, shape: str) -> None:
    one, two = name_url(shape, first), name_url(shape, second)
    assert (one == two) == (first == second)
    assert find_name(shape, one) == first


@pytest.mark.slow
@given(name=NAMES, shape=st.sampled_from(SHAPES))
def test_no_name_leads_out_of_the_place_of_its_url(name: str, shape: str) -> None:
    before, _, after = shape.partition("{name}")
    url = name_url(shape, name)
    if after:
        assert url.startswith(before)
        assert url.endswith(after)
        inside = url[len(before) : len(url) - len(after)]
    else:
        bare, mark, query = shape.partition("?")
        assert url.startswith(bare.rstrip("/") + "/")
        assert url.endswith(mark + query)
        inside = url[len(bare.rstrip("/")) + 1 : len(url) - len(mark + query)]
    assert not {"", ".", "..", "epochs", "generations"}.intersection(inside.split("/"))
    assert len(inside.split("/")) == len(name.split("/"))


@pytest.mark.parametrize(
    "url", ["/backup", "/backup/", "/backupx/a", "/backup/a=2", "/backup/=61", "/backup/../a", "/backup/epochs", "/b/a"]
)
def test_a_url_that_no_name_has_shows_none(url: str) -> None:
    assert find_name("/backup", url) is None


@pytest.mark.parametrize(
    ("pattern", "recursive", "means", "others"),
    [
        ("*", False, ["a", "a.b"], ["a/b", ".hidden"]),
        ("*/*", False, ["a/b"], ["a", "a/b/c", ".x/a", "a/.x"]),
        ("app-*/log", False, ["app-1/log"], ["app-1/logs", "app/log", "x/app-1/log"]),
        ("*", True, ["a", "a/b", "a/b/c"], [".x", ".x/a", "a/.x/b"]),
        ("log-?", True, ["log-1", "x/y/log-2"], ["x", "x/log-10"]),
        (".*", False, [".x"], ["x"]),
    ],
)
def test_a_pattern_means_folders_by_each_part_of_their_path(
    pattern: str, recursive: bool, means: list[str], others: list[str]
) -> None:
    found = folder(pattern, recursive=recursive)
    assert [name for name in means + others if found.means(name)] == means
    for name in means:
        parts = name.split("/")
        assert all(found.leads_to("/".join(parts[: count + 1])) for count in range(len(parts)))


def test_a_log_is_looked_up_by_its_path_alone_be_it_there_or_not() -> None:
    config = load_config(
        """
        logs:
          - {dir: /logs, pattern: "*/*", replicas: [{url: "s3://b/{name}", options: {region: x}}]}
          - {path: /logs/own/log, replicas: [{url: /elsewhere}]}
        """,
        {},
    )
    found, own = config.find_log("/logs/kafka/or ders"), config.find_log("/logs/own/log/")
    assert found is not None
    assert own is not None
    assert found.replicas[0] == ReplicaConfig(url="s3://b/kafka/or=20ders", options={"region": "x"})
    assert own.replicas[0].url == "/elsewhere"
    for path in ("/logs", "/logs/kafka", "/logs/a/b/c", "/logs/../x/y", "/log/s/x", "/logs/.a/b"):
        assert config.find_log(path) is None, path


@pytest.mark.slow
def test_a_replica_of_a_found_log_is_looked_up_by_its_url_with_its_options() -> None:
    config = Config(logs=(folder("*/*", url="s3://b/{name}/r"),))
    replica = config.find_replica("s3://b/kafka/or=20ders/r")
    assert replica is not None
    assert replica.url == "s3://b/kafka/or=20ders/r"
    for url in ("s3://b/kafka/r", "s3://b/a/b/c/r", "s3://b/a/b/x", "s3://c/a/b/r", str(Path("/b/a/b/r"))):
        assert config.find_replica(url) is None, url
