"""``litelog service``: prints the files with which a system, a cluster or a monitor runs and watches the daemon."""

from __future__ import annotations

import click

from litelog_cli.output import echo_lines
from litelog_cli.service_files import read_service_file

FILES = {
    "systemd": ("litelog.service", "Print a hardened unit for systemd."),
    "containerfile": ("Containerfile", "Print a file to build an image."),
    "compose": ("compose.yml", "Print a service for Docker Compose."),
    "kubernetes": ("kubernetes.yml", "Print a sidecar for Kubernetes."),
    "prometheus": ("prometheus-alerts.yml", "Print alert rules for Prometheus."),
    "grafana": ("grafana-dashboard.json", "Print a dashboard for Grafana."),
}
"""By the name of a verb below ``service``: the file that it prints, and its summary."""


@click.group(
    epilog="""\b
Examples:
  litelog service systemd > /etc/systemd/system/litelog.service
  litelog service compose > compose.yml
  litelog service grafana > dashboard.json
\b
Each file begins with a comment on what to change in it. litelog config example
prints the configuration.
"""
)
def service() -> None:
    """Print a file to run litelog as a service, or to watch it."""


def _make_command(name: str, file: str, summary: str) -> click.Command:
    def print_file() -> None:
        echo_lines(read_service_file(file).splitlines())

    examples = f"\b\nExamples:\n  litelog service {name} > {file}\n"
    return click.Command(name, callback=print_file, help=summary, epilog=examples)


for _name, (_file, _summary) in FILES.items():
    service.add_command(_make_command(_name, _file, _summary))
