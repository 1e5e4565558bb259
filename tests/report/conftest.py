"""Shared by the tests of figures."""

import matplotlib.pyplot as plt
import pytest

from crossreg.report import figures, sweep_figures


@pytest.fixture
def kept(monkeypatch):
    """Figures stay open, so that a test can read what was drawn."""
    drawn = []
    for module in (figures, sweep_figures):
        monkeypatch.setattr(module, "save", lambda figure, path: drawn.append(figure) or [path])
    yield drawn
    plt.close("all")
