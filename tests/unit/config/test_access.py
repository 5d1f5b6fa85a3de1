"""``tls`` and ``tokens`` in the configuration: what they mean, and mistakes with their lines."""

from __future__ import annotations

import pytest

from litelog.config import Config, load_config
from litelog.errors import ConfigError, InvalidConfigError
from litelog.server.service import ServiceSettings, require_listenable


def load(text: str) -> Config:
    return load_config(f"logs: [{{path: /a, replicas: [{{url: /b}}]}}]\n{text}\n", {})


def test_tokens_and_a_certificate_become_the_services_settings() -> None:
    config = load("tls: {certificate: /c, key: /k}\ntokens: [{file: /t, rights: [read], logs: [a]}]")
    settings = ServiceSettings.of(config)
    assert settings.tls is not None
    assert (settings.tls.certificate, settings.tls.key) == ("/c", "/k")
    (token,) = settings.tokens
    assert (token.file, token.rights, token.logs) == ("/t", ("read",), ("a",))
    assert settings.has_token
    assert load("tokens: [{file: /t, rights: [status, read]}]").tokens[0].logs == "all"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls: {certificate: /c}", "tls.key: "),
        ("tls: {certificate: c, key: /k}", "tls.certificate: must be an absolute path"),
        ("tls: {certificat: /c, key: /k}", "tls.certificat: unknown key; did you mean certificate?"),
        ("tls: true", "tls: must be a mapping"),
        ("addr: unix:./sock", "unix:/an/absolute/path: other commands look for the socket"),
        ("tokens: [{file: /t}]", "tokens[0].rights: "),
        ("tokens: [{file: /t, rights: []}]", "tokens[0].rights: "),
        ("tokens: [{file: /t, rights: [write]}]", "tokens[0].rights[0]: "),
        ("tokens: [{file: t, rights: [read]}]", "tokens[0].file: must be an absolute path"),
        ("tokens: [{file: /t, rights: [read], logs: orders}]", "tokens[0].logs: must be all, or a list"),
        ("tokens: [{file: /t, right: [read]}]", "tokens[0].right: unknown key; did you mean rights?"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_key(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        load(text)
    assert any(problem.startswith("line 2, ") and said in problem for problem in caught.value.problems)


def test_a_token_with_few_rights_suffices_for_an_address_of_other_machines() -> None:
    with pytest.raises(ConfigError, match="so it needs a token-file"):
        require_listenable("0.0.0.0:9977", has_token=ServiceSettings.of(load("")).has_token)
    settings = ServiceSettings.of(load("tokens: [{file: /t, rights: [read]}]"))
    require_listenable("0.0.0.0:9977", has_token=settings.has_token)
