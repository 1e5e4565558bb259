"""The rankings of regions find what was put there."""

import math

import numpy as np
import pytest

from crossreg.runs.fields.regions import BLOCK_POINTS, BLOCK_STEPS, Scan, rank_regions


def test_rankings_find_what_is_wrong():
    error, std = np.full((3, 4, 2, 6), 0.1), np.full((3, 4, 2, 6), 0.1)
    error[2, 1, 1, 5] = 0.9  # nine times its error bar
    error[2, 1, 1, 4] = 0.8  # touches it: one event
    error[2, 3, 0, 5] = 0.7  # the same place later, and in another channel
    error[0, 3, 0, 0], std[0, 3, 0, 0] = 2.0, 1.5  # large, and announced
    error[1, 0, 0, 2] = np.nan
    std[1, 1, 0, 3] = 0.0
    unaware, aware = rank_regions(Scan(np.ones(20), error, std), 4 * BLOCK_STEPS - 2, (6 * BLOCK_POINTS - 3,))
    # An error with no error bar at all is the worst.
    assert (unaware[0].trajectory, unaware[0].steps, unaware[0].ratio) == (1, (6, 10), math.inf)
    first, *unaware = unaware[1:]
    assert (first.trajectory, first.channel, first.steps) == (2, 1, (6, 10))
    assert first.points == ((40, 44),)  # the last block is cut
    assert first.ratio == pytest.approx(9)
    assert unaware == []  # no other error is beyond two error bars
    assert (aware[0].trajectory, aware[0].steps, aware[0].error) == (0, (16, 18), 2.0)
    assert all(region.ratio <= 2 for region in aware)
    # Every place of a trajectory is listed once: of six blocks in a row, three that do not touch.
    places = [(region.trajectory, region.points[0][0] // BLOCK_POINTS) for region in aware]
    assert all(abs(a - b) > 1 for r, a in places for s, b in places if r == s and a != b)
    assert len(set(places)) == len(places)
    assert {row for row, _ in places} == {0, 1, 2}


def test_no_channel_hides_another_by_its_units():
    error = np.full((2, 1, 2, 9), 0.1)
    error[0, 0, 0, 0] = error[1, 0, 1, 8] = 0.5
    error[:, :, 1] *= 1e5
    _, aware = rank_regions(Scan(np.ones(20), error, error), BLOCK_STEPS, (9 * BLOCK_POINTS,))
    assert {(region.trajectory, region.channel) for region in aware[:2]} == {(0, 0), (1, 1)}


@pytest.mark.filterwarnings("error")
def test_a_channel_without_any_finite_error_is_left_out_in_silence():
    error = np.full((2, 1, 2, 9), 0.1)
    error[0, 0, 0, 0] = 0.5
    error[:, :, 1] = np.nan
    unaware, aware = rank_regions(Scan(np.ones(20), error, error), BLOCK_STEPS, (9 * BLOCK_POINTS,))
    assert not unaware
    assert {region.channel for region in aware} == {0}
    assert (aware[0].trajectory, aware[0].points[0][0]) == (0, 0)
