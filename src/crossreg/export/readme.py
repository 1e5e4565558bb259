"""The README of an exported folder."""

from pathlib import Path
from typing import Any

_MEANINGS = {
    "fields": "the fields now, in the units of the training data",
    "mask": "true where a point is observed; the others are not read",
    "mean": "the mean of the next fields",
    "std": "the standard deviation of the prediction: std² = std_predictive² + std_generalization²",
    "std_predictive": "the part learned on train",
    "std_generalization": "the part learned on held-out data",
    "quantiles": "at the levels {levels}, in this order",
}


def readme(about: dict[str, Any]) -> str:
    """Return the README of one export: the files, inputs, outputs and how to call them."""
    inputs, levels = about["inputs"], ", ".join(f"{level:g}" for level in about["levels"])
    mask = (
        "Each field has a mask of its own."
        if "mask" in inputs
        else "The observation mask of the run is part of the model: what stands at the other points is not read."
    )
    server = "serve_example.py" if "opset" in about else "serve_example_jax.py"
    names = ", ".join(f'"{name}"' for name in inputs)
    arrays = ", ".join(f"{name}=np.load('{name}.npy')" for name in inputs)
    return f"""# An exported crossreg model

One step of a field, with error bars. Nothing here needs crossreg.

| file | what it is |
|---|---|
{_files(about)}

{_table("input", inputs, levels)}

{_table("output", about["outputs"], levels)}{_channels(about.get("channels", []))}

The batch may have any size. {mask} A value that is not finite (NaN) counts as hidden too.
{_noise(about)}

{_checked(about["largest_difference"])}

{_with_onnx(names) if server == "serve_example.py" else ""}## With JAX and flatbuffers

```python
import numpy as np
from jax import export

model = export.deserialize(bytearray(open("model.stablehlo", "rb").read()))
prediction = model.call(*(np.load(f"{{name}}.npy") for name in [{names}]))
```

## As a server

`python {server}` in this folder, and from elsewhere

```sh
python -c "import numpy as np; np.savez('inputs.npz', {arrays})"
curl --data-binary @inputs.npz http://127.0.0.1:8000 --output prediction.npz
```

All of it:

```python
{(Path(__file__).parent / "examples" / server).read_text().rstrip()}
```
"""


def _channels(names: list[str]) -> str:
    """Return a line with the names of the channels, if the data have them."""
    if not names:
        return ""
    shown = ", ".join(f"{number} `{' '.join(name.replace('`', chr(39)).split())}`" for number, name in enumerate(names))
    return f"\n\nChannels: {shown}."


def _checked(largest: dict[str, dict[str, float] | None]) -> str:
    return "\n".join(
        f"- `{file}` was not run when it was made: onnxruntime was not there."
        if apart is None
        else f"- `{file}` differs from the model in crossreg by at most {max(apart.values()):.1e} of the fields' scale."
        for file, apart in largest.items()
    )


def _files(about: dict[str, Any]) -> str:
    has_onnx, settings = "opset" in about, "all settings" if "settings" in about else "what the network is"
    rows = [
        ("`model.stablehlo`", f"for JAX (`jax.export`), on {', '.join(about['platforms'])}"),
        ("`model.safetensors`", "the trained arrays by name, and the run's mask"),
        ("`config.json`", f"{settings}, and the name, shape and group (θ, ψ or ρ) of every array"),
        ("`serve_example_jax.py`", "an HTTP server for it"),
    ]
    if has_onnx:
        rows[-1] = ("`serve_example.py`, `serve_example_jax.py`", "an HTTP server for either program")
        rows.insert(0, ("`model.onnx`", f"for onnxruntime and others: ONNX, opset {about['opset']}"))
    return "\n".join(f"| {file} | {what} |" for file, what in rows)


def _with_onnx(names: str) -> str:
    return f"""## With onnxruntime

```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
names = [output.name for output in session.get_outputs()]
inputs = {{name: np.load(f"{{name}}.npy") for name in [{names}]}}
prediction = dict(zip(names, session.run(names, inputs)))
```

"""


def _noise(about: dict[str, Any]) -> str:
    noise = about["noise"]
    if noise["samples"] == 1:
        return "The model draws no noise, or a single sample of it: equal inputs give equal outputs."
    predicts = " They are the draws that `crossreg predict` has for the first field of a file."
    return (
        f"The {noise['samples']} noise draws come from the seed {noise['seed']} and are part of the model: equal inputs"
        " give equal outputs, and what comes out for a field does not depend on what else is in its batch."
        f"{predicts if 'settings' in about else ''}"
    )


def _table(head: str, described: dict[str, Any], levels: str) -> str:
    rows = [
        f"| `{name}` | ({', '.join(map(str, of['shape']))}) | {of['dtype']} | {_MEANINGS[name].format(levels=levels)} |"
        for name, of in described.items()
    ]
    return "\n".join([f"| {head} | shape | type | |", "|---|---|---|---|", *rows])
