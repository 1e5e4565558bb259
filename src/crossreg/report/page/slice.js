// The field at the chosen time with its bands, and an address that leads back to it.

// Offset of a quantile from the mean in standard deviations, between the stored ones.
const offsetAt = (fields, index, score) => {
  const { scores, offset_steps: steps } = constants;
  const size = fields.truth.length;
  let k = 0;
  while (k < scores.length - 2 && scores[k + 1] < score) k++;
  const share = (score - scores[k]) / (scores[k + 1] - scores[k]);
  return ((1 - share) * fields.offsets[k * size + index] + share * fields.offsets[(k + 1) * size + index]) / steps;
};

// One range for all times of a trajectory, so that what moves is the field: the truth, and room for all but the widest
// bands. A range that followed the slider would move too.
const ranged = new Map();
const rangeOfField = (entry, fields) => {
  const known = ranged.get(fields) || ranged.set(fields, []).get(fields);
  if (!known[state.channel]) {
    const truth = ofChannel(entry, fields.truth).filter(Number.isFinite);
    const ends = truth.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    const [low, high] = truth.length ? ends : [0, 1];
    const wide = Math.max(1.7 * topOf(ofChannel(entry, fields.std)), topOf(ofChannel(entry, fields.size)));
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
  for (const now of document.querySelectorAll(".frame .now")) now.style.left = `${share}%`;
  for (const here of document.querySelectorAll(".frame .here")) {
    here.style.left = `${share}%`;
    here.style.bottom = `${(100 * (state.point + 0.5)) / entry.points}%`;
  }
  const score = constants.levels[level];
  const points = Array.from({ length: entry.points }, (_, p) => p);
  const of = (values) => points.map((p) => values[place(entry, state.time, p)]);
  const band = (low, high, key, color) => ({
    band: true, key, label: `${level}% band, ${key}`, color, x: points, y: low, low, high,
  });
  const side = (sign) => points.map((p) => {
    const index = place(entry, state.time, p);
    return fields.mean[index] + fields.std[index] * offsetAt(fields, index, sign * score);
  });
  const predictive = (sign) => points.map((p) => {
    const index = place(entry, state.time, p);
    return fields.mean[index] + sign * score * fields.std_predictive[index];
  });
  const hidden = points.filter((p) => !fields.observed[state.time * entry.points + p]);
  chart(at("slice"), {
    name: "slice",
    title: `Step ${piece.steps[state.time]} of test trajectory ${piece.number}`,
    x: "grid point", y: entry.names[state.channel] || "field", height: 300, xRange: [0, entry.points - 1], yRange: rangeOfField(entry, fields),
    ticksBelow: hidden,
    series: [
      band(side(-1), side(1), "total", "var(--total)"),
      band(predictive(-1), predictive(1), "predictive", "var(--predictive)"),
      { label: "mean", x: points, y: of(fields.mean), color: "var(--mean)" },
      { label: "truth", x: points, y: of(fields.truth), color: "var(--text)", dash: "2 3", width: 1.8, broken: true },
    ],
  });
};

// What is looked at stands in the page's address: it outlives a reload, and can be sent to others with the file.
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
    } catch {} // a browser that keeps no address for a file
  }, 250);
};

// Takes over what the address says, as far as the page has it; says whether it says anything.
const takePlace = () => {
  if (!location.hash.startsWith(PREFIX)) return false;
  const parts = new URLSearchParams(location.hash.slice(PREFIX.length));
  const given = (name) => Math.max(0, Math.floor(Number(parts.get(name)) || 0));
  for (const name of PLACES) state[name] = given(name);
  state.entry = clamp(state.entry, report.entries.length);
  if (given("level") >= 1 && given("level") <= 98) at("level").value = given("level");
  return true;
};

// Steps through time by itself until it is told to stop.
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
