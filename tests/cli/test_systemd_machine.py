"""The unit ``etc/litelog.service`` under a real systemd, and the documents whose commands change a machine.

Each test boots a container of this machine's programs (``tests/builders/machine.py``). It is skipped where none can
run; ``test_service_sandbox.py`` and ``test_service_manager.py`` need no systemd.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.builders.documents import blocks_of
from tests.builders.machine import Machine
from tests.sampling import NIGHTLY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not NIGHTLY, reason="at night: boots a machine for each test")

INSTALL = """
(cd /checkout && python3 -m venv /opt/litelog && /opt/litelog/bin/pip install '.[s3]')
ln -s /opt/litelog/bin/litelog /usr/local/bin/litelog
useradd --system --no-create-home --shell /usr/sbin/nologin litelog
install -d -o litelog -g litelog -m 0700 /var/backups/events
litelog service systemd > /etc/systemd/system/litelog.service
litelog config example > /etc/litelog.yml
install -d /etc/systemd/system/litelog.service.d
"""
"""As the comment at the beginning of the unit says."""

PROGRAM_WRITES = "seq 1 1000 | runuser -u myserver -- litelog append /var/lib/events > /dev/null\n"
"""The program that writes the log."""

ASK_PASSWORD = '#!/bin/sh\n[ "$*" = "Secret key:" ] && echo a-secret\n'
"""``systemd-ask-password``, which needs somebody at a terminal."""


def test_the_documents_commands_install_run_upgrade_restore_and_undo(tmp_path: Path) -> None:
    sections: dict[str, str] = {}
    for block in blocks_of("etc/docs/systemd.md"):
        if block.on_machine:
            sections[block.heading] = sections.get(block.heading, "") + block.text
    (upgrade,) = [block.text for block in blocks_of("etc/docs/versions.md") if block.on_machine]
    assert list(sections) == ["Install", "Configure", "Start", "Secrets", "Verify and restore", "Undo"]
    (readme,) = [block.text for block in blocks_of("README.md") if block.on_machine]
    script = [
        f"(ln -s /checkout/pyproject.toml .\n{readme}litelog version)",
        "useradd --system --user-group myserver",
        "cd /checkout",
        sections["Install"],
        sections["Configure"],
        sections["Start"],
        "install -d -o myserver -g myserver -m 0750 /var/lib/events",
        PROGRAM_WRITES,
        "systemctl reload litelog",
        sections["Secrets"],
        "cat /run/credentials/litelog.service/MINIO_SECRET",
        sections["Verify and restore"],
        "litelog generations --json /var/backups/events",
        upgrade,
        "litelog sync",
        "litelog generations --json /var/backups/events",
        sections["Undo"],
        "ls /var/backups/events",
    ]
    code, out, err = Machine(tmp_path, {"systemd-ask-password": ASK_PASSWORD}).run("\n".join(script))
    assert code == 0, f"{out[-3000:]}\n{err[-3000:]}"
    assert out.startswith("litelog 0.")
    assert "waiting for /var/lib/events to appear" in out
    assert "a-secret" in out
    assert out.endswith("epochs\ngenerations\n")


def test_the_unit_is_ready_before_its_log_exists_and_ends_with_a_last_sync(tmp_path: Path) -> None:
    """``sync-interval`` is an hour, so that what is appended after the first sync is shipped by the stop alone."""
    code, out, err = Machine(tmp_path).run(f"""{INSTALL}
sed -i -e 's/^sync-interval: .*/sync-interval: 1h/' -e '/^max-lag: /d' /etc/litelog.yml
systemctl enable --now litelog
systemctl is-active litelog
systemctl show --property=StatusText litelog
useradd --system --user-group myserver
install -d -o myserver -g myserver -m 0755 /var/lib/events
{PROGRAM_WRITES}
until litelog sync > /dev/null; do sleep 0.1; done
{PROGRAM_WRITES}
litelog cat --from latest --json /var/backups/events
systemctl stop litelog
systemctl show --property=Result litelog
litelog verify --against /var/lib/events /var/backups/events
litelog cat --from latest --json /var/backups/events
""")
    assert code == 0, f"{out[-3000:]}\n{err[-3000:]}"
    assert out.startswith("active\nStatusText=replicates to 1 replica; waiting for /var/lib/events to appear\n"), out
    assert "Result=success" in out
    assert [json.loads(line)["sequence"] for line in out.splitlines() if line.startswith("{")] == [999, 1999]


def test_the_unit_writes_only_where_it_may_and_restarts_if_that_helps(tmp_path: Path) -> None:
    code, out, err = Machine(tmp_path).run(f"""{INSTALL}
useradd --system --user-group myserver
install -d -o myserver -g myserver -m 0755 /var/lib/events
{PROGRAM_WRITES}
property() {{ systemctl show --value --property="$1" litelog; }}
cat > /etc/systemd/system/litelog.service.d/local.conf <<'EOF'
[Service]
ReadWritePaths=
TimeoutStartSec=3s
RestartSec=100ms
EOF
systemctl daemon-reload
! systemctl start litelog
systemctl stop litelog
journalctl -u litelog --grep 'Read-only file system' -o cat
sed -i '/ReadWritePaths=/d' /etc/systemd/system/litelog.service.d/local.conf
systemctl daemon-reload
systemctl start litelog
killed=$(property MainPID)
kill -KILL $killed
until [ "$(property ActiveState)" = active ] && [ "$(property MainPID)" != $killed ]; do sleep 0.1; done
echo restarted
litelog replicate --once --takeover --state-dir /tmp/other /var/lib/events /var/backups/events > /dev/null
chown -R litelog: /var/backups/events
{PROGRAM_WRITES}
until [ "$(property ActiveState)" = failed ]; do sleep 0.1; done
property ExecMainStatus
""")
    assert code == 0, f"{out[-3000:]}\n{err[-3000:]}"
    (*refused, restarted, status) = out.splitlines()
    assert refused
    assert all("Read-only file system" in line for line in refused)
    assert (restarted, status) == ("restarted", "5")


def test_the_documents_commands_build_run_and_remove_a_container(tmp_path: Path) -> None:
    """The store cannot be reached from there, so the final sync is given up soon. ``test_demo.py`` runs the demo."""
    blocks = [block for block in blocks_of("etc/docs/docker.md") if block.language == "sh"]
    docker = '#!/bin/sh\nexec /python/bin/python3 /checkout/tests/builders/fake_docker.py "$@"\n'
    (configure,) = [block.text for block in blocks if "config check" in block.text]
    build, run, remove = [block.text for block in blocks if block.on_machine]
    ready = "until docker exec events-litelog litelog status > /dev/null; do sleep 0.1; done\n"
    start, ask = run.split("docker exec", 1)
    script = [
        "export AWS_DEFAULT_REGION=eu-west-1 AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret",
        f"(cd /checkout\n{build.replace('litelog demo', 'litelog version')})",
        "PATH=/opt/litelog/bin:$PATH",
        configure.replace("shutdown-timeout: 20s", "shutdown-timeout: 100ms"),
        f"{start}{ready}docker exec{ask}",
        remove,
        "ls /exchange/docker/volumes",
    ]
    code, out, err = Machine(tmp_path, {"docker": docker}).run("\n".join(script))
    assert code == 0, f"{out[-3000:]}\n{err[-3000:]}"
    assert "replicating 1 log to 1 replica (configured by /etc/litelog.yml; state in /var/lib/litelog)" in out
    assert "s3://backups/events" in out
    assert out.endswith("\nevents\n")
