r"""What is done to a page besides Markdown: maths becomes MathML, which browsers draw themselves; wide tables scroll.

Markdown's Arithmatex leaves LaTeX as `\(…\)` and `\[…\]` in elements of its own, in pages and in docstrings alike.
"""

import html
import re

import latex2mathml.converter

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
# A cell of numbers alone, such as −1.34 ± .09 / .010, stays on one line.
_NUMBERS = re.compile(r"<td>((?:<strong>)?[\d.,−±/ %–]+(?:</strong>)?)</td>")
# Browsers draw a letter as it is: script letters must be characters of their own, and words in an index upright.
_SCRIPT = {"F": "ℱ", "L": "ℒ", "N": "𝒩"}
_INDEX = re.compile(r"_\{[^{}]*\}")
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-z]{2,}")


def mathml(latex: str, *, block: bool) -> str:
    """A formula that needs no script and no font of its own."""
    latex = re.sub(r"\\mathcal\{?\s*([FLN])\}?", lambda found: _SCRIPT[found[1]], latex.strip())
    latex = _INDEX.sub(lambda found: _WORD.sub(lambda word: rf"\text{{{word[0]}}}", found[0]), latex)
    formula = latex2mathml.converter.convert(latex, display="block" if block else "inline")
    return f'<div class="wide" tabindex="0">{formula}</div>' if block else formula


def on_page_content(content: str, **_) -> str:
    """Called by MkDocs with the HTML of each page."""
    content = _FORMULA.sub(lambda found: mathml(html.unescape(found[2]), block=found[1] == "div"), content)
    content = _TABLE.sub(lambda found: f'<div class="wide" tabindex="0">{found[0]}</div>', content)
    return _NUMBERS.sub(r'<td class="numbers">\1</td>', content)
