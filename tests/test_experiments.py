"""The experiments: laws of their parts, the paper's claims at small size, files and messages."""

import csv
import dataclasses
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from nelu_cli import checkpoints, experiments
from nelu_cli.cli.experiment import experiment
from nelu_cli.errors import CheckpointError, DatasetError, NeluError, UsageError
from nelu_cli.evaluation.figures import save
from nelu_cli.experiments import (
    CATALOGUE,
    analytical,
    claims,
    drawing,
    learned,
    lemma,
    model,
    natural,
    pursuit,
    shifts,
    support,
    trainable,
)
from nelu_cli.experiments import (
    pictures as picture_sets,
)
from nelu_cli.experiments.results import (
    Claim,
    Curves,
    Experiment,
    Panel,
    Result,
    Series,
    mean_series,
    to_csv,
)
from nelu_cli.networks import PaperActivation, PaperAutoencoder, PaperConfig
from nelu_cli.operators import nelu

PNG = b"\x89PNG\r\n\x1a\n"

ANALYTICAL = analytical.AnalyticalConfig(trials=100, grid=80)
BOUND = analytical.BoundConfig()
SUPPORT = support.SupportConfig(trials=30, ratios=(1, 10, 30, 100, 300, 1000))
SPARSE_CODING = trainable.SparseCodingConfig(
    trials=200, steps=300, d=60, nonzeros=3, sigmas=(0.02, 0.1, 0.3, 0.5)
)
SIGNAL_DENOISING = trainable.SignalDenoisingConfig(
    trials=200,
    steps=300,
    d=40,
    nonzeros=2,
    sigmas=(0.02, 0.1, 0.3, 0.5),
    conditions=(1.0,),
    decoders=("free decoder",),
)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two small networks of the paper's kind, not trained: ReLU and NeLU."""
    folder = tmp_path_factory.mktemp("weights")
    paths = []
    activations: tuple[PaperActivation, ...] = ("relu", "nelu")
    for activation in activations:
        torch.manual_seed(0)
        config = PaperConfig(filters=20, kernel=4, stride=2, activation=activation)
        network = PaperAutoencoder(config)
        path = folder / f"tiny-{activation}.safetensors"
        checkpoints.save(path, network.state_dict(), config, checkpoints.TrainingRecord())
        paths.append(str(path))
    return paths[0], paths[1]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small grey pictures with edges."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(3):
        cells = rng.integers(0, 256, (5, 6), dtype=np.uint8)
        pixels = np.kron(cells, np.ones((9, 9), dtype=np.uint8))
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def claims_of(result: Result) -> dict[str, bool]:
    return {claim.text: claim.holds for claim in result.claims}


# Parts


def test_transform_has_unit_rows_and_codes_are_sparse() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = model.gaussian_transform(30, generator).norm(dim=1)
    torch.testing.assert_close(rows, torch.ones(30, dtype=torch.float64))
    codes = model.sparse_codes((4, 50, 30), 5, generator)
    assert ((codes != 0).sum(-1) == 5).all()


@pytest.mark.parametrize("lam", [0.0, 0.05, 0.15, 0.3, 0.9, 1.5])
def test_nelu_each_is_nelu_for_each_vector(lam: float) -> None:
    coeffs = torch.randn(20, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    each = model.nelu_each(coeffs, torch.full((20,), lam, dtype=torch.float64))
    torch.testing.assert_close(each, nelu(coeffs, lam))


def test_nelu_each_gives_every_vector_its_own_lam() -> None:
    coeffs = torch.randn(5, 60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    lams = torch.linspace(0.1, 0.5, 5, dtype=torch.float64)
    each = model.nelu_each(coeffs, lams)
    for row in range(5):
        torch.testing.assert_close(each[row], nelu(coeffs[row : row + 1], float(lams[row]))[0])


@pytest.mark.parametrize("kappa", [1.0, 3.0, 30.0])
def test_a_conditioned_transform_has_unit_rows_and_about_its_condition(kappa: float) -> None:
    transform = model.conditioned_transform(60, kappa, torch.Generator().manual_seed(0))
    torch.testing.assert_close(transform.norm(dim=1), torch.ones(60, dtype=torch.float64))
    assert model.condition(transform) == pytest.approx(kappa, rel=0.3)


def test_signals_lie_in_the_null_space_of_their_co_support() -> None:
    generator = torch.Generator().manual_seed(0)
    transform = model.gaussian_transform(40, generator)
    signals, codes = model.cosparse_signals(torch.linalg.inv(transform), 30, 5, generator)
    assert ((codes != 0).sum(1) == 5).all()
    torch.testing.assert_close(signals @ transform.T, codes, atol=1e-9, rtol=0)
    length = torch.full((30,), 5**0.5, dtype=torch.float64)
    torch.testing.assert_close(signals.norm(dim=1), length)


def test_a_sweep_gives_the_error_of_every_lam() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = model.sparse_codes((2, 3, 20), 2, generator)
    coeffs = truth + 0.1 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    tried: list[None] = []
    for shrink in model.SHRINKS.values():
        errors = model.sweep(coeffs, truth, shrink, [0.1, 9.0], lambda: tried.append(None))
        assert errors.shape == (2, 2, 3)
        torch.testing.assert_close(errors[1], truth.square().sum(-1))  # all is shrunk to 0
        assert errors[0].mean() < errors[1].mean()
    assert len(tried) == 4


def test_every_mark_has_the_papers_sentence_and_is_used() -> None:
    folder = Path(claims.__file__).parent
    code = "".join(path.read_text() for path in folder.glob("*.py") if path.stem != "claims")
    for key, mark in claims.MARKS.items():
        assert mark.text
        assert mark.paper
        used = f'"{key}"' in code or key.startswith("robust to κ")
        assert used, key


def test_a_claim_is_about_what_is_named() -> None:
    made = claims.claim("table", True, "by far", "A", "B")
    assert made.text.startswith("A beats B at virtually all")
    assert "virtually all noise levels" in made.paper.replace("  ", " ")


def test_dct_and_hadamard_are_orthogonal() -> None:
    for matrix in (shifts.dct_matrix(8).double(), model.hadamard(64)):
        eye = torch.eye(len(matrix), dtype=torch.float64)
        torch.testing.assert_close(matrix @ matrix.T, eye, atol=1e-6, rtol=0)


def test_block_dct_scales_and_leaves_flat_pictures_alone() -> None:
    image = torch.rand(1, 1, 21, 34, generator=torch.Generator().manual_seed(0))
    estimate = shifts.block_dct_nelu(image)
    assert estimate.shape == image.shape
    assert not torch.equal(estimate, image)
    torch.testing.assert_close(shifts.block_dct_nelu(3 * image), 3 * estimate)
    flat = torch.full((1, 1, 16, 16), 0.3)
    torch.testing.assert_close(shifts.block_dct_nelu(flat), flat)


def test_mean_series_has_standard_errors() -> None:
    series = mean_series("a", (1.0,), torch.tensor([[1.0, 2.0, 3.0]]))
    assert series.mean == (2.0,)
    assert series.error is not None
    assert series.error[0] == pytest.approx(1 / 3**0.5)


def test_csv_has_one_line_for_each_point() -> None:
    panel = Panel("q", "x", "y", (Series("a, b", (1, 2), (3, 4)), Series("c", (1, 2), (5, 6))))
    lines = list(csv.DictReader(io.StringIO(to_csv(Curves("x", (panel,), ()).rows))))
    assert [line["method"] for line in lines] == ["a, b", "a, b", "c", "c"]
    assert lines[3] == {
        "quantity": "q",
        "method": "c",
        "x": "2",
        "mean": "6",
        "standard_error": "",
    }


# The paper's claims


def test_analytical_claims_hold() -> None:
    claims = claims_of(analytical.analytical(ANALYTICAL))
    assert len(claims) == 6
    assert all(claims.values()), claims


def test_analytical_oracle_is_best_of_its_grid() -> None:
    result = analytical.analytical(ANALYTICAL)
    _, oracle, theory = result.panels[0].series
    assert all(a <= b for a, b in zip(oracle.mean, theory.mean, strict=True))


def test_bound_holds_in_every_trial() -> None:
    result = analytical.bound(BOUND)
    assert all(claims_of(result).values())
    error, limit, sharper = result.panels[0].series
    for below, middle, above in zip(error.mean, sharper.mean, limit.mean, strict=True):
        assert below < middle < above


def test_support_theorems_hold_save_theorem_4_as_stated() -> None:
    """Coherence breaks Theorem 4 as stated; repaired, it holds, and so do all the others."""
    result = support.support(SUPPORT)
    broken = [claim.text for claim in result.claims if not claim.holds]
    assert len(result.claims) == 10
    assert len(broken) == 1
    assert "(Theorem 4 as stated)" in broken[0]
    assert sum("repaired" in claim.text for claim in result.claims) == 4
    for panel in result.panels:
        assert panel.series[0].mean[0] < 0.5  # hopeless at |z*_j| = σ
        assert panel.series[0].mean[-1] == panel.series[1].mean[-1] == 1
        assert panel.shaded is not None
        assert panel.shaded.mean[-1] > 0.5


def test_every_event_of_lemma_1_is_as_likely_as_it_says() -> None:
    result = lemma.lemma(lemma.LemmaConfig(trials=400, sizes=(16, 64, 128)))
    assert [panel.title[-2:].strip() for panel in result.panels] == ["C₁", "C₂", "C₃", "A"]
    assert all(claims_of(result).values())
    first, second = (panel.series[0].mean for panel in result.panels[:2])
    assert first == second  # the same event, written twice
    assert max(first) > 0  # it does fail now and then


def test_layered_pursuit_finds_lams_of_every_layer() -> None:
    config = pursuit.PursuitConfig(trials=30, grid=30, d=64, nonzeros=2, sigmas=(0.02, 0.05, 0.1))
    result = pursuit.layered_pursuit(config)
    assert len(result.claims) == 4
    by_name = {panel.quantity: panel for panel in result.panels}
    soft, exact = by_name["lambda_1_orthogonal"].series
    assert soft.mean[-1] > 3 * soft.mean[0]
    assert exact.mean[-1] < 1.5 * exact.mean[0]


def test_the_second_dictionary_has_sparse_unit_atoms() -> None:
    generator = torch.Generator().manual_seed(0)
    eye = torch.eye(32, dtype=torch.float64)
    for kind in pursuit.KINDS:
        dictionary = pursuit.second_dictionary(kind, 32, generator)
        assert ((dictionary != 0).sum(0) == 4).all()
        gram = dictionary.T @ dictionary
        torch.testing.assert_close(gram.diagonal(), torch.ones(32, dtype=torch.float64))
        assert torch.allclose(gram, eye) == (kind == "orthogonal")


def test_sparse_coding_claims_hold() -> None:
    result = trainable.sparse_coding(SPARSE_CODING)
    assert len(result.claims) == 4
    assert all(claim.holds for claim in result.claims if "NeLU, exact" in claim.text)
    for panel in result.panels:
        soft, unrolled, exact = panel.series
        for level in (2, 3):  # above the trained one: by far, the more so the further
            assert unrolled.mean[level] < 0.5 * soft.mean[level]
            assert exact.mean[level] < 0.5 * soft.mean[level]
        assert exact.mean[1] < 1.3 * soft.mean[1]  # at the trained level
        # Below it the steps of Algorithm 2, β long at any noise level, are too long to settle.
        assert exact.mean[0] < soft.mean[0] < unrolled.mean[0]


def test_signal_denoising_claims_hold_for_an_orthogonal_transform() -> None:
    result = trainable.signal_denoising(SIGNAL_DENOISING)
    soft, _, exact, noisy = result.panels[0].series
    assert exact.mean[1] < 0.8 * noisy.mean[1]
    assert exact.mean[-1] < 0.7 * soft.mean[-1]
    assert exact.mean[1] < 1.3 * soft.mean[1]
    assert [claim.holds for claim in result.claims] == [True, True]
    assert "up to κ = 1" in result.claims[1].margin
    assert "κ = 1 (σ = " in result.claims[1].margin
    assert "above the trained level alone" in result.claims[1].margin
    assert result.summary[0]["κ (found)"] == "1 (1)"


def test_signal_denoising_tries_every_condition_number_with_both_decoders() -> None:
    config = dataclasses.replace(
        SIGNAL_DENOISING,
        steps=3,
        conditions=(3.0, learned.GAUSSIAN),
        decoders=(learned.FREE, learned.TIED),
    )
    result = trainable.signal_denoising(config)
    assert len(result.panels) == len(result.summary) == 4
    assert len(result.claims) == 8  # up to which κ, and the paper's own W
    assert [row["κ (found)"].__class__ for row in result.summary] == [str] * 4


def test_shift_averaging_claims_hold() -> None:
    config = shifts.ShiftAveragingConfig(dataset="samples", images=1, models=())
    claims = claims_of(shifts.shift_averaging(config))
    assert len(claims) == 2
    assert all(claims.values())


def test_shift_averaging_of_networks(pictures: Path, weights: tuple[str, str]) -> None:
    config = shifts.ShiftAveragingConfig(dataset=str(pictures), models=(weights[1],))
    result = shifts.shift_averaging(config)
    dct, network = result.panels[0].series
    assert dct.x == (1, 2, 4, 8, 16, 32, 64)
    assert network.x == (1, 2, 4)  # stride 2
    assert dct.mean[-1] > dct.mean[0]


def test_all_shifts_are_the_dense_network(pictures: Path, weights: tuple[str, str]) -> None:
    """The last point of the curve is what the network itself computes."""
    network = checkpoints.load(weights[1]).network
    assert isinstance(network, PaperAutoencoder)
    image = torch.rand(1, 1, 24, 31, generator=torch.Generator().manual_seed(0))
    estimates = shifts._estimates(network.denoise_strided, image, 2, seed=0)
    dense = network.denoise(image)[0, 0].numpy()
    inside = (slice(8, -8), slice(8, -8))
    np.testing.assert_allclose(estimates[-1][inside], dense[inside], atol=1e-5)


def test_table_compares_with_relu(pictures: Path, weights: tuple[str, str]) -> None:
    config = natural.TableConfig(dataset=str(pictures), sigmas255=(15, 120), groups=(weights,))
    result = natural.table(config)
    psnr, gain, raw = result.panels
    assert raw.series[0].mean == psnr.series[0].mean  # of the noisy picture
    assert all(a <= b for a, b in zip(raw.series[1].mean, psnr.series[1].mean, strict=True))
    assert [series.label for series in psnr.series] == ["noisy", "tiny-relu", "tiny-nelu"]
    difference = np.subtract(psnr.series[2].mean, psnr.series[1].mean)
    np.testing.assert_allclose(gain.series[0].mean, difference)
    wins = int((difference > 0).sum())
    assert result.claims[0].holds == (wins == 2)
    assert f"at {wins} of 2" in result.claims[0].margin
    assert result.claims[1].holds == bool(difference[1] > difference[0])


def test_gain_claims_say_by_how_much() -> None:
    gain = torch.tensor([[0.2, 0.2], [-0.1, -0.1], [0.9, 1.1]], dtype=torch.float64)
    most, widens = natural._gain_claims("N", "R", gain, (15, 25, 120))
    assert not most.holds
    assert most.margin == "at 2 of 3, by -0.10 to +1.00 dB"
    assert widens.text == "the lead of N over R widens away from the trained level"
    assert widens.holds
    assert widens.margin == "+0.20 dB at σ = 15, +1.00 dB at σ = 120"


def test_qualitative_takes_any_picture(pictures: Path, weights: tuple[str, str]) -> None:
    config = natural.QualitativeConfig(
        image=pictures / "1.png", sigma255=30, relu=weights[0], nelu=(weights[1],)
    )
    result = natural.qualitative(config)
    assert [row["method"] for row in result.rows] == ["noisy", "tiny-relu", "tiny-nelu"]
    assert result.rows[0]["image"] == "1"
    assert result.comparisons[0].sigma255 == 30
    assert len(result.claims) == 1
    drawing.draw(result)


def test_qualitative_shows_three_pictures_at_the_papers_levels(
    weights: tuple[str, str], monkeypatch: pytest.MonkeyPatch, pictures: Path
) -> None:
    monkeypatch.setattr(
        natural, "find_images", lambda *_: picture_sets.find_images(str(pictures), None, 3)
    )
    result = natural.qualitative(natural.QualitativeConfig(relu=weights[0], nelu=(weights[1],)))
    assert [row["σ"] for row in result.summary] == ["25", "50", "50"]
    assert len(result.claims) == 3


# Seeds


def test_the_seed_fixes_the_numbers() -> None:
    for run, config in (
        (analytical.bound, BOUND),
        (analytical.analytical, dataclasses.replace(ANALYTICAL, trials=10, grid=20)),
        (
            trainable.sparse_coding,
            dataclasses.replace(SPARSE_CODING, steps=5, conditions=(1.0,)),
        ),
    ):
        function: Any = run
        once, again = to_csv(function(config).rows), to_csv(function(config).rows)
        other = to_csv(function(dataclasses.replace(config, seed=1)).rows)
        assert once == again
        assert once != other


def test_progress_adds_up_to_one(pictures: Path, weights: tuple[str, str]) -> None:
    small = dataclasses.replace(SPARSE_CODING, steps=7)
    table = natural.TableConfig(dataset=str(pictures), images=1, sigmas255=(15,), groups=(weights,))
    averaging = shifts.ShiftAveragingConfig(dataset=str(pictures), images=2, models=())
    runs: list[tuple[Any, Any]] = [
        (analytical.analytical, dataclasses.replace(ANALYTICAL, trials=10, grid=20)),
        (analytical.bound, BOUND),
        (support.support, SUPPORT),
        (trainable.sparse_coding, small),
        (natural.table, table),
        (shifts.shift_averaging, averaging),
    ]
    for run, config in runs:
        shares: list[float] = []
        run(config, shares.append)
        assert sum(shares) == pytest.approx(1), run.__name__


# Errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: analytical.AnalyticalConfig(trials=1), "--trials must be at least 2"),
        (lambda: analytical.BoundConfig(seed=-1), "--seed must be a whole number"),
        (lambda: support.SupportConfig(synthesis_n=100), "a power of two"),
        (lambda: pursuit.PursuitConfig(d=30), "a multiple of 4"),
        (lambda: trainable.SparseCodingConfig(trials=1), "--trials must be at least 2"),
        (lambda: natural.TableConfig(images=0), "--images must be at least 1"),
        (
            lambda: natural.QualitativeConfig(image=Path("a.png"), sigma255=0),
            "--sigma must be a number above 0",
        ),
        (lambda: natural.QualitativeConfig(sigma255=9), "--sigma needs --image"),
        (lambda: experiments.load("nothing"), "nothing: no such experiment; there are analytical"),
    ],
)
def test_nonsense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_missing_weights_are_named_before_any_work() -> None:
    with pytest.raises(CheckpointError, match="no-such-weights: neither a file nor a bundled"):
        natural.table(natural.TableConfig(groups=(("no-such-weights",),), dataset="no-such-set"))


def test_a_named_set_must_exist_but_the_default_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NELU_CACHE", str(tmp_path))
    monkeypatch.delenv("NELU_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match="no-such-set: no such dataset"):
        picture_sets.find_images("no-such-set", None, None)
    images = picture_sets.find_images(None, None, 2)
    assert images.name == "samples"
    assert len(images.paths) == 2


def test_images_are_spread_over_the_set(pictures: Path) -> None:
    names = [path.name for path in picture_sets.find_images(str(pictures), None, 2).paths]
    assert names == ["0.png", "1.png"]
    assert len(picture_sets.find_images(str(pictures), None, 99).paths) == 3


# Figures


def test_every_kind_of_result_is_drawn(
    tmp_path: Path, pictures: Path, weights: tuple[str, str]
) -> None:
    results: list[Result] = [
        analytical.analytical(dataclasses.replace(ANALYTICAL, trials=10, grid=20)),
        analytical.bound(BOUND),
        shifts.shift_averaging(
            shifts.ShiftAveragingConfig(dataset=str(pictures), images=2, models=())
        ),
    ]
    for number, result in enumerate(results):
        path = tmp_path / f"{number}.png"
        save(drawing.draw(result), path)
        assert path.read_bytes().startswith(PNG)


def test_matplotlib_waits_until_a_figure_is_drawn() -> None:
    code = (
        "import sys, nelu_cli.cli.experiment, nelu_cli.experiments as e\n"
        "assert 'torch' not in sys.modules\n"
        "[e.load(name) for name in e.CATALOGUE]\n"
        "import nelu_cli.experiments.drawing\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The command


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(experiment)
    return CliRunner().invoke(app, list(arguments))


def test_list_names_every_experiment() -> None:
    outcome = run("list")
    assert outcome.exit_code == 0
    for name in CATALOGUE:
        assert name in outcome.stdout


def test_every_experiment_of_the_catalogue_can_be_loaded() -> None:
    for name in CATALOGUE:
        chosen = experiments.load(name)
        assert chosen.config.quick().seed == chosen.config().seed == 0


def test_a_run_writes_files_and_prints_the_verdict(tmp_path: Path) -> None:
    out = tmp_path / "here"
    outcome = run("bound", "--out", str(out), "--trials", "5", "--seed", "3", "--quick")
    assert outcome.exit_code == 0, outcome.exception
    assert "holds: ‖ẑ − z*‖₂ ≤ (2 + η)ε in every trial" in outcome.stdout
    assert sorted(path.name for path in out.iterdir()) == ["figure.png", "numbers.csv"]
    first = (out / "numbers.csv").read_bytes()
    assert run("bound", "--out", str(out), "--trials", "5", "--seed", "3").exit_code == 0
    assert (out / "numbers.csv").read_bytes() == first


def test_a_claim_that_fails_is_said_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubtful(config: analytical.BoundConfig, advance: Any) -> Curves:
        claim = Claim("pigs fly", False, "by 3 m at most", "pigs are light")
        return dataclasses.replace(analytical.bound(config), claims=(claim,))

    doubted = Experiment(analytical.BoundConfig, doubtful)
    monkeypatch.setitem(analytical.EXPERIMENTS, "bound", doubted)
    outcome = run("bound", "--out", str(tmp_path))
    assert outcome.exit_code == 0
    assert "does not hold: pigs fly\n  by 3 m at most" in outcome.stdout
    assert "the paper: pigs are light" in outcome.stdout


def test_all_writes_a_folder_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = {name: CATALOGUE[name] for name in ("analytical", "bound")}
    monkeypatch.setattr(experiments, "CATALOGUE", few)
    outcome = run("all", "--quick", "--trials", "5", "--sigma", "30")
    assert outcome.exit_code == 0, outcome.exception
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert written == [
        f"experiments/{name}/{file}" for name in few for file in ("figure.png", "numbers.csv")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "nothing: no such experiment"),
        (["bound", "--sigma", "3"], "bound has no --sigma; see `nelu experiment --help`"),
        (["table", "--trials", "9"], "table has no --trials"),
        (["bound", "--data-dir", "."], "bound has no --data-dir"),
    ],
)
def test_bad_usage_is_explained(arguments: list[str], message: str) -> None:
    outcome = run(*arguments)
    assert isinstance(outcome.exception, UsageError)
    assert message in str(outcome.exception)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = run("bound", "--quick", "--out", str(tmp_path / "file" / "x"))
    assert isinstance(outcome.exception, NeluError)
    assert "cannot be written" in str(outcome.exception)
