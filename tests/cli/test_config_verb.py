"""``litelog config`` reports the errors of a configuration, and shows it with its defaults, but never a secret."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from litelog.config import Config, load_config
from litelog.errors import ConfigError, ExitCode
from litelog_cli.config_file import Variables
from litelog_cli.config_values import written

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

CANARY = "canary-of-the-tests-0123456789"

SAID = """
shutdown-timeout: 90s
sync-interval: 1500ms
poll-interval: 1m30s
scrub-rate: 1536KiB
heartbeat-url: https://pings.example/{canary}?{canary}={canary}
logs:
  - path: events
    truncate: {{max-bytes: 5GiB, max-age: 7d}}
    replicas:
      - url: s3://bucket/events
        fencing: isolated
        retention: {{max-age: 36h, max-bytes: 1000000B}}
        options:
          region: eu-west-1
          endpoint: https://{canary}@minio.example/?x={canary}
          secret-access-key: {canary}
          something-of-a-client-to-come: {canary}
          connections: 7
          headers: {{x-tenant: {canary}}}
"""


def test_a_valid_configuration_is_reported_as_valid(litelog: Command) -> None:
    (litelog.folder / "c.yml").write_text("logs: [{path: a, replicas: [b, {url: c}]}]".replace("b, ", "{url: b}, "))
    done = litelog("config", "check", "c.yml")
    assert (done.code, done.out) == (0, "c.yml: valid (1 entry of logs, 2 replicas)\n")
    done = litelog("config", "check", "--json", LITELOG_CONFIG="c.yml")
    assert done.lines == [
        {
            "version": 1,
            "config": "c.yml",
            "valid": True,
            "problems": [],
            "mistakes": [],
            "entries": 1,
            "replica_count": 2,
        }
    ]


def test_a_folder_of_logs_fits(litelog: Command) -> None:
    entry = "{dir: logs, pattern: '*/*', recursive: true, replicas: [{url: 'r/{name}'}]}"
    (litelog.folder / "c.yml").write_text(f"logs: [{entry}]")
    done = litelog("config", "check", "c.yml")
    assert (done.code, done.err) == (0, "")


def test_a_replica_in_its_own_log_does_not_fit(litelog: Command) -> None:
    (litelog.folder / "c.yml").write_text("logs: [{path: a, replicas: [{url: a/b}]}]")
    done = litelog("config", "check", "c.yml")
    assert done.code == ExitCode.USAGE
    assert "in the folder of its own log" in done.err


def test_every_error_has_its_line_its_key_and_the_nearest_one(litelog: Command) -> None:
    (litelog.folder / "c.yml").write_text("logs:\n  - path: ${NO}\n    replicas: [{url: x, sync-intervall: 1s}]\n")
    problems = [
        "line 2, column 11: logs[0].path: the variable NO is not set",
        "line 3, column 25: logs[0].replicas[0].sync-intervall: unknown key; did you mean sync-interval?",
    ]
    done = litelog("config", "check", "c.yml")
    assert done.code == ExitCode.USAGE
    assert done.err.splitlines()[1:] == [f"  {problem}" for problem in problems]
    done = litelog("config", "check", "--json", "c.yml")
    mistakes = [
        {"line": 2, "column": 11, "key": "logs[0].path", "message": "the variable NO is not set"},
        {
            "line": 3,
            "column": 25,
            "key": "logs[0].replicas[0].sync-intervall",
            "message": "unknown key; did you mean sync-interval?",
        },
    ]
    said = {"version": 1, "config": "c.yml", "valid": False, "problems": problems, "mistakes": mistakes}
    assert (done.code, done.lines) == (2, [said])
    assert litelog("config", "show", "c.yml").code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("format: nonsense", "nonsense"),
        ("replicas: [{url: 'nowhere://x'}]", "known: file"),
    ],
)
def test_formats_and_clients_that_are_not_there_are_found(litelog: Command, entry: str, message: str) -> None:
    replicas = "" if "replicas" in entry else "replicas: [{url: x}], "
    (litelog.folder / "c.yml").write_text(f"logs: [{{path: a, {replicas}{entry}}}]")
    done = litelog("config", "check", "c.yml")
    assert done.code == ExitCode.USAGE
    assert message in done.err


def test_values_that_formats_and_clients_refuse_are_reported_with_line_and_key(litelog: Command) -> None:
    (litelog.folder / "c.yml").write_text(
        "logs:\n"
        "  - path: a\n"
        "    format: nonsense\n"
        "    replicas:\n"
        "      - url: one\n"
        "      - url: two\n"
        "        options: {colour: red}\n"
        "  - path: b\n"
        "    replicas: [{url: b/inside}]\n"
    )
    problems = [
        "line 3, column 13: logs[0].format: no log format 'nonsense'",
        "line 6, column 9: logs[0].replicas[1]: a file replica takes no options, but was given colour",
        "line 9, column 16: logs[1].replicas[0]: ",
    ]
    for arguments in (["config", "check", "c.yml"], ["replicate", "--once", "--config", "c.yml"]):
        done = litelog(*arguments)
        assert done.code == ExitCode.USAGE
        assert "c.yml: 3 errors in the configuration" in done.err
        assert [problem for problem in problems if problem not in done.err] == []
    (said,) = litelog("config", "check", "--json", "c.yml").lines
    assert (said["valid"], len(said["problems"])) == (False, 3)


def test_an_address_for_others_without_a_token_does_not_fit(litelog: Command) -> None:
    logs = "logs: [{path: a, replicas: [{url: b}]}]\n"
    (litelog.folder / "c.yml").write_text(logs + "addr: 0.0.0.0:9977\n")
    done = litelog("config", "check", "c.yml")
    assert (done.code, "0.0.0.0:9977: other machines can reach it" in done.err) == (ExitCode.USAGE, True)
    (litelog.folder / "c.yml").write_text(logs + "addr: 0.0.0.0:9977\ntoken-file: /etc/litelog.token\n")
    assert litelog("config", "check", "c.yml").code == ExitCode.DONE


def test_no_file_is_an_error_that_names_it(litelog: Command) -> None:
    done = litelog("config", "show", "missing.yml")
    assert (done.code, done.err) == (ExitCode.USAGE, "litelog: missing.yml: No such file or directory\n")


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_no_secret_is_shown(litelog: Command, how: list[str]) -> None:
    pytest.importorskip("boto3")
    (litelog.folder / "c.yml").write_text(SAID.format(canary=CANARY))
    done = litelog("config", "show", *how, "c.yml")
    assert done.code == 0, done.err
    assert CANARY not in done.out + done.err
    options = (done.lines[0] if how else yaml.safe_load(done.out))["logs"][0]["replicas"][0]["options"]
    assert set(options) == {
        *("region", "endpoint", "secret-access-key", "something-of-a-client-to-come", "connections", "headers")
    }
    assert (options["region"], options["connections"]) == ("eu-west-1", 7)
    assert options["headers"] == {"x-tenant": "***"}


def test_the_shown_configuration_is_a_valid_one_with_the_same_meaning(tmp_path: Path) -> None:
    text = re.sub(r"\n +(endpoint|secret|something|headers).*|\nheartbeat.*", "", SAID.format(canary=CANARY))
    config = load_config(text, {})
    values = written(config)
    assert values["logs"][0]["replicas"][0]["retention"] == {
        "max-age": "36h",
        "max-bytes": "1000000B",
        "min-snapshots": 1,
    }
    assert values["poll-interval"] == "90s"
    again = load_config(yaml.safe_dump(values), {})
    assert written(again) == values
    assert again.model_dump() == config.model_dump()


def test_every_key_that_has_a_value_is_shown(litelog: Command) -> None:
    (litelog.folder / "c.yml").write_text("logs: [{path: a, replicas: [{url: b}]}]")
    shown = litelog("config", "show", "--json", "c.yml").lines[0]
    config = load_config("logs: [{path: a, replicas: [{url: b}]}]", {})
    said = {name.replace("_", "-") for name in Config.model_fields if getattr(config, name) is not None}
    assert set(shown) == said | {"state-dir", "addr"}
    assert shown["shutdown-timeout"] == 10.0


def test_credentials_are_variables_of_the_configuration(litelog: Command) -> None:
    (litelog.folder / "credentials").mkdir()
    (litelog.folder / "credentials" / "TARGET").write_text("replica\n")
    (litelog.folder / "c.yml").write_text("logs: [{path: log, replicas: [{url: '${TARGET}'}]}]")
    litelog.lines(3)
    given = {"CREDENTIALS_DIRECTORY": str(litelog.folder / "credentials")}
    assert litelog("replicate", "--once", "--config", "c.yml", **given).code == 0
    assert litelog("generations", "--json", "replica").lines[-1]["next"] == 3
    done = litelog("replicate", "--once", "--config", "c.yml")
    assert (done.code, "the variable TARGET is not set" in done.err) == (ExitCode.USAGE, True)
    assert (
        json.loads(litelog("config", "show", "--json", "c.yml", **given, TARGET="mine").out)["logs"][0]["replicas"][0][
            "url"
        ]
        == "mine"
    ), "a file replaced a variable of the environment"


def test_a_credential_is_a_file_of_its_folder_and_text(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").write_text("no")
    (tmp_path / "in" / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "in" / "lines").write_text("one\ntwo\n\n")
    (tmp_path / "in" / "folder").mkdir()
    found = Variables({"CREDENTIALS_DIRECTORY": str(tmp_path / "in")})
    assert found["lines"] == "one\ntwo\n"
    assert "../out" not in found
    assert "missing" not in found
    for name in ("binary", "folder"):
        with pytest.raises(ConfigError, match=name):
            found[name]
