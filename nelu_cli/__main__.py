"""``python -m nelu_cli`` is ``nelu``."""

from nelu_cli.cli import main

if __name__ == "__main__":
    main()
