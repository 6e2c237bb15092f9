"""Laws of map_in_threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
import torch

from nelu_cli.networks import PaperConfig, build
from nelu_cli.networks.parallel import map_in_threads


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order() -> None:
    assert list(map_in_threads(lambda n: n * n, range(23))) == [n * n for n in range(23)]


def test_each_item_has_one_thread_and_no_gradient() -> None:
    seen = map_in_threads(
        lambda _: (
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.is_inference(torch.ones(1)),
        ),
        range(4),
    )
    assert set(seen) == {(1, False, False)}
    with torch.inference_mode():
        made = list(map_in_threads(lambda _: torch.ones(1), range(4)))
    assert all(map(torch.is_inference, made))


def test_no_more_items_are_in_work_than_threads(threads: int) -> None:
    lock, started, taken = Lock(), 0, 0

    def start(item: int) -> None:
        nonlocal started
        with lock:
            started += 1
            assert started - taken <= threads

    for _ in map_in_threads(start, range(9)):
        taken += 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_number_of_threads_is_as_before(threads: int, fails: bool) -> None:
    def work(item: int) -> None:
        if fails and item == 1:
            raise ValueError("no")

    if fails:
        with pytest.raises(ValueError, match="no"):
            list(map_in_threads(work, range(4)))
    else:
        list(map_in_threads(work, range(4)))
    assert torch.get_num_threads() == threads
    with ThreadPoolExecutor(1) as later:
        assert later.submit(torch.get_num_threads).result() == threads


@torch.no_grad()
def test_the_paper_network_is_the_same_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nelu_cli.networks.paper.STRIP", 64)
    network = build(PaperConfig(filters=12, kernel=5, stride=2)).eval()
    image = torch.rand(2, 1, 37, 41)
    found = network(image)
    torch.set_num_threads(1)
    assert torch.equal(found, network(image))
