"""``python -m litelog_cli``: the command without its script."""

from litelog_cli.main import main

main()
