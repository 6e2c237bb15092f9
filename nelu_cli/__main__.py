"""``nelu``, and ``python -m nelu_cli``."""

import os

from nelu_cli import stopping

SPINS = 1000
"""How often a thread of OpenMP looks whether the others are done before it sleeps."""


def main() -> None:
    """Run the command line and exit with its status."""
    stopping.end_at_once()
    _wait_briefly()
    from nelu_cli import cli  # takes a while

    cli.main()


def _wait_briefly() -> None:
    """Have the threads of torch wait for each other asleep, unless they are done at once.

    By default they keep their cores busy for milliseconds, while the one that they wait for may be
    waiting for such a core: beside other work two threads then take several times as long as one.
    It must be said before torch is loaded, and to GNU's OpenMP; others take no notice.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


if __name__ == "__main__":
    main()
