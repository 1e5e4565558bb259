"""What the page on forecasts says of `hide_own`, from the scores that `benchmarks/own_prediction.py` stored."""

import json
from collections import defaultdict

from claimed import RESULTS, WORDS, flat, page

from crossreg.metrics.intervals import interval

LEADS = (2, 10, 20, 50)
NAMES = {
    ("run", False): "one mask for the run",
    ("run", True): "one mask for the run, and a mask channel",
    ("pair", False): "a mask for each pair",
    ("pair", True): "a mask for each pair, and a mask channel",
}


def ratios() -> dict[tuple[str, bool], dict[int, list[float]]]:
    """The CRPS with own predictions read whole over that with them hidden, by training, lead and seed."""
    rows = json.loads((RESULTS / "own_prediction.json").read_text())["rows"]
    crps = {
        tuple(row[n] for n in ("mask_per", "mask_channel", "lead", "seed", "hide_own")): row["crps"] for row in rows
    }
    found: dict[tuple[str, bool], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for *setting, hide_own in sorted(crps):
        if not hide_own:
            mask_per, mask_channel, lead, _ = setting
            found[mask_per, mask_channel][lead].append(crps[*setting, False] / crps[*setting, True])
    return found


def table_line(name: str, by_lead: dict[int, list[float]]) -> str:
    cells = []
    for lead in LEADS:
        assert len(by_lead[lead]) == 5
        of = interval(by_lead[lead])
        assert of is not None
        cells.append(f"{of.mean:.2f} ± {of.half:.2f}")
    return " | ".join(["", name, *cells, ""]).strip()


def test_the_table_is_that_of_the_stored_scores():
    for setting, by_lead in ratios().items():
        assert table_line(NAMES[setting], by_lead) in page("docs/forecasts.md")


def what_is_said_of_it() -> str:
    found = ratios()
    leads = sorted(found["pair", False])

    def holds(lead: int) -> bool:
        worse = all(ratio > 1 for channel in (False, True) for ratio in found["run", channel][lead])
        return worse and all(ratio < 1 for ratio in found["pair", False][lead])

    near = [lead for lead in leads if holds(lead)]
    assert near == leads[leads.index(near[0]) : leads.index(near[-1]) + 1]
    assert min(found["pair", False][50]) > 1
    [seeds] = {len(by_lead[lead]) for by_lead in found.values() for lead in near}
    return f"""at leads {near[0]} to {near[-1]} `hide_own=False` is worse in all {WORDS[seeds]} seeds with one mask for
        the run, and better in all {WORDS[seeds]} with a mask for each pair and no mask channel."""


def test_what_is_said_of_it():
    assert flat(what_is_said_of_it()) in page("docs/forecasts.md")
