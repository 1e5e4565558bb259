"""Networks: noise sites, layers and heads, and the surrogates that are built from them.

- `groups.py`: the types `Psi` and `Rho`, which say who learns a parameter: θ, ψ or ρ.
- `bounds.py`, `noise.py`: bounded log σ, and the noise sites that multiply features by 1 + σε.
- `pointwise.py`, `spectral.py`, `heads.py`: the layers.
- `surrogate.py`: `Surrogate`, and `predict`, which samples it.
- `fno.py`, `backbone.py`, `build.py`: a Fourier neural operator; any Equinox module with noise; models from a config.
- `kernels/`: the speed layer.

May import from `errors`, `files`, `machine`, `config` and `data`, and, for what `predict` returns, from `predictive`.
"""
