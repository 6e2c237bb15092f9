"""OME-Zarr images: equal to the whole, laid out as before, resumable."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader
from zarr_images import load, save, scene

from nelu_cli import denoise
from nelu_cli.cluster import blocks, weights
from nelu_cli.cluster.blocks import Block, cut, most_pixels
from nelu_cli.cluster.volumes import Volume, denoise_volume, one_after_the_other
from nelu_cli.errors import ImageError
from nelu_cli.runtime import precision
from nelu_cli.runtime.models import Models, load_model
from nelu_cli.runtime.options import Options

Nelu = Callable[..., tuple[int, str, str]]
Values = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("default")  # zarr's and fsspec's own affairs


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SIDE", 64)


@pytest.fixture
def small_networks(small_models: Path) -> Iterator[None]:
    """Their halos are shorter than a block."""
    weights._loaded.cache_clear()
    yield
    weights._loaded.cache_clear()


def assert_same(found: Values, expected: Values) -> None:
    """Equal to 1e-5 of the range; whole numbers may be rounded the other way."""
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
    assert difference <= (1 if found.dtype.kind in "iu" else 1e-5)


# Blocks


@settings(deadline=None)
@given(
    dimensions=st.lists(st.tuples(st.integers(1, 16), st.integers(1, 6)), min_size=2, max_size=3),
    most=st.integers(1, 200),
    data=st.data(),
)
def test_blocks_cover_an_image_once_in_whole_chunks_and_keep_to_their_size(
    dimensions: list[tuple[int, int]], most: int, data: st.DataObject
) -> None:
    shape, chunk = zip(*dimensions, strict=True)
    plane = data.draw(st.permutations(range(len(shape))))[:2]
    found = cut(0, shape, chunk, (plane[0], plane[1]), most)
    counts = np.zeros(shape, int)
    for block in found:
        counts[block.region] += 1
        assert all(start % size == 0 for start, size in zip(block.start, chunk, strict=True))
        sides = [b - a for a, b in zip(block.start, block.stop, strict=True)]
        one_chunk = all(side <= size for side, size in zip(sides, chunk, strict=True))
        assert np.prod(sides) <= most or one_chunk
    assert (counts == 1).all()
    assert len({block.name for block in found}) == len(found)


def test_blocks_are_large_but_leave_work_for_all() -> None:
    side = blocks.SIDE
    whole = cut(0, (3, 4000, 4000), (1, 256, 256), (1, 2), side**2)
    assert len(whole) == 3  # no halo is computed twice
    halves = cut(0, (5000, 4000), (1024, 1024), (0, 1), side**2)
    assert [block.stop[0] - block.start[0] for block in halves] == [3072, 1928]
    many = cut(0, (1000, 512, 512), (1, 512, 512), (1, 2), side**2)
    assert len(many) == 16  # several planes together
    assert most_pixels(10**9, 2, memory=1 << 30, at_once=1) == side**2
    assert most_pixels(10**9, 2, memory=1 << 20, at_once=1) == 1 << 18
    assert most_pixels(side**2, 2, memory=1 << 30, at_once=2) == side**2 // 8
    assert most_pixels(10, 2, memory=1, at_once=2) == 1


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_blocks_are_equal_to_the_whole(tmp_path: Path, version: str, dtype: str) -> None:
    values = scene(2, 150, 170, dtype=dtype)
    source = save(tmp_path / "in.ome.zarr", values, "cyx", (1, 64, 64), version)
    record = denoise_volume(source, tmp_path / "out.ome.zarr")
    assert (record.status, record.model) == ("done", "deep-gray")
    found = load(tmp_path / "out.ome.zarr")
    assert found.dtype == values.dtype
    assert_same(found, np.stack([denoise(plane, "deep-gray") for plane in values]))


@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_equal_to_the_whole_in_bfloat16(tmp_path: Path) -> None:
    values = scene(150, 170)
    source = save(tmp_path / "in.zarr", values, "yx", (64, 64), factors=(1,))
    record = denoise_volume(source, tmp_path / "out.zarr", models=Models(precision="bfloat16"))
    assert record.precision == "bfloat16"
    whole = denoise(values, load_model("deep-gray", precision="bfloat16"))
    removed = np.abs(whole.astype(float) - values).max()
    difference = np.abs(load(tmp_path / "out.zarr").astype(float) - whole)
    assert difference.max() <= 2**-8 * removed  # a rounding of bfloat16, as for tiles
    assert np.mean(difference > 1) < 1e-3


@pytest.mark.usefixtures("small_blocks")
def test_precision_is_that_of_a_picture_unless_a_channel_needs_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "bfloat16_pays", lambda device: True)
    loud = scene(3, 130, 140)
    source = save(tmp_path / "loud.zarr", loud, "cyx", (1, 64, 64), factors=(1,))
    assert denoise_volume(source, tmp_path / "a.zarr").precision == "bfloat16"
    quiet = loud.copy()
    quiet[0] = (3000 + 2000 * np.sin(np.arange(140) / 15)).astype(np.uint16)
    quiet[0] += np.random.default_rng(0).integers(0, 4, quiet[0].shape, np.uint16)
    source = save(tmp_path / "quiet.zarr", quiet, "cyx", (1, 64, 64), factors=(1,))
    assert denoise_volume(source, tmp_path / "b.zarr").precision == "float32"
    asked = Models(precision="bfloat16")
    assert denoise_volume(source, tmp_path / "c.zarr", models=asked).precision == "bfloat16"


@pytest.mark.usefixtures("small_blocks")
def test_chunks_need_not_fit_the_network(tmp_path: Path) -> None:
    values = scene(130, 141, dtype="float32")
    source = save(tmp_path / "in.zarr", values, "yx", (37, 51))
    denoise_volume(source, tmp_path / "out.zarr")
    assert_same(load(tmp_path / "out.zarr"), denoise(values))


@pytest.mark.usefixtures("small_blocks", "small_networks")
def test_counts_are_dithered_alike_in_all_blocks(tmp_path: Path) -> None:
    values = np.random.default_rng(0).poisson(2, (150, 170)).astype(np.uint16)
    source = save(tmp_path / "in.zarr", values, "yx", (64, 64))
    denoise_volume(source, tmp_path / "out.zarr")
    found, whole = load(tmp_path / "out.zarr"), denoise(values, "deep-gray")
    assert np.mean(found != whole) < 1e-3  # float32 may fall to the other side of a threshold


@pytest.mark.usefixtures("small_blocks", "small_networks")
def test_blocks_without_values_stay_as_they_are(tmp_path: Path) -> None:
    values = scene(64, 192, dtype="float32")
    values[:, 64:] = np.nan
    source = save(tmp_path / "in.zarr", values, "yx", (64, 64), factors=(1,))
    denoise_volume(source, tmp_path / "out.zarr")
    found = load(tmp_path / "out.zarr")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    assert (found[:, :64] != values[:, :64]).any()


@pytest.mark.usefixtures("small_blocks")
def test_another_pair_of_axes_can_be_chosen(tmp_path: Path) -> None:
    values = scene(3, 90, 5, 100, dtype="float32")
    source = save(tmp_path / "in.zarr", values, "tzyx", (1, 32, 2, 64), factors=(1,))
    denoise_volume(source, tmp_path / "out.zarr", plane="zx")
    expected = np.empty_like(values)
    for t in range(3):
        for y in range(5):
            expected[t, :, y] = denoise(values[t, :, y])
    assert_same(load(tmp_path / "out.zarr"), expected)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_layout_and_metadata_are_kept_and_the_pyramid_is_made_anew(
    tmp_path: Path, version: str
) -> None:
    values = scene(2, 3, 70, 90)
    source = save(tmp_path / "in.zarr", values, "czyx", (1, 2, 32, 32), version, (1, 2, 4))
    labels = zarr.open_group(source / "labels", mode="w", zarr_format=2 if version == "0.4" else 3)
    labels.create_array("cells", data=np.arange(6, dtype=np.uint8))
    target = tmp_path / "out.zarr"
    denoise_volume(source, target)
    before, after = (zarr.open_group(path, mode="r") for path in (source, target))
    assert dict(after.attrs) == dict(before.attrs)
    for level in "012":
        old, new = (
            zarr.open_array(source / level, mode="r"),
            zarr.open_array(target / level, mode="r"),
        )
        assert new.metadata == old.metadata
    finest, middle = load(target, "0").astype(float), load(target, "1")
    expected = finest.reshape(2, 3, 35, 2, 45, 2).mean((3, 5))
    assert np.abs(middle - expected).max() <= 0.5
    assert load(target, "2").shape == (2, 3, 18, 23)
    assert np.array_equal(load(target, "labels/cells"), np.arange(6))
    names = {path.name for path in target.iterdir()}
    assert not names & {".nelu"}


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_other_programs_read_the_result(tmp_path: Path, version: str) -> None:
    source = save(tmp_path / "in.zarr", scene(1, 2, 1, 64, 64), "tczyx", (1, 1, 1, 32, 32), version)
    denoise_volume(source, tmp_path / "out.zarr")
    location = parse_url(tmp_path / "out.zarr")
    assert location is not None
    (node,) = list(Reader(location)())
    assert [level.shape for level in node.data] == [(1, 2, 1, 64, 64), (1, 2, 1, 32, 32)]
    assert np.array_equal(np.asarray(node.data[0]), load(tmp_path / "out.zarr"))


class Runs:
    """Ways to run blocks that note what was done."""

    def __init__(self) -> None:
        self.done: list[Block] = []

    def four(self, volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
        """Stop after four of them."""
        for block in one_after_the_other(volume, blocks[:4]):
            self.done.append(block)
            yield block
        raise KeyboardInterrupt

    def all(self, volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
        self.done.extend(blocks)
        return one_after_the_other(volume, blocks)


@pytest.mark.usefixtures("small_blocks")
def test_finished_blocks_are_not_done_again(tmp_path: Path) -> None:
    values = scene(128, 192)
    source = save(tmp_path / "in.zarr", values, "yx", (64, 64))
    whole, target = tmp_path / "whole.zarr", tmp_path / "out.zarr"
    denoise_volume(source, whole)
    ran = Runs()
    with pytest.raises(KeyboardInterrupt):
        denoise_volume(source, target, run=ran.four)
    assert not target.exists()
    assert (tmp_path / "out.zarr.part").is_dir()
    denoise_volume(source, target, run=ran.all)
    assert len({block.name for block in ran.done}) == len(ran.done) == 6 + 2
    assert np.array_equal(load(target), load(whole))
    assert not (tmp_path / "out.zarr.part").exists()


def test_unfinished_work_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    source = save(tmp_path / "in.zarr", scene(64, 64), "yx", (64, 64))

    def never(volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        denoise_volume(source, tmp_path / "out.zarr", run=never)
    with pytest.raises(ImageError, match=r"out.zarr.part: is of a run with other settings"):
        denoise_volume(source, tmp_path / "out.zarr", models=Models("paper-nelu-s15"))
    denoise_volume(source, tmp_path / "out.zarr")


@pytest.mark.usefixtures("small_blocks")
def test_another_machine_goes_on_as_the_work_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more workers, less memory, and slower in bfloat16."""
    source = save(tmp_path / "in.zarr", scene(128, 192).clip(0, 9000), "yx", (64, 64))
    ran = Runs()
    with monkeypatch.context() as there:
        there.setattr(precision, "bfloat16_pays", lambda device: True)
        with pytest.raises(KeyboardInterrupt):
            denoise_volume(source, tmp_path / "out.zarr", run=ran.four)
    few = Options(memory=100 << 20)
    with pytest.raises(ImageError, match="is of a run with other settings"):
        denoise_volume(
            source,
            tmp_path / "out.zarr",
            models=Models(precision="float32"),
            options=few,
            run=ran.all,
            at_once=8,
        )
    record = denoise_volume(source, tmp_path / "out.zarr", options=few, run=ran.all, at_once=8)
    assert record.precision == "bfloat16"
    assert len({block.name for block in ran.done}) == len(ran.done) == 6 + 2


def test_work_that_was_stopped_before_it_began_is_begun_anew(tmp_path: Path) -> None:
    source = save(tmp_path / "in.zarr", scene(64, 64), "yx", (64, 64))
    torn = tmp_path / "out.zarr.part" / ".nelu" / "work.json"
    torn.parent.mkdir(parents=True)
    torn.write_text('{"axes": ')
    assert denoise_volume(source, tmp_path / "out.zarr").status == "done"


# nelu denoise


def test_threads_and_shifts_are_not_forgotten(nelu: Nelu, tmp_path: Path) -> None:
    source = save(tmp_path / "in.zarr", scene(64, 64), "yx", (64, 64), factors=(1,))
    command = ("denoise", source, "--model", "paper-nelu-s15", "-q")
    before = torch.get_num_threads()
    try:
        assert nelu(*command[:2], tmp_path / "a.zarr", *command[2:], "--threads", "1")[0] == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert nelu(*command[:2], tmp_path / "b.zarr", *command[2:], "--shifts", "1")[0] == 0
    assert not np.array_equal(load(tmp_path / "a.zarr"), load(tmp_path / "b.zarr"))
    status, _, err = nelu("denoise", source, tmp_path / "c.zarr", "--model", "nobody", "-q")
    assert (status, err.count("\n")) == (1, 1)


def test_the_command_denoises_an_image(nelu: Nelu, tmp_path: Path) -> None:
    source = save(tmp_path / "in.ome.zarr", scene(2, 64, 96), "cyx", (1, 64, 64))
    target = tmp_path / "out.ome.zarr"
    status, out, err = nelu("denoise", source, target)
    assert (status, out) == (0, "")
    assert err.startswith(f"{source} → {target}: 96×64, 2 pages, grey uint16, deep-gray, noise ")
    assert nelu("denoise", source, target) == (
        1,
        "",
        f"nelu: {target}: exists already; --force replaces it, --skip-existing leaves it\n",
    )
    status, out, err = nelu("denoise", source, target, "--skip-existing", "--json")
    assert (status, json.loads(out)["status"]) == (0, "skipped")
    assert nelu("denoise", source, target, "--force", "--strength", "0", "-q") == (0, "", "")
    assert np.array_equal(load(target), load(source))


def test_the_command_refuses_in_one_line(
    nelu: Nelu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(tmp_path / "in.zarr", scene(64, 64), "yx", (64, 64))
    plate = tmp_path / "plate.zarr"
    zarr.open_group(plate, mode="w").attrs["ome"] = {"plate": {}}
    damaged = tmp_path / "damaged.zarr"
    shutil.copytree(source, damaged)
    (damaged / "zarr.json").write_text("{")
    out = tmp_path / "out.zarr"
    cases = {
        (source, tmp_path / "out.tif"): (2, f"{tmp_path / 'out.tif'}: an OME-Zarr image becomes"),
        (source, source): (2, f"{source}: the result needs a name of its own"),
        (source, plate, out): (2, "an OME-Zarr image is denoised by itself"),
        (source, out, "--plane", "zx"): (2, f"{source}: --plane takes two of its axes 'yx', not"),
        (source, out, "--dtype", "float32"): (
            2,
            f"{source}: an OME-Zarr image keeps its type uint16",
        ),
        (source, out, "--report", "a.html"): (
            2,
            "--dtype bilevel, --noise-map and --report are for",
        ),
        (source, out, "--noise-map", "a.png"): (2, "--dtype bilevel, --noise-map and --report"),
        (plate, out): (1, f"{plate}: a plate of images; name one image in it, as {plate / '0'}"),
        (damaged, out): (1, f"{damaged}: cannot be read as OME-Zarr ("),
    }
    for arguments, (expected, message) in cases.items():
        status, printed, err = nelu("denoise", *arguments, "-q")
        assert (status, printed) == (expected, "")
        assert err.startswith(f"nelu: {message}")
        assert err.count("\n") == 1
    assert not out.exists()
    monkeypatch.setitem(sys.modules, "zarr", None)
    status, _, err = nelu("denoise", source, out, "-q")
    assert status == 1
    assert err == "nelu: OME-Zarr needs more packages: pip install 'nelu-cli[dask]'\n"
