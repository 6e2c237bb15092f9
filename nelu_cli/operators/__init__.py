"""Shrinkage operators: the soft threshold, the paper's two algorithms, and NeLU solved exactly.

All of them turn coefficients ``u = W·y`` into a sparse code ``z``. Single letters are the
paper's: u coefficients, z code, λ (``lam``) bias, β (``step_size``), α (``momentum``). The
derivations are in docs/maths.md.
"""

from nelu_cli.operators.algorithms import Proximal, algorithm_1, algorithm_2, soft_threshold
from nelu_cli.operators.dictionary import duality_gap, sqrt_lasso
from nelu_cli.operators.energy import PIECE, lam_of_entries, squared_norms
from nelu_cli.operators.exact import Solver, nelu, shrink
from nelu_cli.operators.layers import AcceleratedNeLU, NeLU
from nelu_cli.operators.window import WINDOW_FLOOR, WindowMeans, window_quotient, window_sums

__all__ = [
    "PIECE",
    "WINDOW_FLOOR",
    "AcceleratedNeLU",
    "NeLU",
    "Proximal",
    "Solver",
    "WindowMeans",
    "algorithm_1",
    "algorithm_2",
    "duality_gap",
    "lam_of_entries",
    "nelu",
    "shrink",
    "soft_threshold",
    "sqrt_lasso",
    "squared_norms",
    "window_quotient",
    "window_sums",
]
