"""The paper's settings and numbers. `docs/paper.md` says where crossreg differs, and why."""

from typing import Any

# Settings of training and scores in the paper that are not the default of crossreg: Adam at a constant rate, an
# update of ρ every five steps until the end, unscaled initial weights, and 10 samples for scores.
TRAINING: dict[str, Any] = {
    "learning_rate": 1e-3,
    "schedule": "constant",
    "settle": 0.0,
    "clip": 0.0,
    "scaled_start": False,
    "evaluation_samples": 10,
}
# The start of log σ_pred: as stated in the paper, and near the size of the residuals, which reproduces its rows.
LOG_SIGMA_PRED_STARTS = (-5.0, -2.0)
# Steps of the paper's sweeps, and those that its settings need for calibration (`docs/paper.md`).
STEPS = (10_000, 30_000)
# The methods of the paper's tables, by their names in crossreg. XReg has noise inside the network, no σ_gen head, and
# learns ρ on the moment-matched NLL.
METHODS = {"xreg-internal-mm": "xreg", "dropout": "dropout", "ensemble": "ensemble"}
# The four regimes of the paper's figures: observed fraction and method. In all of them, ρ learns on a likelihood.
REGIMES = ((0.7, "xreg-internal-mm"), (0.3, "xreg-heads-mm"), (0.7, "xreg-heads-mm"), (0.7, "unregularized"))

# The paper's two tables, by observed fraction and train trajectories: test NLL, test ECE_mix and reg ECE_mix, each of
# XReg, dropout and the ensemble.
_TABLES = {
    (0.4, 50): ((-0.5083, 0.0296, 0.0248), (-0.2999, 0.1115, 0.1153), (-0.1002, 0.1121, 0.1125)),
    (0.6, 50): ((-0.6533, 0.0020, 0.0040), (-0.7710, 0.0370, 0.0324), (-0.8900, 0.0491, 0.0522)),
    (0.8, 50): ((-2.4052, 0.0220, 0.0139), (-1.0506, 0.0228, 0.0159), (-2.0772, 0.0624, 0.0530)),
    (1.0, 50): ((-3.3849, 0.0614, 0.0596), (-1.7310, 0.3696, 0.3695), (-3.5632, 0.2943, 0.2972)),
    (0.7, 20): ((-0.3277, 0.0965, 0.0867), (-0.4343, 0.1254, 0.1197), (0.7512, 0.1344, 0.1361)),
    (0.7, 30): ((-0.5962, 0.0273, 0.0210), (-0.6894, 0.0857, 0.0815), (0.1574, 0.1157, 0.1131)),
    (0.7, 40): ((-0.6671, 0.0144, 0.0118), (-0.8858, 0.0375, 0.0410), (-0.7355, 0.0760, 0.0727)),
    (0.7, 70): ((-1.4173, 0.0118, 0.0128), (-1.1361, 0.0666, 0.0654), (-2.0064, 0.0569, 0.0555)),
}
PAPER = {regime: dict(zip(METHODS.values(), scores, strict=True)) for regime, scores in _TABLES.items()}
