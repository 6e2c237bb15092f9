"""``nelu``, and ``python -m nelu_cli``."""

from nelu_cli import stopping


def main() -> None:
    """Run the command line and exit with its status."""
    stopping.end_at_once()
    from nelu_cli import cli  # takes a while

    cli.main()


if __name__ == "__main__":
    main()
