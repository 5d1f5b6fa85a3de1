"""The configuration: what is read, and how each mistake in it is reported."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from litelog.codec.frame_codecs import Compression
from litelog.config import Config, LogConfig, ReplicaConfig, load_config, make_config
from litelog.errors import ConfigError, ExitCode, InvalidConfigError
from litelog.objects.layout import Fencing

EXAMPLE = Path(__file__).parents[3] / "etc" / "litelog.yml"

WHOLE = """
state-dir: /var/lib/litelog
shutdown-timeout: 30s
logs:
  - path: /var/lib/events
    format: litelog
    takeover: true
    poll-interval: 250ms
    replicas:
      - url: file:///backup/events
        sync-interval: 1m30s
        max-segment-bytes: 1MiB
      - url: /backup/events2
  - path: /var/log/app
    format: lines
    pattern: "*.log"
    replicas:
      - url: file:///backup/app
"""


def config_of(text: str, environment: dict[str, str] | None = None) -> Config:
    return load_config(textwrap.dedent(text), environment or {})


def problems_of(text: str, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidConfigError) as caught:
        config_of(text, environment)
    return caught.value.problems


def test_every_key_is_read_with_its_unit() -> None:
    config = config_of(WHOLE)
    assert config == Config(
        state_dir="/var/lib/litelog",
        shutdown_timeout=30.0,
        logs=(
            LogConfig(
                path="/var/lib/events",
                takeover=True,
                poll_interval=0.25,
                replicas=(
                    ReplicaConfig(url="file:///backup/events", sync_interval=90.0, max_segment_bytes=1 << 20),
                    ReplicaConfig(url="/backup/events2"),
                ),
            ),
            LogConfig(
                path="/var/log/app",
                format="lines",
                pattern="*.log",
                replicas=(ReplicaConfig(url="file:///backup/app"),),
            ),
        ),
    )


def test_a_variable_may_hold_a_count() -> None:
    text = """
    snapshot-segments: ${COUNT}
    logs:
      - path: /a
        replicas: [{url: /b, retention: {max-snapshots: "${COUNT}"}}]
    """
    (replica,) = config_of(text, {"COUNT": "7"}).logs[0].replicas
    assert (replica.snapshot_segments, replica.retention.max_snapshots) == (7, 7)
    assert "valid integer (found '${COUNT}')" in problems_of(text, {"COUNT": "many"})[0]
    assert "greater than or equal to 1" in problems_of(text, {"COUNT": "0"})[0]


@pytest.mark.parametrize("value", ["~", "[1]", "{b: 5}"])
def test_an_option_with_an_invalid_value_is_reported_once_with_its_path(value: str) -> None:
    text = f"""
    logs:
      - path: /a
        replicas:
          - url: /b
            options:
              a: {value}
    """
    (problem,) = problems_of(text)
    assert problem.startswith("line 7, column 14: logs[0].replicas[0].options.a: must be text, a number, ")


def test_a_path_that_is_not_utf_8_is_reported_as_that() -> None:
    """Python passes such bytes in an argument of a command as surrogates."""
    with pytest.raises(InvalidConfigError) as caught:
        make_config("command line", {"logs": [{"path": "/a\udcff", "replicas": [{"url": "/b"}]}]})
    assert caught.value.problems == ["logs[0].path: must be text in UTF-8"]


@pytest.mark.parametrize("tag", ["!env", "!!python/object:os.system"])
def test_an_explicit_tag_is_reported_and_its_value_not_read(tag: str) -> None:
    (problem,) = problems_of(f"logs: [{{path: {tag} LOG, replicas: [{{url: /b}}]}}]")
    assert problem == f"line 1, column 15: logs[0].path: the tag {tag} is not supported: write the value out"


def test_missing_keys_have_their_defaults() -> None:
    config = config_of("logs: [{path: /a, replicas: [{url: /b}]}]")
    log = config.logs[0]
    assert (config.state_dir, config.shutdown_timeout) == (None, 10.0)
    assert (log.format, log.pattern, log.takeover, log.poll_interval) == ("litelog", None, False, 1.0)
    assert (log.replicas[0].sync_interval, log.replicas[0].max_segment_bytes) == (1.0, 8 << 20)


def test_top_level_defaults_apply_to_entries_without_their_own() -> None:
    config = config_of(
        """
        logs:
          - path: /a
            replicas: [{url: /b}, {url: /c, sync-interval: 3s}]
          - path: /d
            poll-interval: 7s
            replicas: [{url: /e, max-segment-bytes: 2MiB}]
        sync-interval: 5s
        max-segment-bytes: 1MiB
        poll-interval: 2s
        """
    )
    replicas = [replica for log in config.logs for replica in log.replicas]
    assert [replica.sync_interval for replica in replicas] == [5.0, 3.0, 5.0]
    assert [replica.max_segment_bytes for replica in replicas] == [1 << 20, 1 << 20, 2 << 20]
    assert [log.poll_interval for log in config.logs] == [2.0, 7.0]


def test_a_configuration_cannot_be_changed() -> None:
    config = config_of(WHOLE)
    with pytest.raises(ValidationError, match="frozen"):
        config.logs[0].path = "/elsewhere"


def test_the_example_that_is_delivered_is_read() -> None:
    config = load_config(EXAMPLE, {"LITELOG_LOG": "/srv/events"})
    assert config.logs[0].path == "/srv/events"
    assert config.logs[0].replicas[0].url == "file:///var/backups/events"


def test_the_error_for_an_unknown_key_has_its_path_line_and_nearest_known_key() -> None:
    text = """\
    logs:
      - path: /a
        replicas:
          - url: /b
          - url: /c
            sync-intervall: 1s
    """
    assert problems_of(text) == [
        "line 6, column 9: logs[0].replicas[1].sync-intervall: unknown key; did you mean sync-interval?"
    ]


def test_a_key_in_pythons_spelling_is_unknown_in_yaml() -> None:
    (problem,) = problems_of("state_dir: /x\nlogs: [{path: /a, replicas: [{url: /b}]}]")
    assert problem == "line 1, column 1: state_dir: unknown key; did you mean state-dir?"


def test_the_databases_of_another_program_are_called_logs() -> None:
    problem = problems_of("dbs: [{path: /a, replicas: [{url: /b}]}]")[-1]
    assert problem == "line 1, column 1: dbs: unknown key; did you mean logs?"


@pytest.mark.parametrize(
    "text", ["folders: [{path: /a}]", "logs: [{folders: /a, replicas: [{url: /b}]}]", "logs: [{folder: /a}]"]
)
def test_a_folder_of_logs_is_called_dir(text: str) -> None:
    assert any(
        problem.endswith("unknown key; for a folder of logs, give its path as dir, in an entry of logs")
        for problem in problems_of(text)
    )


def test_the_known_keys_of_a_log_include_that_of_a_folder() -> None:
    (problem,) = problems_of("logs: [{path: /a, zzz: 1, replicas: [{url: /b}]}]")
    assert problem.endswith(", dir)")


def test_a_key_that_is_near_to_none_lists_those_that_are_known() -> None:
    (problem,) = problems_of("logs: [{path: /a, replicas: [{url: /b, zzz: 1}]}]")
    assert "zzz: unknown key (known: url, sync-interval, max-segment-bytes, " in problem
    assert problem.endswith(", options)")


@pytest.mark.parametrize("fencing", list(Fencing))
def test_each_replica_says_how_it_is_fenced(fencing: Fencing) -> None:
    config = config_of(f"logs: [{{path: /a, replicas: [{{url: /b, fencing: {fencing}}}, {{url: /c}}]}}]")
    assert [replica.fencing for replica in config.logs[0].replicas] == [fencing, Fencing.REQUIRED]


@pytest.mark.parametrize("wrong", ["none", "Isolated", "''", "false", "null", "1", "[isolated]", "{isolated: true}"])
def test_any_other_fencing_is_refused(wrong: str) -> None:
    (problem,) = problems_of(f"logs: [{{path: /a, replicas: [{{url: /b, fencing: {wrong}}}]}}]")
    assert "logs[0].replicas[0].fencing: must be required or isolated" in problem


def test_fencing_may_come_from_the_environment() -> None:
    text = "logs: [{path: /a, replicas: [{url: /b, fencing: '${MODE:-required}'}]}]"
    assert config_of(text, {"MODE": "isolated"}).logs[0].replicas[0].fencing is Fencing.ISOLATED
    assert config_of(text).logs[0].replicas[0].fencing is Fencing.REQUIRED


def test_all_that_is_wrong_is_reported_at_once_in_the_order_of_lines() -> None:
    text = """\
    shutdown-timeout: soon
    logs:
      - path: 12
        pattern: "*.log"
        takeover: maybe
        replicas:
          - url: ${NOWHERE}
            max-segment-bytes: 64MiB
          - sync-interval: soon
      - format: raw
        replicas: []
      - seventeen
    """
    assert problems_of(text) == [
        "line 1, column 19: shutdown-timeout: must be a duration such as 10s, 1m30s or 500ms (found 'soon')",
        "line 3, column 11: logs[0].path: must be text (in quotes, if it looks like a number) (found '12')",
        "line 4, column 14: logs[0].pattern: only the formats lines and raw have a pattern; "
        "others know the names of their files (found '*.log')",
        "line 5, column 15: logs[0].takeover: must be true or false (found 'maybe')",
        "line 7, column 14: logs[0].replicas[0].url: the variable NOWHERE is not set",
        "line 8, column 28: logs[0].replicas[0].max-segment-bytes: must be from 4KiB to 16MiB (found '64MiB')",
        "line 9, column 9: logs[0].replicas[1].url: is required",
        "line 9, column 24: logs[0].replicas[1].sync-interval: "
        "must be a duration such as 10s, 1m30s or 500ms (found 'soon')",
        "line 10, column 5: logs[1].path: is required (or dir, for a folder of logs)",
        "line 11, column 15: logs[1].replicas: must have at least one entry",
        "line 12, column 5: logs[2]: must be a mapping of keys to values (found 'seventeen')",
    ]


def test_a_duplicate_key_is_an_error() -> None:
    text = """\
    logs:
      - path: /a
        path: /b
        replicas: [{url: /c}]
    """
    assert problems_of(text) == ["line 3, column 5: logs[0].path: appears twice, first in line 2"]


@pytest.mark.parametrize(
    ("first", "second"), [("/a", "/a"), ("/a", "/a/"), ("/a", "//a/./"), ("file:///a", "/a"), ("s3://b/p", "s3://b/p/")]
)
def test_a_duplicate_replica_is_an_error_even_under_another_log(first: str, second: str) -> None:
    text = f"""\
    logs:
      - path: /x
        replicas: [{{url: "{first}"}}]
      - path: /y
        replicas: [{{url: "{second}"}}]
    """
    (problem,) = problems_of(text)
    assert problem.startswith("line 5, column 22: logs[1].replicas[0].url: is the same as logs[0].replicas[0].url")


def test_a_duplicate_log_is_an_error() -> None:
    (problem,) = problems_of("logs:\n- {path: /x, replicas: [{url: /a}]}\n- {path: /x/, replicas: [{url: /b}]}")
    assert problem.startswith("line 3, column 10: logs[1].path: is the same as logs[0].path")


def test_repetition_is_found_in_python_too() -> None:
    log = LogConfig(path="/x", replicas=(ReplicaConfig(url="/a"), ReplicaConfig(url="file:///a")))
    with pytest.raises(
        ValidationError, match=r"logs\[0\].replicas\[1\].url is the same as logs\[0\].replicas\[0\].url"
    ):
        Config(logs=(log,))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1, column 1: logs: is required"),
        ("[1]", "line 1, column 1: must be a mapping of keys to values"),
        ("logs: {a: 1}", "line 1, column 7: logs: must be a list"),
        ("logs: [", "line 1, column 8: not YAML: while parsing a flow node"),
        ("a: b: c", "line 1, column 5: not YAML: mapping values are not allowed here"),
        ("a: 1\nb: \x07", "line 2, column 4: not YAML: special characters are not allowed"),
        ("a: &x 1\nb: *x", "line 2, column 4: not YAML: aliases are not supported: write the value out"),
        ("[" * 10_000, "line 1, column 17: not YAML: nested more than 16 deep"),
        ("--- 1\n--- 2", "line 2, column 1: not YAML: expected a single document in the stream"),
    ],
)
def test_a_text_that_is_not_a_configuration_is_reported_with_its_line(text: str, problem: str) -> None:
    assert problems_of(text)[0].startswith(problem)


def test_every_configuration_error_exits_as_usage(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as missing:
        load_config(tmp_path / "missing.yml", {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path, {})
    (tmp_path / "latin").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="line 2: not UTF-8"):
        load_config(tmp_path / "latin", {})
    (tmp_path / "large").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than"):
        load_config(tmp_path / "large", {})
    assert missing.value.exit_code == ExitCode.USAGE
    assert InvalidConfigError.exit_code == ExitCode.USAGE


def test_values_of_the_command_line_are_checked_alike() -> None:
    values = {"logs": [{"path": "/a", "replicas": [{"url": ""}]}], "sync_interval": "soon"}
    with pytest.raises(InvalidConfigError) as caught:
        make_config("command line", values)
    assert caught.value.problems == [
        "sync_interval: must be a duration such as 10s, 1m30s or 500ms",
        "logs[0].replicas[0].url: may not be empty",
    ]


def url_of(value: str, environment: dict[str, str]) -> str:
    return config_of(f"logs: [{{path: /a, replicas: [{{url: '{value}'}}]}}]", environment).logs[0].replicas[0].url


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("${SET}", "value"),
        ("a-${SET}-b-${SET}", "a-value-b-value"),
        ("${SET:-other}", "value"),
        ("${UNSET:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("x${EMPTY}", "x"),
        ("${UNSET:-a$$b}", "a$b"),
        ("$$", "$"),
        ("$${SET}", "${SET}"),
        ("${INNER}", "${SET}"),
    ],
)
def test_variables_are_put_into_values(value: str, url: str) -> None:
    assert url_of(value, {"SET": "value", "EMPTY": "", "INNER": "${SET}"}) == url


@pytest.mark.parametrize("value", ["$", "$SET", "a$", "${", "${}", "${1}", "${A B}", "${SET"])
def test_a_dollar_sign_without_a_variable_is_an_error(value: str) -> None:
    (problem,) = problems_of(f"logs: [{{path: /a, replicas: [{{url: '{value}'}}]}}]", {"SET": "x"})
    assert problem.endswith("url: a lone $: write ${NAME}, or $$ for a dollar")


def test_a_variable_cannot_bring_structure_with_it() -> None:
    hostile = '/x"}]}\n  - path: /evil\n    replicas: [{url: &a *b'
    config = config_of("logs:\n  - path: ${HOSTILE}\n    replicas: [{url: /b}]\n", {"HOSTILE": hostile})
    assert [log.path for log in config.logs] == [hostile]


def test_a_variables_value_is_read_as_the_type_of_its_key() -> None:
    text = """
    logs:
      - path: ${NUMBER}
        takeover: ${SWITCH}
        replicas: [{url: /b, sync-interval: "${TIME}", max-segment-bytes: "${SIZE}"}]
    """
    log = config_of(text, {"NUMBER": "123", "SWITCH": "true", "TIME": "2s", "SIZE": "1MiB"}).logs[0]
    assert (log.path, log.takeover, log.replicas[0].sync_interval) == ("123", True, 2.0)
    assert log.replicas[0].max_segment_bytes == 1 << 20


def test_text_in_quotes_is_not_a_switch() -> None:
    (problem,) = problems_of("logs: [{path: /a, takeover: 'true', replicas: [{url: /b}]}]")
    assert "takeover: must be true or false" in problem


KEYS = ("url", "sync-interval", "max-segment-bytes", "path", "takeover", "format", "pattern", "replicas", "logs")


@pytest.mark.slow
@given(st.sampled_from(KEYS), st.sampled_from(["${SECRET}", "a${SECRET}", "${SECRET}/${SECRET}"]))
def test_no_message_shows_the_value_of_a_variable(key: str, value: str) -> None:
    secret = "hunter2-very-secret"
    replica = {"url": "s3://key:${SECRET}@bucket", "bad": "${SECRET}"}
    log = {"path": "/a", "replicas": [replica, dict(replica), {key: value}], key: value}
    text = yaml.safe_dump({"logs": [log], "other": "${SECRET}", key: value})
    with pytest.raises(InvalidConfigError) as caught:
        load_config(text, {"SECRET": secret})
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


def test_credentials_that_are_written_out_are_not_shown_either() -> None:
    (problem,) = problems_of("logs: [{path: /a, replicas: 's3://me:hunter2@bucket'}]")
    assert problem.endswith("must be a list (found 's3://***@bucket')")
    assert "hunter2" not in repr(ReplicaConfig(url="s3://me:hunter2@bucket"))


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from((*KEYS, "${A}", "<<", "=")) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(plain_values)
def test_any_yaml_is_a_configuration_or_one_clear_error(value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    try:
        assert load_config(text, {}).logs
    except InvalidConfigError as error:
        assert all(problem.startswith("line ") for problem in error.problems)  # noqa: PT017 - either outcome is right


@pytest.mark.slow
@given(st.text(alphabet=st.sampled_from("ab:-[]{}\n \t'\"#&*!|>%@`$,?~0189.<=/\\\x00\x85\ufeff"), max_size=60))
def test_any_text_is_a_configuration_or_one_clear_error(text: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        load_config(text + "\n", {})  # the line feed ends it: a text that begins with / is a path
    assert all(problem.startswith("line ") for problem in caught.value.problems)


def test_a_replicas_options_are_its_clients_own_and_their_values_are_not_shown() -> None:
    text = """
    logs:
      - path: log
        replicas:
          - url: s3://bucket/log
            options: {region: eu-west-1, connections: 8, path-style: true, secret-access-key: "${SECRET}"}
    """
    config = config_of(text, {"SECRET": "canary-in-the-mine"})
    (replica,) = config.logs[0].replicas
    assert replica.options == {
        "region": "eu-west-1",
        "connections": 8,
        "path-style": True,
        "secret-access-key": "canary-in-the-mine",
    }
    assert "canary" not in repr(config)


def test_options_that_are_not_a_mapping_are_named() -> None:
    text = "logs: [{path: log, replicas: [{url: s3://bucket/log, options: [region]}]}]"
    assert any("logs[0].replicas[0].options" in problem for problem in problems_of(text))
    nested = "logs: [{path: log, replicas: [{url: s3://bucket/log, options: {region: [eu]}}]}]"
    assert any("options" in problem for problem in problems_of(nested))


def test_snapshot_settings_hold_for_all_replicas_or_for_one() -> None:
    config = load_config(
        """
        snapshot-interval: 30m
        snapshot-segments: 7
        snapshot-policy: mirror
        wal-retention: 2h
        logs: [{path: /a, replicas: [{url: /b}, {url: /c, wal-retention: 1d, snapshot-policy: keep}]}]
        """,
        {},
    )
    one, other = config.logs[0].replicas
    assert (one.snapshot_interval, one.snapshot_segments, one.snapshot_policy, one.wal_retention) == (
        1800.0,
        7,
        "mirror",
        7200.0,
    )
    assert (other.snapshot_segments, other.snapshot_policy, other.wal_retention) == (7, "keep", 86400.0)


def test_a_compression_holds_for_all_replicas_or_for_one() -> None:
    text = "compression: zstd\nlogs: [{path: /a, replicas: [{url: /b}, {url: /c, compression: lz4hc}]}]\n"
    found = [replica.compression for replica in load_config(text, {}).logs[0].replicas]
    assert found == [Compression.ZSTD, Compression.LZ4HC]
    (usual,) = load_config("logs: [{path: /a, replicas: [/b]}]\n", {}).logs[0].replicas
    assert usual.compression is Compression.LZ4


@pytest.mark.parametrize("place", ["compression: zstd\nlogs: [{path: /a, replicas: [/b]}]", None])
def test_a_compression_whose_package_is_missing_is_a_mistake(
    place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = place or "logs: [{path: /a, replicas: [{url: /b, compression: zstd}]}]"
    assert load_config(text, {})
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InvalidConfigError, match=r"line [12].*compression: .*zstandard; run: .*\[zstd\]"):
        load_config(text, {})
    assert load_config(text.replace("zstd", "lz4hc"), {})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("compression: gzip", "must be lz4, lz4hc or zstd"),
        ("compression: 1", "must be lz4, lz4hc or zstd"),
        ("wal-retention: 59m", "must be from 1h to 36500d"),
        ("wal-retention: 3599", "must be from 1h"),
        ("snapshot-interval: 0s", "must be from 1s to 36500d"),
        ("snapshot-segments: 0", "greater than or equal to 1"),
        ("snapshot-segments: many", "valid integer"),
        ("snapshot-policy: forget", "must be keep or mirror"),
    ],
)
def test_invalid_snapshot_settings_are_refused(line: str, problem: str) -> None:
    with pytest.raises(InvalidConfigError, match=problem):
        load_config(f"{line}\nlogs: [{{path: /a, replicas: [{{url: /b}}]}}]\n", {})


def test_a_replica_may_be_its_url_alone() -> None:
    both = config_of("logs: [{path: /log, replicas: [/one, {url: 's3://bucket/x'}]}]")
    assert [replica.url for replica in both.logs[0].replicas] == ["/one", "s3://bucket/x"]
    assert problems_of("logs: [{path: /log, replicas: ['']}]")


@pytest.mark.parametrize("key", ["region", "endpoint", "access-key-id"])
def test_an_option_beside_the_url_is_answered_with_where_it_belongs(key: str) -> None:
    (problem,) = problems_of(f"logs: [{{path: /log, replicas: [{{url: /one, {key}: x}}]}}]")
    assert f"{key}: unknown key; it belongs under options: (options: {{{key}: ...}})" in problem


def test_a_number_alone_is_one_of_seconds() -> None:
    config = config_of("{sync-interval: 2, logs: [{path: /log, replicas: [/one]}]}")
    assert config.logs[0].replicas[0].sync_interval == 2


@pytest.mark.slow
def test_a_duplicate_url_is_an_error() -> None:
    (problem,) = problems_of("logs: [{path: /log, replicas: [/one, {url: /one}]}]")
    assert "name every log and replica once" in problem
    assert problems_of("logs: [{path: /log, replicas: ['${NOWHERE}']}]")
