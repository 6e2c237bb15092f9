"""How well denoisers do: metrics, baselines, tables, figures."""

from nelu_cli.evaluation.scores import (
    BASELINES,
    NOISY,
    Comparison,
    FloatImage,
    Mean,
    Method,
    Published,
    Results,
    Score,
    baseline,
    evaluate,
    labels,
    model_method,
    paper_rows,
    psnr,
    ssim,
)

__all__ = [
    "BASELINES",
    "NOISY",
    "Comparison",
    "FloatImage",
    "Mean",
    "Method",
    "Published",
    "Results",
    "Score",
    "baseline",
    "evaluate",
    "labels",
    "model_method",
    "paper_rows",
    "psnr",
    "ssim",
]
