"""Laws of symmetric weights: every orientation of a picture is treated alike, also in training."""

import pytest
import torch

from nelu_cli.networks import DeepConfig, Network, build
from nelu_cli.networks.symmetry import ORIENTATIONS, Symmetry, turned
from nelu_cli.operators import NeLU
from nelu_cli.training.optimizers import OptimizerName, parameter_optimizers

CONFIGS = [
    DeepConfig(widths=(8, 16), blocks=(1, 1), symmetric=True),
    DeepConfig(channels=3, widths=(16, 8, 8), blocks=(1, 0, 2), window=(3, 1), symmetric=True),
    DeepConfig(widths=(8, 16), blocks=(1, 1), symmetric=True, gated=True),
]


def symmetric(config: DeepConfig) -> tuple[Network, Symmetry]:
    """A network with random weights and τ, made symmetric, in float64."""
    torch.manual_seed(0)
    network = build(config).double()
    for layer in network.modules():
        if isinstance(layer, NeLU):
            torch.nn.init.uniform_(layer.tau, 0.8, 2)
    for name, parameter in network.named_parameters():
        if "gate" in name:  # which begin at 0
            torch.nn.init.normal_(parameter)
    symmetry = Symmetry(network)
    symmetry.impose(network)
    return network, symmetry


@torch.no_grad()
def asymmetry(network: Network) -> float:
    """Largest deviation from f(T_g y) = T_g f(y), as a part of the largest noise that f finds."""
    image = torch.rand(2, network.config.channels, 32, 16, dtype=torch.float64)
    result = network(image)
    deviations = [
        (network(turned(image, g)) - turned(result, g)).abs().max() for g in range(ORIENTATIONS)
    ]
    return float(max(deviations) / result.abs().max())


def test_the_eight_orientations_differ_and_are_closed() -> None:
    square = torch.arange(9).view(3, 3)
    seen = {tuple(turned(square, g).flatten().tolist()) for g in range(ORIENTATIONS)}
    again = {
        tuple(turned(turned(square, g), h).flatten().tolist())
        for g in range(ORIENTATIONS)
        for h in range(ORIENTATIONS)
    }
    assert len(seen) == ORIENTATIONS
    assert again == seen


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_symmetric_network_treats_all_orientations_alike(config: DeepConfig) -> None:
    network, symmetry = symmetric(config)
    assert asymmetry(network) < 1e-12
    assert symmetry.holds(network.state_dict())


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_random_weights_are_not_symmetric(config: DeepConfig) -> None:
    torch.manual_seed(0)
    network = build(config).double()
    assert asymmetry(network) > 1e-3
    assert not Symmetry(network).holds(network.state_dict())


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_weight_is_in_one_orbit(config: DeepConfig) -> None:
    network = build(config)
    for name, orbits in Symmetry(network).orbits.items():
        count = network.get_parameter(name).numel()
        assert orbits.shape == (count // ORIENTATIONS, ORIENTATIONS)
        assert torch.equal(orbits.flatten().sort().values, torch.arange(count))


def test_random_weights_keep_their_size() -> None:
    torch.manual_seed(0)
    network = build(DeepConfig())
    before = {name: p.square().mean().sqrt() for name, p in network.named_parameters()}
    Symmetry(network).impose(network)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(
            parameter.square().mean().sqrt(), before[name], rtol=0.15, atol=0
        )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_steps_keep_the_symmetry(optimizer: OptimizerName) -> None:
    network, symmetry = symmetric(CONFIGS[0])
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    optimizers = parameter_optimizers(network, optimizer, 1e-2, 1e-8)
    for _ in range(3):
        network.zero_grad()
        image = torch.rand(1, 1, 16, 32, dtype=torch.float64)
        (network(image) - 0.5).square().mean().backward()
        symmetry.average((n, p.grad) for n, p in network.named_parameters() if p.grad is not None)
        for one in optimizers:
            one.step()
    assert not torch.allclose(network.get_parameter("up.0.weight"), before["up.0.weight"])
    assert asymmetry(network) < 1e-9


def test_averaging_changes_symmetric_weights_no_more() -> None:
    network, symmetry = symmetric(CONFIGS[1])
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    symmetry.average(weights.items())
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(weights[name], tensor)
