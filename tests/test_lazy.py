"""Dask arrays and xarrays: lazy, equal to the whole, with all that they carry."""

import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nelu_cli import ImageError, UsageError, denoise, estimate_noise, load_model
from nelu_cli.runtime import lazy, parts
from nelu_cli.runtime.choice import Choice, choose_model
from nelu_cli.runtime.lazy import _aligned, axes_of
from nelu_cli.runtime.models import Models

Values = NDArray[Any]

pytestmark = pytest.mark.usefixtures("small_models")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def noisy(*shape: int, dtype: str = "float32", seed: int = 0) -> Values:
    values = np.random.default_rng(seed).normal(0.5, 0.1, shape)
    return values.astype(dtype) if dtype == "float32" else (values * 200).astype(dtype)


def assert_same(found: Values, expected: Values) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# Laws


@given(
    lengths=st.tuples(st.integers(1, 200), st.integers(1, 200)),
    chunks=st.tuples(st.integers(1, 120), st.integers(1, 120)),
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_blocks_are_equal_to_the_whole(lengths: tuple[int, int], chunks: tuple[int, int]) -> None:
    values = noisy(*lengths)
    assert_same(denoise(da.from_array(values, chunks)).compute(), denoise(values, "deep-gray"))


@given(
    chunks=st.lists(st.integers(1, 90), min_size=1, max_size=9),
    stride=st.sampled_from([1, 2, 8]),
    halos=st.integers(0, 6),
)
def test_chunks_begin_on_the_grid_and_hold_a_halo(
    chunks: list[int], stride: int, halos: int
) -> None:
    found = _aligned(chunks, stride, halos * stride)
    assert sum(found) == sum(chunks)
    assert all(length % stride == 0 for length in found[:-1])
    assert len(found) == 1 or min(found) >= max(1, halos * stride)


@pytest.mark.parametrize(
    ("shape", "axes", "chunks"),
    [
        ((90, 100, 3), None, (32, 40, 1)),
        ((90, 100, 4), None, (64, 64, 4)),
        ((90, 100, 2), None, (64, 64, 1)),
        ((5, 90, 100), None, (2, 50, 50)),
        ((2, 3, 90, 100), "TCYX", (1, 2, 64, 50)),
        ((3, 90, 100), "SYX", (1, 64, 50)),
        ((100, 2, 90), "XTY", (64, 1, 50)),
    ],
)
def test_axes_mean_what_they_mean_for_numpy_arrays(
    shape: tuple[int, ...], axes: str | None, chunks: tuple[int, ...]
) -> None:
    values = noisy(*shape)
    result = denoise(da.from_array(values, chunks), axes=axes)
    assert isinstance(result, da.Array)
    assert_same(result.compute(), denoise(values, axes=axes))


@pytest.mark.parametrize("quality", ["normal", "best"])
def test_whole_numbers_are_dithered_alike_in_all_blocks(quality: Any) -> None:
    values = np.random.default_rng(0).poisson(2, (150, 160)).astype(np.uint16)
    whole = denoise(values, quality=quality).astype(int)
    found = denoise(da.from_array(values, (64, 64)), quality=quality).compute().astype(int)
    assert (found != np.rint(denoise(values, dtype=np.float32))).any()  # it is dithered
    assert np.mean(found != whole) < 1e-3  # float32 may fall to the other side of a threshold
    assert np.abs(found - whole).max() <= 1


# Laziness


class Counted:
    """An array that counts the chunks that are read."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.reads: list[Any] = []

    def __getitem__(self, index: Any) -> Values:
        self.reads.append(index)
        return np.asarray(self.values[index])


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    source = Counted(noisy(300, 300))
    array = da.from_array(source, 100, asarray=False, meta=np.empty((0, 0), np.float32))
    result = denoise(array, "deep-gray", strength=0.5, dtype="float64")
    assert (result.shape, result.dtype) == (array.shape, np.float64)
    assert source.reads == []


def test_a_model_is_chosen_once_for_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def counted(sample: Values, models: Models) -> Choice:
        seen.append(sample)
        return choose_model(sample, models)

    monkeypatch.setattr(parts, "choose_model", counted)
    monkeypatch.setattr(lazy, "SAMPLE", 64)
    values = noisy(4, 200, 220)
    denoise(da.from_array(values, (1, 64, 64))).compute()
    (sample,) = seen
    np.testing.assert_array_equal(sample[0, ..., 0], values[2, 68:132, 78:142])


def test_it_travels_to_other_processes() -> None:
    values = noisy(90, 100)
    result = denoise(da.from_array(values, (64, 64)), load_model("deep-gray"))
    assert_same(pickle.loads(pickle.dumps(result)).compute(), denoise(values))


def test_threads_give_the_same() -> None:
    values = noisy(90, 200)
    result = denoise(da.from_array(values, (64, 64)))
    assert_same(result.compute(scheduler="threads", num_workers=2), denoise(values))


# What is in the pixels


def test_blocks_without_values_stay_as_they_are() -> None:
    values = noisy(200, 64)
    values[40:170] = np.nan
    result = denoise(da.from_array(values, (32, 64))).compute()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(values))
    assert_same(result[:20], denoise(values)[:20])
    with pytest.raises(ImageError, match="not finite"):
        denoise(da.from_array(values, (32, 64)), nan="refuse").compute()


def test_masks_are_kept() -> None:
    mask = np.zeros((90, 100), bool)
    mask[10:20, 10:20] = True
    masked = np.ma.MaskedArray(noisy(90, 100), mask)
    array = da.ma.masked_array(da.from_array(masked.data, (64, 64)), da.from_array(mask, (64, 64)))
    found = denoise(array).compute()
    assert isinstance(found, np.ma.MaskedArray)
    np.testing.assert_array_equal(found.mask, mask)
    assert_same(np.asarray(found.data), np.ma.getdata(denoise(masked)))


def test_noise_is_measured_in_the_middle() -> None:
    values = noisy(2, 90, 100)
    assert estimate_noise(da.from_array(values, 50)) == estimate_noise(values)
    named = xr.DataArray(da.from_array(values, 50), dims=("t", "y", "x"))
    assert estimate_noise(named) == estimate_noise(values)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a: denoise(a, progress=print), UsageError, "its progress is Dask's to tell"),
        (lambda a: denoise(a, chroma=0.5), ImageError, "chroma is for colour pictures"),
        (lambda a: denoise(a, axes="TYX"), UsageError, "do not fit an array of shape"),
        (lambda a: denoise(a.astype(complex)), ImageError, "type complex128 cannot be denoised"),
        (lambda a: denoise(a[0]), ImageError, "is no picture"),
        (lambda a: denoise(a[:0]), ImageError, "holds no pixels"),
        (lambda a: denoise(a, "deep-color"), ImageError, "needs 3 channels"),
    ],
)
def test_errors_come_before_anything_is_computed(
    call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(da.from_array(noisy(90, 100), 50))


# xarray


def labelled(values: Any, dims: tuple[str, ...]) -> xr.DataArray:
    coords = {name: np.arange(n) * 0.5 for name, n in zip(dims, values.shape, strict=True)}
    return xr.DataArray(values, coords, dims, "cells", {"microscope": "ours"})


@pytest.mark.parametrize("lazily", [False, True])
def test_an_xarray_keeps_what_it_carries(lazily: bool) -> None:
    values = noisy(2, 100, 90)
    array = labelled(da.from_array(values, 50) if lazily else values, ("time", "x", "y"))
    result = denoise(array)
    assert isinstance(result, xr.DataArray)
    assert isinstance(result.data, da.Array if lazily else np.ndarray)
    xr.testing.assert_identical(result * 0, array * 0)
    assert (result.name, result.attrs) == (array.name, array.attrs)
    assert_same(result.values, denoise(values, axes="TXY"))


@pytest.mark.parametrize(
    ("dims", "shape", "axes"),
    [
        (("y", "x"), (9, 9), "YX"),
        (("time", "channel", "z", "Y", "X"), (2, 2, 2, 9, 9), "ABCYX"),
        (("y", "x", "rgb"), (9, 9, 3), "YXS"),
        (("band", "y", "x"), (3, 9, 9), "AYX"),
        (("s", "y", "x"), (7, 9, 9), "AYX"),
        (("row", "column"), (9, 9), None),
    ],
)
def test_names_of_dimensions_say_what_axes_mean(
    dims: tuple[str, ...], shape: tuple[int, ...], axes: str | None
) -> None:
    assert axes_of(xr.DataArray(np.zeros(shape), dims=dims)) == axes


def test_dimensions_without_known_names_are_as_in_numpy() -> None:
    values = noisy(90, 100, 3)
    result = denoise(xr.DataArray(values, dims=("row", "column", "band")))
    np.testing.assert_array_equal(result.values, denoise(values))


def test_neither_package_is_needed_for_other_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "xarray", None)
    assert denoise(noisy(30, 30)).shape == (30, 30)
