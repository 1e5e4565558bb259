"""Scores as text."""

from crossreg.report.tables import decomposition_table, scores_table

SCORES = {
    **dict.fromkeys(("nll", "ece_mix", "crps", "rmse", "std_mu", "sharpness", "spearman"), 0.5),
    **{"rms_predictive": 0.3, "rms_generalization": 0.4},
}


def test_a_run_without_reg_has_its_scores_and_no_others():
    scores = {"test": SCORES, "reg": None, "train": SCORES, "sigma": {}}
    [_, _, row] = scores_table({"plain": scores}).splitlines()
    assert row.split() == ["plain", "0.500", "0.500", *["0.5000"] * 4, "0.50", "–", "–"]
    assert [line.split()[0] for line in decomposition_table(scores).splitlines()[1:]] == ["train", "test"]
