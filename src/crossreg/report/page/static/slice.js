// The field along the line at the chosen time, with its bands; and an address that leads back to it.

// The offset of a quantile from the mean in standard deviations, interpolated between the stored quantiles.
const offsetAt = (fields, index, score) => {
  const { scores, offset_steps: steps } = constants;
  const size = fields.truth.length;
  let k = 0;
  while (k < scores.length - 2 && scores[k + 1] < score) k++;
  const share = (score - scores[k]) / (scores[k + 1] - scores[k]);
  return ((1 - share) * fields.offsets[k * size + index] + share * fields.offsets[(k + 1) * size + index]) / steps;
};

// One range for all times of a trajectory: the truth, with room for all but the widest bands. A range that followed
// the slider would move together with the field.
const ranged = new Map();
const rangeOfField = (entry, fields) => {
  const known = ranged.get(fields) || ranged.set(fields, []).get(fields);
  if (!known[state.channel]) {
    const of = (values) => ofChannel(values, entry.points);
    const ends = extentOf(of(fields.truth));
    const [low, high] = ends[0] <= ends[1] ? ends : [0, 1];
    const wide = Math.max(1.7 * topOf(of(fields.std)), topOf(of(fields.size)));
    const room = Math.min(Math.max(wide, 0.05 * (high - low) || 0.5), high - low || 1);
    known[state.channel] = [low - room, high + room];
  }
  return known[state.channel];
};

const drawTime = () => {
  const [entry, fields, piece] = [entryNow(), fieldsNow(), pieceNow()];
  at("time").value = state.time;
  at("time-said").textContent = piece.steps[state.time];
  const level = Number(at("level").value);
  at("level-said").textContent = `${level}%`;
  const share = (100 * (state.time + 0.5)) / piece.steps.length;
  for (const mark of document.querySelectorAll(".frame :is(.now, .here)")) mark.style.left = `${share}%`;
  for (const here of document.querySelectorAll(".frame .here")) {
    here.style.bottom = `${(100 * (state.point + 0.5)) / entry.points}%`;
  }
  const score = constants.levels[level];
  const points = Array.from({ length: entry.points }, (_, p) => p);
  const along = (valueAt) => points.map((p) => valueAt(place(state.time, p, entry.points)));
  const band = (key, end) => {
    const [low, high] = [-1, 1].map((sign) => along((i) => fields.mean[i] + end(i, sign * score)));
    return { band: true, key, label: `${level}% band, ${key}`, color: `var(--${key})`, x: points, y: low, low, high };
  };
  chart(at("slice"), {
    name: "slice",
    title: `${stepName()} ${piece.steps[state.time]} of test trajectory ${piece.number}`,
    x: "grid point", y: entry.names[state.channel] || "field", height: 300, xRange: [0, entry.points - 1], yRange: rangeOfField(entry, fields),
    ticksBelow: points.filter((p) => !fields.observed[state.time * entry.points + p]),
    series: [
      band("total", (i, quantile) => fields.std[i] * offsetAt(fields, i, quantile)),
      band("predictive", (i, quantile) => quantile * fields.std_predictive[i]),
      { label: "mean", x: points, y: along((i) => fields.mean[i]), color: "var(--mean)" },
      { label: "truth", x: points, y: along((i) => fields.truth[i]), color: "var(--text)", dash: "2 3", width: 1.8, broken: true },
    ],
  });
};

// The page's address holds what is shown: it outlives a reload, and can be sent to others with the file.
const PREFIX = "#explore&";
const PLACES = ["entry", "trajectory", "channel", "time", "point"];
let keeping = 0;
const keepPlace = () => {
  clearTimeout(keeping);
  keeping = setTimeout(() => {
    const parts = new URLSearchParams(PLACES.map((name) => [name, state[name]]));
    parts.set("level", at("level").value);
    try {
      history.replaceState(null, "", `${PREFIX}${parts}`);
    } catch {} // some browsers keep no address for a file
  }, 250);
};

// Shows what the address names, as far as the page holds it; returns whether the address names anything.
const takePlace = () => {
  if (!location.hash.startsWith(PREFIX)) return false;
  const parts = new URLSearchParams(location.hash.slice(PREFIX.length));
  const given = (name) => Math.max(0, Math.floor(Number(parts.get(name)) || 0));
  for (const name of PLACES) state[name] = given(name);
  state.entry = clamp(state.entry, report.entries.length);
  if (given("level") >= 1 && given("level") <= 98) at("level").value = given("level");
  return true;
};

// Steps through time until it is stopped.
let playing = 0;
const play = (isOn) => {
  clearInterval(playing);
  playing = isOn ? setInterval(() => {
    state.time = (state.time + 1) % pieceNow().steps.length;
    drawTime();
  }, 120) : 0;
  at("play").setAttribute("aria-pressed", String(isOn));
  at("play").textContent = isOn ? "❚❚ Stop" : "▶ Play";
};
