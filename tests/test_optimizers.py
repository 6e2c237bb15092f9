"""Muon: the laws of its orthogonal step, and who moves what."""

import pytest
import torch
from torch import nn

from nelu_cli.networks import DeepConfig, PaperConfig, build
from nelu_cli.training.optimizers import Muon, orthogonalise, parameter_optimizers

SMALL = DeepConfig(widths=(8, 12), blocks=(1, 1))


@pytest.mark.parametrize("shape", [(3, 8, 72), (2, 40, 16), (1, 9, 9)])
def test_orthogonalising_keeps_the_directions_and_evens_out_the_sizes(
    shape: tuple[int, int, int],
) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, s, vt = torch.linalg.svd(matrices, full_matrices=False)
    found = u.mT @ orthogonalise(matrices) @ vt.mT
    sizes = found.diagonal(dim1=1, dim2=2)
    assert found == pytest.approx(torch.diag_embed(sizes), abs=1e-3)
    large = s > s.amax(1, keepdim=True) / 20
    assert sizes[large].min() > 0.6
    assert sizes.max() < 1.3


def test_orthogonalising_does_not_see_the_scale() -> None:
    matrices = torch.randn(2, 8, 20, generator=torch.Generator().manual_seed(0))
    assert orthogonalise(1e-6 * matrices) == pytest.approx(orthogonalise(matrices), abs=1e-4)
    assert not orthogonalise(torch.zeros(1, 4, 4)).any()


def test_a_muon_step_has_the_size_of_an_adamw_step_and_goes_downhill() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(16, 8, 3, 3))
    before = weight.detach().clone()
    optimizer = Muon([weight], lr=0.01)
    (weight.square().sum() / 2).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    moved = weight.detach() - before
    assert moved.square().mean().sqrt() == pytest.approx(0.2 * 0.01, rel=0.2)
    assert (moved * before).sum() < 0


def test_every_parameter_is_moved_by_exactly_one_optimizer() -> None:
    network = build(SMALL)
    optimizers = parameter_optimizers(network, "muon", 1e-3, 1e-8)
    moved = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    assert sorted(map(id, moved)) == sorted(map(id, network.parameters()))
    muon = {id(p) for group in optimizers[0].param_groups for p in group["params"]}
    names = {name for name, p in network.named_parameters() if id(p) in muon}
    assert "encoder.0.0.first.weight" in names
    assert not any(name.startswith(("head", "tail", "codes")) for name in names)


def test_a_network_without_inner_convolutions_is_left_to_adamw() -> None:
    optimizers = parameter_optimizers(build(PaperConfig(filters=4)), "muon", 1e-3, 1e-8)
    assert [type(o) for o in optimizers] == [torch.optim.AdamW]
