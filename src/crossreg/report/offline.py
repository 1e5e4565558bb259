"""Parts of pages that open offline: a policy that lets nothing in, and templates that are filled in one pass.

The policy forbids the browser to load anything. A script runs only if the policy names its SHA-256: text from a run
folder never runs, even if it should end up as markup.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from plotly.offline import get_plotlyjs


def policy(scripts: Iterable[str]) -> str:
    """Return the policy of a page with these scripts; the only image it allows is the empty icon."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{text}'" for text in hashes) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with its parts in their places. In one pass: parts are not searched for places."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts.get(place[1], ""), template)


def json_text(value: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def base64_text(values: np.ndarray, kind: str | None = None) -> str:
    """Return the bytes of an array, as numbers of a kind such as `<f4`, as text for a script."""
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def plotly_script() -> str:
    """Return plotly's script, with any closing tag inside it escaped."""
    return get_plotlyjs().replace("</script", "<\\/script")
