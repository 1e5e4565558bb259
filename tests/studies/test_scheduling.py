"""Schedules against closed forms, an optimum by brute force, and each other; trouble against its expected time."""

import itertools
import math
import time

import numpy as np
import pytest

from crossreg.studies.planning.scheduling import (
    Group,
    Trouble,
    in_one_process,
    list_schedule,
    simulate,
    simulate_one_process,
    troubled,
)


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("jobs", "devices"), [(1, 1), (7, 3), (12, 4), (3, 8), (10**6, 999)])
def test_equal_jobs_take_as_many_rounds_as_they_need(jobs, devices):
    made = list_schedule([Group(jobs, 2.5, new=3.0, known=3.0)], devices, start=7.0)
    assert made.makespan == pytest.approx(7 + 3 + math.ceil(jobs / devices) * 2.5)
    assert made.busy == pytest.approx(2.5 * jobs)
    assert made.setup == pytest.approx(7 * devices + 3 * min(jobs, devices))


def optimum(seconds, devices: int) -> float:
    """The least makespan of all assignments."""
    return min(
        max(sum(s for s, d in zip(seconds, where, strict=True) if d == device) for device in range(devices))
        for where in itertools.product(range(devices), repeat=len(seconds))
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_longest_first_is_within_grahams_bound_of_the_optimum(seed):
    random = draw(seed)
    devices, jobs = int(random.integers(2, 4)), int(random.integers(3, 9))
    seconds = random.uniform(0.5, 5, jobs).round(2).tolist()
    best = optimum(seconds, devices)
    made = list_schedule([Group(1, s) for s in seconds], devices)
    assert best - 1e-9 <= made.makespan <= (4 / 3 - 1 / (3 * devices)) * best + 1e-9


def test_grahams_bound_is_reached_by_its_own_example():
    """3, 3, 2, 2, 2 on two devices: 7 where 6 would do, (4/3 − 1/6) of it."""
    assert list_schedule([Group(2, 3.0), Group(3, 2.0)], 2).makespan == 7
    assert optimum([3, 3, 2, 2, 2], 2) == 6


def test_the_longest_goes_first():
    """However they are listed: 4 beside 1 + 1 + 1 + 1, where the shortest first would end at 2 + 4."""
    for groups in ([Group(1, 4.0), Group(4, 1.0)], [Group(4, 1.0), Group(1, 4.0)]):
        assert list_schedule(groups, 2).makespan == 4
        assert simulate(groups, 2, Trouble(), draw()).makespan == 4


@pytest.mark.parametrize("seed", range(20))
def test_sums_over_groups_are_the_schedule_job_by_job(seed):
    random = draw(seed)
    groups = []
    for _ in range(int(random.integers(1, 6))):
        new = random.uniform(0, 4)
        groups.append(Group(int(random.integers(1, 60)), random.uniform(0.1, 6), new, random.uniform(0, 1) * new))
    devices = int(random.integers(1, 12))
    whole = list_schedule(groups, devices, start=1.5)
    followed = simulate(groups, devices, Trouble(), draw(), start=1.5)
    assert followed.makespan == pytest.approx(whole.makespan, rel=1e-12)
    assert (followed.failures, followed.given_up) == (0, 0)
    # Nothing is lost and nothing overlaps: devices are busy, start or wait.
    assert whole.busy == pytest.approx(sum(g.number * g.seconds for g in groups))
    assert whole.busy + whole.setup <= devices * whole.makespan * (1 + 1e-12)


def test_a_program_that_is_known_is_compiled_once_where_jobs_come_late():
    """Both devices compile what both begin with; of what is begun later, only the first compiles."""
    long, short = Group(1, 10.0, new=2.0, known=2.0), Group(3, 4.0, new=3.0, known=1.0)
    made = list_schedule([long, short], 2)
    # One: 2 + 10. The other: 3 + 4 + 4, then at 11 the third job: 15. None is late enough to find it compiled.
    assert made.makespan == 15
    assert made.setup == 2 + 3
    late = list_schedule([Group(1, 10.0), Group(4, 4.0, new=3.0, known=1.0)], 2)
    # The other has 3 + 4 + 4 = 11; the first comes at 10, when it has long been compiled: 10 + 1 + 4 = 15, and 11 + 4.
    assert late.makespan == 15
    assert late.setup == 3 + 1


def test_one_process_adds_up():
    groups = [Group(2, 5.0, new=4.0, known=1.0, ahead=0.5), Group(1, 3.0, new=6.0, known=2.5, ahead=2.0)]
    assert in_one_process(groups, start=2.0).makespan == 2 + 4 + 10 + 6 + 3
    # Compiled beside the first job, from 2 to 8: at 16 it is there, and is read.
    assert in_one_process(groups, start=2.0, compilers=4).makespan == 2 + 4 + 10 + 2 + 3
    # Compiling takes 3 times as long for both: the second is ready at 2 + 18, the first ends at 2 + 12 + 10.
    assert in_one_process(groups, start=2.0, compilers=4, crowding=3.0).makespan == 2 + 12 + 10 + 2 + 3
    # A long compilation is waited for, and never longer than doing it oneself.
    slow = [Group(1, 1.0, new=1.0), Group(1, 1.0, new=50.0, known=9.0, ahead=2.0)]
    assert in_one_process(slow, compilers=1).makespan == pytest.approx(1 + 1 + (50 - 2) + 2 + 1)
    # Crowded, a compilation of 10 s is ready at 20, and that is waited for too.
    crowded = [Group(1, 1.0, new=1.0), Group(1, 1.0, new=10.0, ahead=2.0)]
    assert in_one_process(crowded, compilers=1, crowding=2.0).makespan == pytest.approx(20 + 2 + 1)
    # What is too large to be compiled beside another is compiled when its turn comes, with all cores.
    large = [groups[0], groups[1]._replace(ahead=math.inf)]
    assert in_one_process(large, start=2.0, compilers=4, crowding=3.0).makespan == 2 + 4 + 10 + 6 + 3
    same = simulate_one_process(groups, Trouble(), draw(), start=2.0, compilers=4)
    assert same.makespan == in_one_process(groups, start=2.0, compilers=4).makespan


def test_without_trouble_nothing_changes():
    seconds = np.asarray([1.0, 2.0, 5.0])
    became = troubled(seconds, Trouble(straggler_rate=0.0, slowdown=9.0, save_every=1.0), draw())
    np.testing.assert_array_equal(became.seconds, seconds)
    assert not became.failures.any()


def test_stragglers_are_slowed_as_often_as_said():
    became = troubled(np.ones(20_000), Trouble(straggler_rate=0.1, slowdown=3.0), draw())
    assert set(became.seconds.tolist()) == {1.0, 3.0}
    assert became.seconds.mean() == pytest.approx(1 + 0.1 * 2, abs=4 * 2 * math.sqrt(0.09 / 20_000))


def expected_seconds(work: float, rate: float, every: float, restart: float) -> float:
    """The renewal formula: stretches between snapshots, each begun again `restart` later until it is through."""
    whole, rest = divmod(work, every)
    stretches = [every] * round(whole) + [rest] * (rest > 0)
    return sum((1 - math.exp(-rate * t)) * (1 + math.expm1(rate * (restart + t))) / rate for t in stretches)


@pytest.mark.parametrize(
    ("work", "rate", "every", "restart"), [(100.0, 0.02, 10.0, 5.0), (50.0, 0.05, 60.0, 3.0), (35.0, 0.03, 10.0, 0.0)]
)
def test_failures_cost_what_renewal_theory_says(work, rate, every, restart):
    jobs = 40_000
    trouble = Trouble(failure_rate=rate, save_every=every, restart=restart, retries=10**6)
    became = troubled(np.full(jobs, work), trouble, draw(3))
    error = became.seconds.std() / math.sqrt(jobs)
    assert became.seconds.mean() == pytest.approx(expected_seconds(work, rate, every, restart), abs=4 * error)
    # Poisson: as many failures as there is time for them.
    assert became.failures.mean() == pytest.approx(rate * became.seconds.mean(), rel=0.02)
    assert not became.given_up.any()


def test_snapshots_at_all_times_lose_only_the_restart():
    rate, work, restart = 0.05, 40.0, 2.0
    trouble = Trouble(failure_rate=rate, save_every=0.0, restart=restart, retries=10**6)
    became = troubled(np.full(20_000, work), trouble, draw(4))
    # A failure during work costs one undisturbed restart, m(r) = (e^{λr} − 1)/λ.
    expected = work + rate * work * math.expm1(rate * restart) / rate
    assert became.seconds.mean() == pytest.approx(expected, abs=4 * became.seconds.std() / math.sqrt(20_000))


def test_a_job_that_fails_too_often_is_given_up():
    rate, work = 0.1, 10.0
    trouble = Trouble(failure_rate=rate, save_every=math.inf, restart=0.0, retries=1)
    became = troubled(np.full(20_000, work), trouble, draw(5))
    # Both tries fail: (1 − e^{−1})².
    share = (1 - math.exp(-1)) ** 2
    assert became.given_up.mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 20_000))
    assert became.failures.max() == 2


def test_simulated_runs_depend_on_their_seed_alone():
    groups = [Group(50, 3.0, 1.0, 0.5), Group(20, 1.0, 1.0, 0.5)]
    trouble = Trouble(straggler_rate=0.2, slowdown=4.0, failure_rate=0.02, save_every=1.0, restart=1.0)
    first, second, other = (simulate(groups, 6, trouble, draw(seed)) for seed in (1, 1, 2))
    assert first == second != other
    assert first.makespan >= list_schedule(groups, 6).makespan


def test_a_million_jobs_on_a_thousand_devices_take_seconds():
    groups = [Group(600_000, 1.7, 9.0, 2.0), Group(400_000, 0.6, 5.0, 2.0)]
    begun = time.process_time()
    whole = list_schedule(groups, 1000)
    assert time.process_time() - begun < 1
    followed = simulate(groups, 1000, Trouble(), draw())
    assert followed.makespan == pytest.approx(whole.makespan, rel=1e-9)
    assert time.process_time() - begun < 20
