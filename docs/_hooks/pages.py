r"""What MkDocs does to a page besides Markdown: maths becomes MathML, which browsers draw themselves; wide tables scroll.

Markdown's Arithmatex leaves LaTeX as `\(…\)` and `\[…\]` in elements of its own, in pages and in docstrings alike.
"""

import html
import re

import latex2mathml.converter

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
# A cell of numbers alone, such as −1.34 ± .09 / .010, stays on one line.
_NUMBERS = re.compile(r"<td>((?:<strong>)?[\d.,−±/ %–]+(?:</strong>)?)</td>")


def mathml(latex: str, *, block: bool) -> str:
    """A formula that needs no script and no font of its own."""
    return latex2mathml.converter.convert(latex.strip(), display="block" if block else "inline")


def on_page_content(content: str, **_) -> str:
    """Called by MkDocs with the HTML of each page."""
    content = _FORMULA.sub(lambda found: mathml(html.unescape(found[2]), block=found[1] == "div"), content)
    content = _TABLE.sub(lambda found: f'<div class="wide" tabindex="0">{found[0]}</div>', content)
    return _NUMBERS.sub(r'<td class="numbers">\1</td>', content)
