"""``python -m litelog_cli``: the command without its script, and the file to pass to spark-submit."""

from litelog_cli.entry import main

if __name__ == "__main__":
    main()
