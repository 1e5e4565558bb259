"""The paper's numbers, against a second transcription of its two tables, line by line as they are printed there."""

from crossreg.designs.paper import PAPER

# Observed fraction or train size; test NLL, test ECE_mix and reg ECE_mix of XReg, MC dropout and the ensemble of three.
OBSERVED_FRACTION = """
0.4  -0.5083 0.0296 0.0248  -0.2999 0.1115 0.1153  -0.1002 0.1121 0.1125
0.6  -0.6533 0.0020 0.0040  -0.7710 0.0370 0.0324  -0.8900 0.0491 0.0522
0.8  -2.4052 0.0220 0.0139  -1.0506 0.0228 0.0159  -2.0772 0.0624 0.0530
1.0  -3.3849 0.0614 0.0596  -1.7310 0.3696 0.3695  -3.5632 0.2943 0.2972
"""
TRAIN_SIZE = """
20   -0.3277 0.0965 0.0867  -0.4343 0.1254 0.1197   0.7512 0.1344 0.1361
30   -0.5962 0.0273 0.0210  -0.6894 0.0857 0.0815   0.1574 0.1157 0.1131
40   -0.6671 0.0144 0.0118  -0.8858 0.0375 0.0410  -0.7355 0.0760 0.0727
70   -1.4173 0.0118 0.0128  -1.1361 0.0666 0.0654  -2.0064 0.0569 0.0555
"""


def test_the_numbers_are_those_of_the_papers_tables():
    found = {}
    for table, fixed in ((OBSERVED_FRACTION, {"size": 50}), (TRAIN_SIZE, {"fraction": 0.7})):
        for line in table.strip().splitlines():
            at, *numbers = map(float, line.split())
            regime = (at, fixed["size"]) if "size" in fixed else (fixed["fraction"], int(at))
            methods = zip(("xreg", "dropout", "ensemble"), (0, 3, 6), strict=True)
            found[regime] = {method: tuple(numbers[start : start + 3]) for method, start in methods}
    assert found == PAPER
