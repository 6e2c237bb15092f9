"""``nelu train``: train a denoiser on anyone's own pictures."""

import shlex
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nelu_cli.cli.completion import complete_models, complete_sets
from nelu_cli.cli.plain import plain
from nelu_cli.cli.values import parse_counts, parse_range
from nelu_cli.errors import UsageError
from nelu_cli.stopping import stopped_by
from nelu_cli.words import Device, Precision

if TYPE_CHECKING:
    import torch

    from nelu_cli.networks import Config, Recipe

# The groups of options in the help.
_data_option = partial(typer.Option, rich_help_panel="Pictures and noise")
_network_option = partial(typer.Option, rich_help_panel="The network")
_learning_option = partial(typer.Option, rich_help_panel="How it learns")
_run_option = partial(typer.Option, rich_help_panel="The run")

_OPTIONS = {  # by the fields of a network's config, where they are not called alike
    "signed": "--signed/--nonnegative",
    "pass_through": "--pass-through/--decode",
    "symmetric": "--symmetry",
    "gated": "--gates",
    "steps": "--iterations",
}


def train(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        _data_option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            help="Training pictures: a dataset's name or any folder. Repeatable. "
            "Default: cbsd432, or samples where that is missing.",
        ),
    ] = None,
    validate: Annotated[
        str | None,
        _data_option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            help="Dataset to validate on. Default: the pictures held out.",
        ),
    ] = None,
    hold_out: Annotated[
        int | None,
        _data_option(help="Keep every n-th picture out of training; 0 for none. Default: 10."),
    ] = None,
    validate_every: Annotated[
        int | None, _data_option(help="Steps from one validation to the next. Default: 1000.")
    ] = None,
    data_dir: Annotated[
        Path | None, _data_option(help="Where datasets are looked up first.")
    ] = None,
    noise: Annotated[
        str | None,
        _data_option(
            help="Kind of noise: white, photo (what cameras and scanners leave), or shares such "
            "as camera=6,white=2, or white=9,coupled=1 (alike in the channels). Default: white."
        ),
    ] = None,
    sigma: Annotated[
        str | None,
        _data_option(
            help="Level of the white and coupled noise, 0–255: a number or a range. Default: "
            "0-120, paper: 15."
        ),
    ] = None,
    sigma_power: Annotated[
        float | None,
        _data_option(
            help="Above 1, small noise levels of the range are drawn more often. Default: 1."
        ),
    ] = None,
    contrast: Annotated[
        str | None,
        _data_option(
            help="Multiply clean patches by a factor from this range, e.g. 0.1-1. Default: 1."
        ),
    ] = None,
    recolour: Annotated[
        float | None,
        _data_option(help="Share of the patches whose colours are changed, 0 to 1. Default: 0."),
    ] = None,
    soft: Annotated[
        float | None,
        _data_option(
            help="Share of the patches with white noise that are of pictures scaled up, as soft as "
            "a camera's full size, 0 to 1. Default: 0."
        ),
    ] = None,
    vivid: Annotated[
        float | None,
        _data_option(
            help="Share of the patches with white noise that are the one of four with the most "
            "detail (of colour, where there is any), 0 to 1. Default: 0."
        ),
    ] = None,
    batch: Annotated[int | None, _data_option(help="Patches in a step. Default: 8.")] = None,
    patch: Annotated[
        int | None, _data_option(help="Side of a patch in pixels. Default: 128, paper: 64.")
    ] = None,
    final_patch: Annotated[
        int | None, _data_option(help="The same in the last fifth of the run. Default: --patch.")
    ] = None,
    network: Annotated[
        str,
        _network_option(
            help="paper (one hidden layer), deep (multi-scale), or one of another package."
        ),
    ] = "paper",
    channels: Annotated[int, _network_option(help="1 for grey, 3 for colour.")] = 1,
    activation: Annotated[
        str | None,
        _network_option(
            help="paper: nelu, nelu-unrolled (Algorithm 2) or relu; deep: nelu, nelu-kept or relu. "
            "Default: nelu."
        ),
    ] = None,
    signed: Annotated[
        bool | None,
        _network_option("--signed/--nonnegative", help="paper: may codes be negative? Ours: yes."),
    ] = None,
    pass_through: Annotated[
        bool | None,
        _network_option(
            "--pass-through/--decode",
            help="paper: subtract what is shrunk away from the input (ours), or decode the code.",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        _network_option(help="paper, nelu-unrolled: N, the steps of Algorithm 2. Default: 10."),
    ] = None,
    widths: Annotated[
        str | None, _network_option(help="deep: channels at each scale. Default: 48,80,128,128.")
    ] = None,
    blocks: Annotated[
        str | None,
        _network_option(help="deep: blocks of the encoder at each scale. Default: 1,0,0,0."),
    ] = None,
    decoder_blocks: Annotated[
        str | None,
        _network_option(
            help="deep: the same for the decoder. Default: --blocks if given, else 2,2,2,2."
        ),
    ] = None,
    hidden: Annotated[
        str | None,
        _network_option(
            help="deep: channels inside the blocks. Default: --widths if given, else 48,64,64,64."
        ),
    ] = None,
    window: Annotated[
        str | None,
        _network_option(
            help="deep: NeLU measures the noise over n × n positions, at each scale. "
            "Default: 5,5,5,1."
        ),
    ] = None,
    symmetry: Annotated[
        bool | None,
        _network_option(
            "--symmetry/--no-symmetry",
            help="deep: treat a picture alike however it is turned or mirrored. Default: no, as "
            "the bundled weights do not.",
        ),
    ] = None,
    gates: Annotated[
        bool | None,
        _network_option(
            "--gates/--no-gates",
            help="deep: channels have gains that depend on what is where, not on how strong it is. "
            "Default: yes.",
        ),
    ] = None,
    recipe: Annotated[
        str,
        _network_option(
            help="nelu (ours), or paper: non-negative codes, decoded; all shifts; one crop of "
            "128² a step, not turned; AdamW, lr 2e-2 × 0.7 in six equal parts of the run, ε 1e-3, "
            "weight decay 0.01, neither clipping nor averaging. Departs from the paper in the "
            "pictures (the Waterloo set is not to be had) and in that 300 epochs are the length "
            "of the run."
        ),
    ] = "nelu",
    loss: Annotated[
        str | None,
        _learning_option(
            help="scaled-mse, rmse, mse, l1 or log-mse. Default: scaled-mse, paper: mse."
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        _learning_option(
            help="deep: muon for the inner convolutions, or adamw for all. Default: muon."
        ),
    ] = None,
    lr: Annotated[float | None, _learning_option(help="Learning rate. Default: 0.002.")] = None,
    clip: Annotated[
        float | None,
        _learning_option(
            help="Largest norm of a step's gradient; 0 for no limit, as in the paper. Default: 1."
        ),
    ] = None,
    cooldown: Annotated[
        float | None,
        _learning_option(
            help="Share of the run over which the learning rate falls to 0. Default: 0.4."
        ),
    ] = None,
    out: Annotated[
        Path | None, _run_option(help="Folder of the run. Default: runs/NETWORK.")
    ] = None,
    steps: Annotated[int | None, _run_option(help="Length of the run in steps.")] = None,
    minutes: Annotated[
        float | None, _run_option(help="Length of the run in minutes. Default: 60.")
    ] = None,
    resume: Annotated[
        bool, _run_option("--resume", help="Go on with the run in --out, perhaps for longer.")
    ] = False,
    start_from: Annotated[
        str | None,
        _run_option(
            metavar="NAME|PATH",
            autocompletion=complete_models,
            help="Begin with the tensors of these weights that fit.",
        ),
    ] = None,
    seed: Annotated[int, _run_option(help="Seed of weights, patches and noise.")] = 0,
    precision: Annotated[
        Precision,
        _run_option(help="Of the convolutions; auto takes bfloat16 where it is faster."),
    ] = "auto",
    device: Annotated[
        Device,
        _run_option(
            help="Where to compute. auto takes a graphics card if there is one; cuda and mps have "
            "not been tried."
        ),
    ] = "auto",
    threads: Annotated[
        int | None, _run_option(min=1, help="Processor cores to use. Default: all.")
    ] = None,
    quiet: Annotated[bool, _run_option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Train a denoiser. Interrupt it at any time; --resume goes on exactly where it was."""
    if steps is not None and minutes is not None:
        raise UsageError("give --steps or --minutes, not both")
    folder = out or Path("runs") / network
    given: dict[str, Any] = {
        "data": tuple(data) if data else None,
        "validate": validate,
        "hold_out": hold_out,
        "sigma255": parse_range(sigma, "--sigma"),
        "sigma_power": sigma_power,
        "noise": noise,
        "recolour": recolour,
        "soft": soft,
        "vivid": vivid,
        "contrast": parse_range(contrast, "--contrast"),
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
        "steps": iterations,
        "widths": parse_counts(widths),
        "blocks": parse_counts(blocks),
        "decoder_blocks": parse_counts(decoder_blocks),
        "hidden": parse_counts(hidden),
        "window": parse_counts(window),
        "symmetric": symmetry,
        "gated": gates,
    }
    if resume:
        _refuse_changes(context)
    elif (folder / "config.json").exists():
        raise UsageError(f"{folder}: holds a run already; add --resume, or choose another --out")

    import torch

    from nelu_cli import training
    from nelu_cli.cli.train_display import Display
    from nelu_cli.runtime.allocator import keep_freed_memory
    from nelu_cli.runtime.device import find_device

    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    if resume:
        config, network_config = training.load_run(folder)
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
        config = training.TrainConfig(**chosen)
    try:
        with Display(quiet) as display:
            training.train(
                config,
                network_config,
                folder,
                data_dir=data_dir,
                resume=resume,
                start_from=start_from,
                device=find_device(device),
                command=shlex.join(["nelu", *context.obj]),
                on_event=display.show,
                on_note=display.note,
            )
    except training.RunStopped as stop:
        again = shlex.join(["nelu", "train", "--resume", "--out", str(folder)])
        print(f"nelu: stopped and saved; go on with: {plain(again)}", file=sys.stderr)
        raise typer.Exit(128 + (stopped_by(stop.__cause__ or stop) or 2)) from None
    if not quiet:
        weights = plain(folder / "best.safetensors")
        print(f"nelu: done; the weights are {weights}", file=sys.stderr)


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


def _refuse_changes(context: typer.Context) -> None:
    """A resumed run keeps its settings; only its length and what does not matter may change."""
    free = {"resume", "out", "steps", "minutes", "data_dir", "device", "threads", "quiet"}
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in free:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option}: a resumed run keeps its settings; leave the option out")
