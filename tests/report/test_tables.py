"""Scores as text."""

from crossreg.report.tables.scores import channel_table, decomposition_table, scores_table, sigma_lines

SCORES = {
    **dict.fromkeys(("nll", "ece_mix", "crps", "rmse", "std_mu", "std", "spearman"), 0.5),
    **{"rms_predictive": 0.3, "rms_generalization": 0.4},
}


def test_a_run_without_reg_has_its_scores_and_no_others():
    scores = {"test": SCORES, "reg": None, "train": SCORES, "sigma": {}}
    [_, _, row] = scores_table({"plain": scores}).splitlines()
    assert row.split() == ["plain", "0.500", "0.500", *["0.5000"] * 4, "0.50", "–", "–"]
    assert [line.split()[0] for line in decomposition_table(scores).splitlines()[1:]] == ["train", "test"]


def test_every_score_stands_under_its_title():
    test = {"nll": -1.5, "ece_mix": 0.02, "crps": 0.3, "rmse": 0.4, "std_mu": 0.05, "std": 0.6, "spearman": 0.7}
    reg = {"nll": -2.5, "ece_mix": 0.03}
    header, _, row = scores_table({"xreg": {"test": test, "reg": reg}}).splitlines()
    titles = [
        "test NLL",
        "test ECE",
        "test CRPS",
        "test RMSE",
        "Std_ω[μ]",
        "mean std",
        "Spearman",
        "reg NLL",
        "reg ECE",
    ]
    assert header.split("  ")[-9:] == titles
    values = ["-1.500", "0.020", "0.3000", "0.4000", "0.0500", "0.6000", "0.70", "-2.500", "0.030"]
    assert row.split() == ["xreg", *values]
    # Scores in a user's units may be of any size.
    large = {"test": test | {"crps": 1234.5, "rmse": 0.00012345}, "reg": None}
    assert scores_table({"xreg": large}).splitlines()[-1].split()[3:5] == ["1.23e+03", "0.000123"]


def test_the_decomposition_adds_variances_and_names_the_fixed_point_of_heads_alone():
    def split(rmse, predictive, generalization, std_mu=0.0):
        parts = {"rms_predictive": predictive, "rms_generalization": generalization}
        return {"rmse": rmse, "std_mu": std_mu} | parts

    heads = {"train": split(0.3, 0.3, 0.4), "reg": split(0.5, 0.6, 0.8), "test": split(0.7, 0.5, 1.2)}
    _, train, reg, test, settled = decomposition_table(heads).splitlines()
    assert train.split() == ["train", "0.3000", "0.3000", "0.4000", "0.5000"]
    assert reg.split() == ["reg", "0.5000", "0.6000", "0.8000", "1.0000"]
    assert test.split() == ["test", "0.7000", "0.5000", "1.2000", "1.3000"]
    # √((0.5² + 0.3²) / 2) and √((0.5² − 0.3²) / 2)
    assert settled.split()[:3] == ["settled", "0.4123", "0.2828"]
    # Where noise inside the network spreads the means, or train is fitted no better than reg, there is no such point.
    spread = heads | {"reg": split(0.5, 0.6, 0.8, std_mu=0.1)}
    unfitted = heads | {"train": split(0.5, 0.3, 0.4)}
    assert all(len(decomposition_table(scores).splitlines()) == 4 for scores in (spread, unfitted))


def test_channels_and_sites_have_their_own_numbers():
    test = {f"channel_{k}": [i + 0.0, i + 0.5] for i, k in enumerate(("nll", "crps", "rmse", "std"), 1)}
    header, first, second = channel_table({"test": test}, ["u", "pressure"]).splitlines()
    assert header.split() == ["test", "NLL", "CRPS", "RMSE", "mean", "std"]
    assert first.split() == ["u", "1.000", "2.0000", "3.0000", "4.0000"]
    assert second.split() == ["pressure", "1.500", "2.5000", "3.5000", "4.5000"]
    assert channel_table({"test": test}, ["u"]).splitlines()[2].split()[:2] == ["channel", "1"]
    assert channel_table({"test": SCORES}, ["u"]) == ""
    assert sigma_lines({"block1": [0.5, 12.345], "lift": [0.00012]}) == "σ block1  0.5 12.3\nσ lift    0.00012"
