"""``nelu eval`` and ``nelu data``, as a user types them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nelu_cli.data import downloads

Nelu = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the set ``waves``: three small colour pictures."""
    folder = tmp_path / "data"
    (folder / "waves").mkdir(parents=True)
    y, x = np.mgrid[:40, :48]
    for number in range(3):
        grey = 128 + 80 * np.sin(y / 9 + number) * np.cos(x / 7)
        pixels = np.stack([grey, grey - 20, grey + 20], axis=-1).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "waves" / f"{number}.png")
    monkeypatch.setenv("NELU_DATA", str(folder))
    monkeypatch.setenv("NELU_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NELU_MIRROR", raising=False)
    return folder


BLIND = ("eval", "--dataset", "waves", "--model", "none")


def test_table_names_rows_levels_and_protocol(nelu: Nelu, data: Path) -> None:
    status, out, err = nelu(
        *BLIND, "--sigmas", "15,50", "--baseline", "wavelet", "--baseline", "tv-told"
    )
    assert (status, err) == (0, "")
    assert out.startswith("waves: 3 images, colour; white noise, seed 0\n")
    for text in ("PSNR, dB", "SSIM", "σ 15", "σ 50", "noisy (input)", " 24."):
        assert text in out
    assert "wavelet (blind)" in out
    assert "tv-told (told σ)" in out
    assert "±: standard error" in out


def test_eight_levels_fit_into_80_columns(nelu: Nelu, data: Path) -> None:
    status, out, _ = nelu(
        *BLIND, "--sigmas", "15,25,35,50,75,90,105,120", "--baseline", "wavelet", "--limit", "2"
    )
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert out.startswith("waves: the first 2 of 3 images")
    header = next(line for line in out.splitlines() if "PSNR" in line)
    assert " ".join(header.split()) == "PSNR, dB σ 15 σ 25 σ 35 σ 50 σ 75 σ 90 σ 105 σ 120"


def test_same_command_gives_the_same_output(nelu: Nelu, data: Path) -> None:
    command = (*BLIND, "--baseline", "nlm", "--json", "--sigmas", "25")
    assert nelu(*command) == nelu(*command)


def test_json_is_all_of_stdout(nelu: Nelu, data: Path) -> None:
    status, out, err = nelu(
        *BLIND, "--sigmas", "15", "--channels", "1", "--noise", "spatial", "--seed", "7", "--json"
    )
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["channels"] == 1
    assert (document["noise"], document["seed"]) == ("spatial", 7)
    assert document["images"] == ["0", "1", "2"]
    assert [row["method"] for row in document["means"]] == ["noisy"]


def test_no_noise_is_a_level_too(nelu: Nelu, data: Path) -> None:
    _, out, _ = nelu(*BLIND, "--sigmas", "0", "--baseline", "nlm-told", "--json")
    means = {row["method"]: row["psnr"] for row in json.loads(out)["means"]}
    assert means["noisy"] is None  # infinite: nothing was added
    assert means["nlm-told"] is None  # told that there is nothing to do


def test_files_are_written(nelu: Nelu, data: Path, tmp_path: Path) -> None:
    table, curves, pictures = tmp_path / "t.csv", tmp_path / "c.png", tmp_path / "pictures"
    status, _, _ = nelu(
        *BLIND, "--sigmas", "25", "--baseline", "wavelet", "--limit", "1",
        "--csv", table, "--plot", curves, "--save-images", pictures,
    )  # fmt: skip
    assert status == 0
    assert table.read_text().splitlines()[0] == "method,sigma,image,psnr,psnr_not_clipped,ssim"
    assert curves.read_bytes().startswith(b"\x89PNG")
    assert (pictures / "0" / "sigma25" / "comparison.png").is_file()


@pytest.fixture
def weights(tmp_path: Path) -> Callable[[str, int], Path]:
    """Write a small untrained network with so many channels to a file."""
    from nelu_cli import checkpoints
    from nelu_cli.networks import DeepConfig, build

    def write(file: str, channels: int) -> Path:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        config = DeepConfig(channels=channels, widths=(4,), blocks=(1,))
        network = build(config)
        checkpoints.save(path, network.state_dict(), config, checkpoints.TrainingRecord())
        return path

    return write


Weights = Callable[[str, int], Path]
WAVES = ("eval", "--dataset", "waves", "--sigmas", "25", "--limit", "1", "--json")


@pytest.mark.parametrize("channels", [1, 3])
def test_model_decides_between_grey_and_colour(
    nelu: Nelu, data: Path, weights: Weights, channels: int
) -> None:
    command = (*WAVES, "--model", weights("small.safetensors", channels), "--threads", "1")
    status, out, _ = nelu(*command)
    assert status == 0
    document = json.loads(out)
    assert document["channels"] == channels
    assert document["methods"][1] == {"name": "small", "note": "blind"}
    assert nelu(*command)[1] == out


def test_grey_and_colour_models_share_no_table_unless_told_so(
    nelu: Nelu, data: Path, weights: Weights
) -> None:
    grey, colour = weights("grey.safetensors", 1), weights("colour.safetensors", 3)
    both = (*WAVES, "--model", grey, "--model", colour)
    status, _, err = nelu(*both)
    assert status == 2
    assert err.startswith("nelu: grey and colour models do not share a table; --channels 3 ")
    status, _, err = nelu(*both, "--channels", "1")
    assert status == 2
    assert err == "nelu: colour: a colour model cannot be evaluated with --channels 1\n"
    status, out, _ = nelu(*both, "--channels", "3")
    assert status == 0
    assert [method["name"] for method in json.loads(out)["methods"]] == ["noisy", "grey", "colour"]


def test_estimates_need_not_be_clipped(nelu: Nelu, data: Path) -> None:
    command = (*BLIND, "--sigmas", "80", "--baseline", "wavelet")
    both, clipped, raw = (
        {mean["method"]: mean[key] for mean in json.loads(nelu(*command, *more)[1])["means"]}
        for key, more in (
            ("psnr_not_clipped", ("--json",)),
            ("psnr", ("--json",)),
            ("psnr", ("--json", "--no-clip")),
        )
    )
    assert both == raw
    assert raw["noisy"] == clipped["noisy"]
    assert raw["wavelet"] < clipped["wavelet"]
    assert "not clipped to the range" in " ".join(nelu(*command, "--no-clip")[1].split())


def test_shifts_of_the_grid_are_averaged(nelu: Nelu, data: Path, weights: Weights) -> None:
    command = (*WAVES, "--model", weights("small.safetensors", 1), "--threads", "1", "--limit", "1")
    plain, averaged = (nelu(*command, *more)[1] for more in ((), ("--shifts", "2")))
    assert json.loads(plain)["means"][0] == json.loads(averaged)["means"][0]
    assert json.loads(plain)["means"][-1] != json.loads(averaged)["means"][-1]
    status, _, err = nelu(*command, "--shifts", "9999")
    assert status == 2
    assert err.startswith("nelu: --shifts 9999: the model's grid has ")


def test_models_of_one_name_are_told_apart(nelu: Nelu, data: Path, weights: Weights) -> None:
    first, second = weights("one/best.safetensors", 1), weights("two/best.safetensors", 1)
    _, out, _ = nelu(*WAVES, "--model", first, "--model", second, "--model", first)
    names = [method["name"] for method in json.loads(out)["methods"]]
    assert names == ["noisy", str(first), str(second)]


def test_missing_model_is_one_line(nelu: Nelu, data: Path) -> None:
    status, out, err = nelu(*WAVES, "--model", "nosuch")
    assert (status, out) == (1, "")
    assert err.startswith("nelu: nosuch")
    assert err.count("\n") == 1


def test_papers_rows_are_labelled_and_warned_of(nelu: Nelu, data: Path) -> None:
    status, out, err = nelu(*BLIND, "--sigmas", "15,20", "--paper", "--limit", "1")
    assert status == 0
    words = " ".join(out.split())
    assert "paper's NeLU (published) 28.65 –" in words
    assert "trained on the Waterloo Exploration set" in words
    assert err == (
        "nelu: warning: the paper's rows do not compare: they are for bsd68, this is waves\n"
    )


def test_samples_are_called_samples(nelu: Nelu) -> None:
    status, out, _ = nelu("eval", "--model", "none", "--limit", "1", "--sigmas", "50")
    assert status == 0
    assert "samples are a few photographs that come with scikit-image" in " ".join(out.split())


def test_public_name_with_other_files_is_warned_of(nelu: Nelu, data: Path) -> None:
    (data / "waves").rename(data / "set12")
    status, _, err = nelu("eval", "--dataset", "set12", "--model", "none", "--sigmas", "50")
    assert status == 0
    assert "set12 should be 12 files; here are 3, of which 0 are the published ones" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sigmas", "15,x"], "--sigmas: 'x' is not a noise level; write numbers from 0 up"),
        (["--sigmas", "-1"], "--sigmas: '-1' is not a noise level"),
        (["--sigmas", "nan"], "--sigmas: 'nan' is not a noise level"),
        (["--baseline", "magic"], "magic: no such baseline; there are wavelet, nlm, tv"),
        (["--channels", "2"], "--channels 2: choose 1 (grey) or 3 (colour)"),
        (["--plot", "curves.gif"], "curves.gif: a figure can be written as .png, .svg, .pdf"),
        (["--csv", "nowhere/t.csv"], "nowhere/t.csv: there is no folder nowhere"),
        (["--limit", "0"], "--limit"),
        (["--noise", "pink"], "--noise"),
    ],
)
def test_senseless_command_is_one_line_and_status_2(
    nelu: Nelu, data: Path, arguments: list[str], message: str
) -> None:
    status, out, err = nelu(*BLIND, *arguments)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_missing_dataset_is_one_line(nelu: Nelu, data: Path) -> None:
    status, _, err = nelu("eval", "--dataset", "nosuch", "--model", "none")
    assert status == 1
    assert err.startswith("nelu: nosuch: ")
    assert err.count("\n") == 1


def test_target_that_cannot_be_written_is_one_line(nelu: Nelu, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    status, _, err = nelu(*BLIND, "--sigmas", "50", "--save-images", tmp_path / "file" / "x")
    assert status == 1
    assert err.startswith(f"nelu: {tmp_path / 'file'}")
    assert "cannot be written" in err
    assert err.count("\n") == 1


# nelu data


def test_list_says_what_is_here(nelu: Nelu, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted((data / "waves").iterdir())
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (data / "waves").rename(data / "set12")
    monkeypatch.setattr(downloads, "_checksums", lambda name: hashes)
    monkeypatch.setenv("COLUMNS", "300")
    status, out, _ = nelu("data", "list")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert status == 0
    assert str(data / "set12") in lines["set12"]
    assert " all " in lines["set12"]
    assert "nelu data fetch bsd68" in lines["bsd68"]
    assert "samples" in lines


def test_fetch_of_an_unknown_set_fetches_nothing(nelu: Nelu, data: Path) -> None:
    status, out, err = nelu("data", "fetch", "set12", "nosuch")
    assert (status, out) == (1, "")
    assert err.startswith("nelu: nosuch: not a public set that can be fetched; there are set12,")


def test_fetch_with_everything_there_needs_no_network(
    nelu: Nelu, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted((data / "waves").iterdir())
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (data / "waves").rename(data / "set12")
    monkeypatch.setattr(downloads, "_checksums", lambda name: hashes)
    status, out, _ = nelu("data", "fetch", "set12", "--data-dir", data)
    assert status == 0
    assert out == f"set12: 3 files in {data / 'set12'} (0 new)\n"


def test_a_licence_is_told_before_fetching(
    nelu: Nelu, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_checksums", lambda name: {})
    status, _, err = nelu("data", "fetch", "polyu", "--data-dir", data)
    assert status == 0
    assert err.startswith("polyu: for non-commercial use only, see https://github.com/csjunxu/")


def test_fetch_without_network_says_where_to_put_the_files(
    nelu: Nelu, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv("no_proxy", "*")
    status, out, err = nelu("data", "fetch", "set12", "--mirror", "http://127.0.0.1:9")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert f"files are in {tmp_path / 'cache' / 'set12'}" in err
    assert "by hand" in err


def test_real_pairs_have_a_table(nelu: Nelu, tmp_path: Path) -> None:
    for name, light in (("a_real", 90), ("a_mean", 100), ("b_real", 110), ("b_mean", 100)):
        Image.new("RGB", (16, 16), (light, light, light)).save(tmp_path / f"{name}.png")
    status, out, err = nelu("eval", "--pairs", str(tmp_path), "--model", "none")
    assert (status, err) == (0, "")
    assert out.startswith(f"{tmp_path.name}: 2 images, colour; real noise\n")
    assert "28.13" in out  # 20·log₁₀(255/10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noisy", "."], "real noise: give --pairs, or both --noisy and --clean"),
        (["--pairs", "samples"], "--pairs samples: no files NAME_real and NAME_mean in samples"),
    ],
)
def test_half_pairs_are_refused_in_one_line(nelu: Nelu, arguments: list[str], message: str) -> None:
    status, out, err = nelu("eval", *arguments, "--model", "none")
    assert (status, out, err) == (2, "", f"nelu: {message}\n")
