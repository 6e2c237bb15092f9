"""``nelu train``: train a denoiser on anyone's own pictures."""

import re
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nelu_cli.cli.completion import complete_models, complete_sets
from nelu_cli.cli.plain import plain
from nelu_cli.errors import UsageError

if TYPE_CHECKING:
    import torch

    from nelu_cli.networks import Config, Recipe
    from nelu_cli.training import Event, TrainConfig

_DATA, _NETWORK = "Pictures and noise", "The network"
_LEARNING, _RUN = "How it learns", "The run"  # groups of options in the help

_OPTIONS = {  # by the fields of a network's config, where they are not called alike
    "signed": "--signed/--nonnegative",
    "pass_through": "--pass-through/--decode",
    "symmetric": "--symmetry",
}


def train(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            rich_help_panel=_DATA,
            help="Training pictures: a dataset's name or any folder. Repeatable. "
            "Default: cbsd432, or samples where that is missing.",
        ),
    ] = None,
    validate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            rich_help_panel=_DATA,
            help="Dataset to validate on. Default: the pictures held out.",
        ),
    ] = None,
    hold_out: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_DATA,
            help="Keep every n-th picture out of training; 0 for none. Default: 10.",
        ),
    ] = None,
    validate_every: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_DATA, help="Steps from one validation to the next. Default: 1000."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(rich_help_panel=_DATA, help="Where datasets are looked up first.")
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_DATA,
            help="Kind of noise: white, photo (what cameras and scanners leave), or shares such "
            "as camera=6,white=2. Default: white.",
        ),
    ] = None,
    sigma: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_DATA,
            help="Level of the white noise, 0–255: a number or a range. Default: 0-120, paper: 15.",
        ),
    ] = None,
    sigma_power: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_DATA,
            help="Above 1, small noise levels of the range are drawn more often. Default: 1.",
        ),
    ] = None,
    contrast: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_DATA,
            help="Multiply clean patches by a factor from this range, e.g. 0.1-1. Default: 1.",
        ),
    ] = None,
    recolour: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_DATA,
            help="Share of the patches whose colours are changed, 0 to 1. Default: 0.",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(rich_help_panel=_DATA, help="Patches in a step. Default: 8.")
    ] = None,
    patch: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_DATA, help="Side of a patch in pixels. Default: 128, paper: 64."
        ),
    ] = None,
    final_patch: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_DATA, help="The same in the last fifth of the run. Default: --patch."
        ),
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="paper (one hidden layer), deep (multi-scale), or one of another package.",
        ),
    ] = "paper",
    channels: Annotated[
        int, typer.Option(rich_help_panel=_NETWORK, help="1 for grey, 3 for colour.")
    ] = 1,
    activation: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="paper: nelu, nelu-unrolled (Algorithm 2) or relu; deep: nelu, nelu-kept or relu. "
            "Default: nelu.",
        ),
    ] = None,
    signed: Annotated[
        bool | None,
        typer.Option(
            "--signed/--nonnegative",
            rich_help_panel=_NETWORK,
            help="paper: may codes be negative? Ours: yes.",
        ),
    ] = None,
    pass_through: Annotated[
        bool | None,
        typer.Option(
            "--pass-through/--decode",
            rich_help_panel=_NETWORK,
            help="paper: subtract what is shrunk away from the input (ours), or decode the code.",
        ),
    ] = None,
    widths: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK, help="deep: channels at each scale. Default: 48,80,128,128."
        ),
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="deep: blocks of the encoder at each scale. Default: 1,0,0,0.",
        ),
    ] = None,
    decoder_blocks: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="deep: the same for the decoder. Default: --blocks if given, else 1,2,1,2.",
        ),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="deep: channels inside the blocks. Default: --widths if given, else 48,64,64,64.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="deep: NeLU measures the noise over n × n positions, at each scale. "
            "Default: 5,5,5,1.",
        ),
    ] = None,
    symmetry: Annotated[
        bool | None,
        typer.Option(
            "--symmetry/--no-symmetry",
            rich_help_panel=_NETWORK,
            help="deep: treat a picture alike however it is turned or mirrored. Default: no, as "
            "the bundled weights do not.",
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="nelu (ours), or paper: non-negative codes, decoded; all shifts; one crop of "
            "128² a step, not turned; AdamW, lr 2e-2 × 0.7 in six equal parts of the run, ε 1e-3, "
            "weight decay 0.01, neither clipping nor averaging. Departs from the paper in the "
            "pictures (the Waterloo set is not to be had) and in that 300 epochs are the length "
            "of the run.",
        ),
    ] = "nelu",
    loss: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_LEARNING,
            help="scaled-mse, rmse, mse, l1 or log-mse. Default: scaled-mse, paper: mse.",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_LEARNING,
            help="deep: muon for the inner convolutions, or adamw for all. Default: muon.",
        ),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(rich_help_panel=_LEARNING, help="Learning rate. Default: 0.002.")
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_LEARNING,
            help="Largest norm of a step's gradient; 0 for no limit, as in the paper. Default: 1.",
        ),
    ] = None,
    cooldown: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_LEARNING,
            help="Share of the run over which the learning rate falls to 0. Default: 0.4.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_RUN, help="Folder of the run. Default: runs/NETWORK."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(rich_help_panel=_RUN, help="Length of the run in steps.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(rich_help_panel=_RUN, help="Length of the run in minutes. Default: 60."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            rich_help_panel=_RUN,
            help="Go on with the run in --out, perhaps for longer.",
        ),
    ] = False,
    start_from: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            autocompletion=complete_models,
            rich_help_panel=_RUN,
            help="Begin with the tensors of these weights that fit.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(rich_help_panel=_RUN, help="Seed of weights, patches and noise.")
    ] = 0,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(
            rich_help_panel=_RUN,
            help="Of the convolutions; auto takes bfloat16 where it is faster.",
        ),
    ] = "auto",
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"],
        typer.Option(
            rich_help_panel=_RUN,
            help="Where to compute. auto takes a graphics card if there is one; cuda and mps have "
            "not been tried.",
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_RUN, help="Processor cores to use. Default: all."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=_RUN, help="Say nothing but errors.")
    ] = False,
) -> None:
    """Train a denoiser. Interrupt it at any time; --resume goes on exactly where it was."""
    if steps is not None and minutes is not None:
        raise UsageError("give --steps or --minutes, not both")
    folder = out or Path("runs") / network
    given: dict[str, Any] = {
        "data": tuple(data) if data else None,
        "validate": validate,
        "hold_out": hold_out,
        "sigma255": _range("--sigma", sigma),
        "sigma_power": sigma_power,
        "noise": noise,
        "recolour": recolour,
        "contrast": _range("--contrast", contrast),
        "loss": loss,
        "batch": batch,
        "patch": patch,
        "final_patch": final_patch,
        "optimizer": optimizer,
        "lr": lr,
        "clip": clip,
        "cooldown": cooldown,
        "seed": seed,
        "validate_every": validate_every,
    }
    length: dict[str, Any] = {}
    if steps is not None or minutes is not None:
        length = {"steps": steps, "minutes": minutes}
    shape: dict[str, Any] = {
        "channels": channels,
        "activation": activation,
        "signed": signed,
        "pass_through": pass_through,
        "widths": _counts(widths),
        "blocks": _counts(blocks),
        "decoder_blocks": _counts(decoder_blocks),
        "hidden": _counts(hidden),
        "window": _counts(window),
        "symmetric": symmetry,
    }
    if resume:
        _refuse_changes(context)
    elif (folder / "config.json").exists():
        raise UsageError(f"{folder}: holds a run already; add --resume, or choose another --out")

    import torch

    from nelu_cli.runtime.allocator import keep_freed_memory
    from nelu_cli.runtime.device import find_device
    from nelu_cli.training import TrainConfig, load_run

    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    if resume:
        config, network_config = load_run(folder)
        config = replace(config, **length)
    else:
        start = _recipe(network, recipe)
        network_config = _shaped(network, start.config, shape)
        chosen = {**start.training, **length}
        chosen |= {name: value for name, value in given.items() if value is not None}
        if patch and not final_patch:
            chosen["final_patch"] = patch
        if not data:
            chosen["data"] = _default_data(data_dir)
        chosen["precision"] = _precision(precision, network_config, find_device(device))
        config = TrainConfig(**chosen)
    command = shlex.join(["nelu", *context.obj])
    where = find_device(device)
    _run(config, network_config, folder, data_dir, resume, start_from, where, command, quiet)


def _precision(wanted: str, config: "Config", device: "torch.device") -> str:
    """What the network's convolutions compute in: as asked, or what is faster."""
    from nelu_cli.networks import build
    from nelu_cli.runtime.precision import choose_precision

    chosen = choose_precision(wanted, device)
    if chosen == "bfloat16" and build(config).in_bfloat16() is None:
        if wanted == "auto":
            return "float32"
        raise UsageError(f"--precision bfloat16: a {config.family} network computes in float32")
    return chosen


def _recipe(network: str, recipe: str) -> "Recipe":
    from nelu_cli.networks import family

    recipes = family(network).recipes
    if recipe not in recipes:
        known = ", ".join(recipes)
        raise UsageError(f"--recipe {recipe} is not one of --network {network}, which has {known}")
    return recipes[recipe]


def _shaped(network: str, config: "Config", shape: dict[str, Any]) -> "Config":
    """The config with the options that were given; each must be one of the network's own."""
    from nelu_cli.networks import family

    given = {name: value for name, value in shape.items() if value is not None}
    own = {entry.name for entry in fields(config)}
    for name in given:
        if name not in own:
            option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
            raise UsageError(f"{option} is not an option of --network {network}; leave it out")
    try:
        return family(network).shaped(config, given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _run(
    config: "TrainConfig",
    network_config: "Config",
    folder: Path,
    data_dir: Path | None,
    resume: bool,
    start_from: str | None,
    device: "torch.device",
    command: str,
    quiet: bool,
) -> None:
    from nelu_cli.stopping import stopped_by
    from nelu_cli.training import RunStopped, train

    try:
        with _Display(quiet) as display:
            train(
                config,
                network_config,
                folder,
                data_dir=data_dir,
                resume=resume,
                start_from=start_from,
                device=device,
                command=command,
                on_event=display.show,
                on_note=display.note,
            )
    except RunStopped as stop:
        again = shlex.join(["nelu", "train", "--resume", "--out", str(folder)])
        print(f"nelu: stopped and saved; go on with: {plain(again)}", file=sys.stderr)
        raise typer.Exit(128 + (stopped_by(stop.__cause__ or stop) or 2)) from None
    if not quiet:
        weights = plain(folder / "best.safetensors")
        print(f"nelu: done; the weights are {weights}", file=sys.stderr)


class _Display:
    """A line for each validation, and on a terminal a last line that keeps moving."""

    def __init__(self, quiet: bool) -> None:
        from rich.live import Live

        from nelu_cli.cli.reporting import stderr_console

        self.quiet = quiet
        self.console = stderr_console()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.moving = self.console.is_terminal and not quiet

    def __enter__(self) -> "_Display":
        if self.moving:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.moving:
            self.live.stop()

    def note(self, text: str) -> None:
        self.console.print(f"nelu: {text}", markup=False)

    def show(self, event: "Event") -> None:
        if self.quiet:
            return
        text = (
            f"{event.progress:6.1%}  step {event.step}  loss {event.loss:.5f}  lr {event.lr:.1e}  "
            f"{event.megapixels_per_second:.2f} Mpx/s  {event.seconds_left / 60:.0f} min left"
        )
        if self.moving:
            self.live.update(text, refresh=True)
        if event.validation:
            levels = "  ".join(
                f"{f'σ{level}' if level.isdigit() else level} {psnr:.2f}"
                for level, psnr in event.validation.items()
            )
            self.console.print(f"step {event.step}: validation PSNR {levels}", markup=False)
        elif not self.moving and event.step % 500 == 0:
            self.console.print(text, markup=False)


def _default_data(data_dir: Path | None) -> tuple[str, ...]:
    from nelu_cli.data.sets import SAMPLES, find
    from nelu_cli.errors import DatasetError

    try:
        return (find("cbsd432", data_dir).name,)
    except DatasetError:
        print(
            "nelu: training on a few sample pictures, enough to try it; name your own with --data, "
            "or run nelu data fetch cbsd432",
            file=sys.stderr,
        )
        return (SAMPLES,)


def _range(option: str, text: str | None) -> tuple[float, float] | None:
    """ "15" or "0-120"."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text.strip())
    if not match:
        raise UsageError(f"{option} {text}: give a number such as 15, or a range such as 0-120")
    low = float(match[1])
    return low, float(match[2]) if match[2] else low


def _counts(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise UsageError(f"{text}: give whole numbers separated by commas") from None


def _refuse_changes(context: typer.Context) -> None:
    """A resumed run keeps its settings; only its length and what does not matter may change."""
    free = {"resume", "out", "steps", "minutes", "data_dir", "device", "threads", "quiet"}
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in free:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option}: a resumed run keeps its settings; leave the option out")
