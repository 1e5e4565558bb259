"""What the pages that open offline share: a policy that lets nothing in, and templates that are filled in one pass.

The policy forbids the browser to load anything. A script runs only if its SHA-256 is one of those that the policy
names: what a file brings into the page never runs, even if it came to stand there as markup.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from plotly.offline import get_plotlyjs


def policy(scripts: Iterable[str]) -> str:
    """The policy of a page with these scripts. Its empty icon is all that it shows as an image."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{text}'" for text in hashes) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with its parts in their places. One pass: what is put in is never looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts.get(place[1], ""), template)


def json_text(value: Any) -> str:
    """JSON that cannot end the script that it stands in."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def plotly_script() -> str:
    """Plotly's own script; a closing tag inside it would end it."""
    return get_plotlyjs().replace("</script", "<\\/script")
