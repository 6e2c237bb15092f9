"""How well denoisers do: metrics, baselines, tables, figures."""

from nelu_cli.evaluation.methods import BASELINES, Method, baseline, chosen_method, model_method
from nelu_cli.evaluation.metrics import psnr, ssim
from nelu_cli.evaluation.scores import (
    NOISY,
    Comparison,
    Level,
    Mean,
    Published,
    Results,
    evaluate,
    evaluate_pairs,
    labels,
    level_text,
    paper_rows,
)

__all__ = [
    "BASELINES",
    "NOISY",
    "Comparison",
    "Level",
    "Mean",
    "Method",
    "Published",
    "Results",
    "baseline",
    "chosen_method",
    "evaluate",
    "evaluate_pairs",
    "labels",
    "level_text",
    "model_method",
    "paper_rows",
    "psnr",
    "ssim",
]
