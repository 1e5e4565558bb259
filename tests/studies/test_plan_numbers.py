"""The numbers of a plan on several devices, and those of trouble, by hand; what a step draws; what scoring takes."""

import dataclasses
import math

import pytest

from crossreg.config import Config
from crossreg.config.sites import site_names
from crossreg.designs.grids import Trial
from crossreg.methods.names import parse_method
from crossreg.studies.planning import device_costs
from crossreg.studies.planning.demand import priced_rows
from crossreg.studies.planning.device_costs import Around, Device, devices_of
from crossreg.studies.planning.plan import make_plan
from crossreg.studies.planning.settings import Asked, Risks
from crossreg.studies.sweep.programs import bytes_beside
from crossreg.training import cost
from crossreg.training.cohort import bytes_of

# Elements of fields in a step of a plain model at the defaults: batch × blocks × width × points.
ELEMENTS = 16 * 4 * 8 * 160
START, NEW, KNOWN, STEP, REPLICA = 5.0, 10.0, 2.0, 1e-3, 1e-3
ASKED = Asked("paper", methods="unregularized", seeds=800)  # 6,400 replicas of 10,000 steps


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    """A GPU on which a step of R plain models takes STEP + R REPLICA seconds."""
    around = Around(
        memory=64 * 2**30, start=START, new=(NEW, NEW), known=(KNOWN, KNOWN), ahead=(3.0, 1.0), replica=0.0,
        look=(0.0, 0.0), row=(0.0, 0.0), held=(2.0**30, 0.1), compilers=0, crowding=1.0,
    )  # fmt: skip
    gpu = Device("Some GPU", (STEP, 0.0, 0.0, 0.0, REPLICA / ELEMENTS, 0.0), (0.1, 0.5), around)
    monkeypatch.setattr(device_costs, "known_devices", lambda: {"gpu": gpu})


def test_device_hours_and_shares_are_of_all_devices():
    """In one process on four devices: four jobs of 1,600 replicas, 400 on each device."""
    made = make_plan(ASKED, "gpu:4")
    [way] = [way for way in made["ways"] if way["name"] == "one process, all devices"]
    job = 10_000 * (STEP + 400 * REPLICA)
    seconds = START + NEW + 4 * job
    assert (way["num_jobs"], way["widest"], way["seconds"]) == (4, 1600, pytest.approx(seconds))
    assert way["device_hours"] == pytest.approx(4 * seconds / 3600)
    # Useful is every replica in a job of 512, as wide as can be; all of it has to fit into what four devices have.
    useful = 6400 / 512 * 10_000 * (STEP + 512 * REPLICA)
    assert way["efficiency"] == pytest.approx(useful / (4 * seconds))
    expected = {"useful": useful, "narrow": 16 * job - useful, "setup": 4 * (START + NEW), "idle": 0.0}
    assert way["shares"] == {name: pytest.approx(part / (4 * seconds)) for name, part in expected.items()}
    assert [one["devices"] for one in made["by_devices"]] == [1, 2, 4, 8, 16]
    for one in made["by_devices"]:
        assert one["efficiency"] == pytest.approx(useful / (one["devices"] * one["seconds"]))
    assert made["device_hours"] == pytest.approx(4 * made["seconds"] / 3600)


def test_devices_are_enough_where_more_save_less_than_5_percent():
    """Jobs of 100 s and 100 s for each replica: six take 200 s on six devices or more, 300 s on five or on three."""
    six = Asked("unregularized", seeds=6, steps=100_000)
    times = {count: make_plan(six, f"gpu:{count}")["seconds"] for count in (3, 5, 6, 16)}
    assert times == pytest.approx({3: 315, 5: 315, 6: 215, 16: 215})
    # Of several workers, the command starts first, and then they do.
    ways = {way["name"]: way["seconds"] for way in make_plan(six, "gpu:6")["ways"]}
    assert ways["one process, all devices"] == pytest.approx(START + NEW + 200)
    assert ways["workers, equal shares"] == pytest.approx(2 * START + NEW + 200)
    assert make_plan(six, "gpu:16")["enough_devices"] == 6
    assert make_plan(six, "gpu:5")["enough_devices"] == 3
    assert make_plan(Asked("unregularized", seeds=1, steps=100_000), "gpu:8")["enough_devices"] == 1


def test_as_many_failures_as_devices_work_hours():
    """Poisson: the rate of each device times the time that devices work, starts again aside."""
    rate = 0.05
    made = make_plan(ASKED, "gpu:4", risks=Risks(failures_per_hour=rate, save_every=1.0, retries=1000, runs=400))
    for way in made["ways"]:
        # Snapshots every second lose nothing, and a start again takes seconds of the hours that a job has.
        busy = 10_000 * (STEP + 400 * REPLICA) * 16 / 3600
        if way["name"] in ("workers, best width", "one process, all devices"):
            spread = 4 * math.sqrt(rate * busy / 400)
            assert way["failures"] == pytest.approx(rate * busy, abs=spread)
            assert way["given_up"] == 0


def test_a_job_that_fails_starts_again_and_finds_its_program():
    """Renewal theory (`troubled`): 200 stretches of a second, each of which may be repeated after a new start."""
    rate, save_every = 100 / 3600, 1.0
    risks = Risks(failures_per_hour=100.0, save_every=save_every, retries=1000, runs=400)
    made = make_plan(Asked("unregularized", seeds=1, steps=100_000), "gpu:1", risks=risks)
    again = math.expm1(rate * (START + KNOWN + save_every)) / rate
    stretch = -math.expm1(-rate * save_every) * (1 / rate + again)
    assert made["seconds"] == pytest.approx(START + NEW + 200 * stretch, abs=6)


def test_the_band_holds_95_percent_of_the_runs():
    """One job that is slowed three times as long with a chance of 10%: in 97.5% of the runs it is not, or it is."""
    one = Asked("unregularized", seeds=1, steps=1000)
    calm = make_plan(one, "gpu:1")["seconds"]
    work = 1000 * (STEP + REPLICA)
    slowed = pytest.approx(calm + 2 * work)
    for rate, wanted in ((0.005, [calm, calm]), (0.1, [calm, slowed]), (0.9, [calm, slowed]), (0.995, [slowed] * 2)):
        made = make_plan(one, "gpu:1", risks=Risks(straggler_rate=rate, runs=2000))
        assert made["band"] == [pytest.approx(edge) if isinstance(edge, float) else edge for edge in wanted], rate


def test_what_a_step_draws():
    """Variates for single elements: of every site, and of every mode, in train and reg updates alike."""
    how = {"num_samples": 4, "batch_size": 3, "reg_batch_size": 2}
    base = Config().replace(steps=100, k_reg=10**6, settle=0.0, **how, width=5, num_blocks=3)

    def work(method: str, **fields) -> cost.Work:
        [config] = parse_method(method).configs(base)
        return cost.work_of(
            config.replace(**{"train_samples": 6} | fields if method == "xreg" else fields), (24,), "cpu"
        )

    def drawn(method: str) -> int:
        """Batch × samples × sites × width × points."""
        [config] = parse_method(method).configs(base)
        samples = 6 if method == "xreg" else config.train.train_samples or config.train.num_samples
        return 3 * samples * len(config.model.sites or site_names(3)) * 5 * 24

    assert work("xreg", epsilon_per="element").variates == drawn("xreg") == 3 * 6 * 4 * 5 * 24
    assert work("xreg", epsilon_per="channel").variates == 0
    # Every second update is one of ρ besides: of two pairs, with four samples each.
    both = work("xreg", epsilon_per="element", k_reg=2)
    assert both.updates == 1.5
    assert both.variates == (3 * 6 + 2 * 4 / 2) * 4 * 5 * 24
    # One block of three runs once for a pair, the others for every sample.
    on_train, on_reg = 3 * (1 + 6 * 2), 0.88 * 2 * (1 + 4 * 2)
    assert both.dft / work("xreg", epsilon_per="element").dft == pytest.approx((on_train + on_reg / 2) / on_train)
    assert work("unregularized").variates == 0
    assert work("dropout").variates == drawn("dropout")


def test_what_rollouts_take_in_train_updates():
    """Half a batch of them, each of K steps, with a forward pass more for the gradient; on reg, of 12 particles."""
    how = {"steps": 200, "settle": 0.3, "k_reg": 7, "batch_size": 6, "num_samples": 4, "rollout_particles": 12}
    how |= {"reg_batch_size": 5}
    config = Config().replace(**how)
    after = (200 - 140) // config.train.k_settled
    assert cost.reg_updates_per_step(config) == pytest.approx((140 // 7 + after) / 200)
    on_reg = config.replace(reg_horizon=5)
    assert cost.reg_updates_per_step(on_reg) == pytest.approx((140 // 7 + after * 5 * (3 * 12) / (5 * 4) * 4 / 3) / 200)
    on_train = config.replace(train_rollout_steps=5)
    work, plain = (cost.work_of(c, (24,), "cpu").updates for c in (on_train, config))
    assert work - plain == pytest.approx((5 * 3 / 6 * 4 / 3 - 1) * 60 / 200)


def test_what_scoring_takes_in_train_steps():
    """Forward passes of all pairs of the three splits, a third of what a step takes for each of its own."""
    sizes = {"train_size": 7, "reg_size": 6, "test_size": 4, "train_horizon": 3, "test_horizon": 5}
    config = Config().replace(**sizes, evaluation_samples=9, batch_size=8, num_samples=4, train_samples=2)
    assert cost.scoring_steps(config, 5) == pytest.approx(5 * (2 * 4 * 5 + 13 * 3) * 9 / (3 * 8 * 2))
    assert cost.scoring_steps(config.replace(train_samples=None), 5) == 0.5 * cost.scoring_steps(config, 5)
    [plain] = parse_method("unregularized").configs(config)
    assert cost.scoring_steps(plain, 5) == pytest.approx(5 * (2 * 4 * 5 + 13 * 3) / (3 * 8))
    assert cost.scoring_steps(config, 0) == cost.scoring_steps(config, 1)


def test_a_row_takes_the_forward_passes_of_its_members_on_all_pairs():
    """Of 4 test trajectories of 5 steps, 7 of train and 6 of reg of 3: reg once, and as often as it is read besides."""
    gpu, _ = devices_of("gpu:1")
    gpu = dataclasses.replace(gpu, around=gpu.around._replace(row=(2.0, 0.5)))
    sizes = {"train_size": 7, "reg_size": 6, "test_size": 4, "train_horizon": 3, "test_horizon": 5}
    config = Config().replace(**sizes, evaluation_samples=9)
    for members, more_reg in ((1, 0), (3, 0), (1, 2), (0, 1)):
        forward = gpu.forward_seconds(config, (1, 160), 4 * 5 + (7 + (1 + more_reg) * 6) * 3, 9)
        found = gpu.row_seconds(config, (1, 160), members=members, more_reg=more_reg)
        assert found == pytest.approx(2.0 + 0.5 * max(members, 1) * forward)


def test_a_program_is_compiled_ahead_if_all_its_replicas_fit_beside_the_one_that_trains():
    gpu, _ = devices_of("gpu:1")
    config, shape = Config(), (1, 160)
    most = int(bytes_beside(gpu.around.memory) // bytes_of(config, 160))
    assert most > 1
    assert gpu.compiles_ahead(config, shape, most)
    assert not gpu.compiles_ahead(config, shape, most + 1)


def test_rows_are_priced_by_their_members_and_by_what_is_fitted_on_reg():
    asked = []

    def seconds(config, members, more_reg) -> float:
        asked.append((members, more_reg))
        return 10.0 * members + more_reg

    price = priced_rows(seconds)
    config = Config()
    names = ("xreg", "ensemble-4", "ensemble-4+temperature", "persistence")
    found = {name: price(Trial(config, parse_method(name), {})) for name in names}
    assert found == {"xreg": 10.0, "ensemble-4": 40.0, "ensemble-4+temperature": 41.0, "persistence": 0.0}
    price(Trial(config.replace(seed=9), parse_method("xreg"), {}))
    assert len(asked) == 4  # another seed takes as long, and is not asked for again
