"""What a person sees of a training run."""

from typing import TYPE_CHECKING

from rich.live import Live

from nelu_cli.cli.reporting import stderr_console

if TYPE_CHECKING:
    from nelu_cli.training import Event


class Display:
    """A line for each validation, and on a terminal a last line that keeps moving."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = stderr_console()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.moving = self.console.is_terminal and not quiet

    def __enter__(self) -> "Display":
        if self.moving:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.moving:
            self.live.stop()

    def note(self, text: str) -> None:
        """What a person should know."""
        self.console.print(f"nelu: {text}")

    def show(self, event: "Event") -> None:
        """How far the run is."""
        if self.quiet:
            return
        text = (
            f"{event.progress:6.1%}  step {event.step}  loss {event.loss:.5f}  lr {event.lr:.1e}  "
            f"{event.megapixels_per_second:.2f} Mpx/s  {event.seconds_left / 60:.0f} min left"
        )
        void = f"  ({event.void} steps had no finite gradient)" if event.void else ""
        if self.moving:
            self.live.update(text + void, refresh=True)
        if event.validation:
            levels = "  ".join(
                f"{f'σ{level}' if level.isdigit() else level} {psnr:.2f}"
                for level, psnr in event.validation.items()
            )
            self.console.print(f"step {event.step}: validation PSNR {levels}{void}")
        elif not self.moving and event.step % 500 == 0:
            self.console.print(text + void)
