"""What the README of an export says of its inputs and outputs."""

from crossreg.export.readme import readme

OUTPUTS = ("mean", "std", "std_predictive", "std_generalization")
ABOUT = {
    "inputs": {"fields": {"shape": ["batch", 2, 20], "dtype": "float32"}},
    "outputs": {
        **{name: {"shape": ["batch", 2, 20], "dtype": "float32"} for name in OUTPUTS},
        "quantiles": {"shape": ["batch", 3, 2, 20], "dtype": "float32"},
    },
    "levels": [0.9, 0.025, 0.5], "noise": {"seed": 4, "samples": 7}, "platforms": ["cpu", "cuda"], "opset": 18,
    "channels": ["pressure", "velocity"], "settings": {},
    "largest_difference": {"model.onnx": dict.fromkeys(OUTPUTS, 1e-7)},
}  # fmt: skip


def test_every_output_is_called_what_it_is():
    text = readme(ABOUT)
    shape = "(batch, 2, 20) | float32"
    for row in (
        f"| `fields` | {shape} | the fields now, in the units of the training data |",
        f"| `mean` | {shape} | the mean of the next fields |",
        f"| `std` | {shape} | the standard deviation of the prediction: std² = std_predictive² + std_generalization² |",
        f"| `std_predictive` | {shape} | the part learned on train |",
        f"| `std_generalization` | {shape} | the part learned on held-out data |",
        "| `quantiles` | (batch, 3, 2, 20) | float32 | at the levels 0.9, 0.025, 0.5, in this order |",
    ):
        assert row in text.splitlines(), row
    assert "Channels: 0 `pressure`, 1 `velocity`." in text
    assert "The 7 noise draws come from the seed 4" in text
    assert "The observation mask of the run is part of the model" in text


def test_a_mask_is_described_where_it_is_an_input():
    mask = {"mask": {"shape": ["batch", 20], "dtype": "bool"}}
    text = readme(ABOUT | {"inputs": ABOUT["inputs"] | mask, "noise": {"seed": 4, "samples": 1}})
    assert "| `mask` | (batch, 20) | bool | true where a point is observed; the others are not read |" in text
    assert "Each field has a mask of its own." in text
    assert "The model draws no noise" in text
