// Test trajectories: maps over space and time, and the field at a chosen time.
const at = (id) => document.getElementById(id);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const constants = report.constants;
const colors = Object.fromEntries(Object.entries(constants.colors).map(([name, text]) => [name, bytes(text)]));

const MISSING = -32768;
const STORED = ["truth", "error", "std_mu", "std_predictive", "std_generalization"];
const numbers = ({ top, data }) => {
  const stored = new DataView(bytes(data).buffer);
  return Float32Array.from({ length: stored.byteLength / 2 }, (_, i) => {
    const value = stored.getInt16(2 * i, true);
    return value === MISSING ? NaN : (value * top) / 32767;
  });
};

// A trajectory is decoded when it is first looked at.
const decoded = new Map();
const fieldsOf = (entry, index) => {
  const stored = entry.trajectories[index];
  if (!decoded.has(stored)) {
    const fields = {};
    for (const name of STORED) fields[name] = numbers(stored[name]);
    fields.mean = fields.truth.map((value, i) => value + fields.error[i]);
    fields.size = fields.error.map(Math.abs);
    fields.std = fields.std_predictive.map((value, i) => Math.hypot(value, fields.std_generalization[i]));
    fields.observed = bytes(stored.observed);
    fields.offsets = new Int8Array(bytes(stored.offsets).buffer);
    decoded.set(stored, fields);
  }
  return decoded.get(stored);
};

const state = { entry: 0, trajectory: 0, channel: 0, time: 0, region: null };
const entryNow = () => report.entries[state.entry];
const place = (entry, time, point) => (time * entry.channels + state.channel) * entry.points + point;

const MAPS = [
  ["truth", "Truth", "RdBu_r"],
  ["size", "|error|", "viridis"],
  ["std_mu", "Std_ω[μ], spread of the means", "viridis"],
  ["std", "Total standard deviation √U_tot", "viridis"],
];
const QUANTITIES = {
  truth: "truth",
  mean: "mean",
  size: "|error|",
  std_mu: "Std_ω[μ]",
  std_predictive: "√U_pred",
  std_generalization: "√U_gen",
  std: "√U_tot",
};

// All but the largest 0.5%, so that one point does not darken the rest.
const topOf = (values) => {
  const sorted = values.filter(Number.isFinite).sort();
  return sorted.length ? sorted[Math.floor(0.995 * (sorted.length - 1))] || 1 : 1;
};

const rangesOf = (entry, fields) => {
  const own = (values) => values.filter((_, i) => Math.floor(i / entry.points) % entry.channels === state.channel);
  const limit = own(fields.truth).reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0) || 1;
  const top = topOf(own(fields.std));
  return { truth: [-limit, limit], size: [0, top], std_mu: [0, top], std: [0, top] };
};

const paint = (canvas, entry, values, [low, high], palette) => {
  const [times, points] = [entry.steps.length, entry.points];
  canvas.width = times;
  canvas.height = points;
  const image = new ImageData(times, points);
  for (let t = 0; t < times; t++) {
    for (let p = 0; p < points; p++) {
      const value = values[place(entry, t, p)];
      const pixel = 4 * ((points - 1 - p) * times + t);
      const color = 3 * Math.min(255, Math.max(0, Math.floor((255.999 * (value - low)) / (high - low))));
      for (let c = 0; c < 3; c++) image.data[pixel + c] = Number.isFinite(value) ? palette[color + c] : 128;
      image.data[pixel + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
};

const gradient = (palette) => {
  const color = (share) => palette.slice(3 * Math.round(255 * share), 3 * Math.round(255 * share) + 3).join(" ");
  const stops = Array.from({ length: 17 }, (_, i) => `rgb(${color(i / 16)})`);
  return `linear-gradient(to right, ${stops.join(", ")})`;
};

const buildMaps = () => {
  for (const [name, title, palette] of MAPS) {
    const canvas = make("canvas", { role: "img", "data-map": name });
    const now = make("div", { class: "now" });
    const region = make("div", { class: "region", hidden: "" });
    const bar = make("i");
    bar.style.background = gradient(colors[palette]);
    const box = make("div", { class: "map", id: `map-${name}` },
      make("h4", {}, title),
      make("div", { class: "frame" }, make("span", { class: "up" }, "grid point"), canvas, now, region),
      make("div", { class: "along" }, make("span"), make("span", {}, "time step"), make("span")),
      make("div", { class: "bar" }, make("span"), bar, make("span")));
    const under = (event) => {
      const [entry, bounds] = [entryNow(), canvas.getBoundingClientRect()];
      const inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
      return [
        inside((event.clientX - bounds.left) / bounds.width, entry.steps.length),
        entry.points - 1 - inside((event.clientY - bounds.top) / bounds.height, entry.points),
      ];
    };
    canvas.addEventListener("pointermove", (event) => sayPoint(...under(event)));
    canvas.addEventListener("click", (event) => {
      state.time = under(event)[0];
      drawTime();
      sayPoint(...under(event));  // a tap moves no pointer
    });
    at("maps").append(box);
  }
};

const sayPoint = (time, point) => {
  const entry = entryNow();
  const fields = fieldsOf(entry, state.trajectory);
  const index = place(entry, time, point);
  const values = Object.entries(QUANTITIES).map(([name, title]) => `${title} ${written(fields[name][index])}`);
  const seen = fields.observed[time * entry.points + point] ? "observed" : "hidden";
  at("map-said").textContent = `Step ${entry.steps[time]}, point ${point} (${seen} in the input): ${values.join("; ")}`;
};

const drawMaps = () => {
  const entry = entryNow();
  const fields = fieldsOf(entry, state.trajectory);
  const ranges = rangesOf(entry, fields);
  const { number } = entry.trajectories[state.trajectory];
  for (const [name, title, palette] of MAPS) {
    const box = at(`map-${name}`);
    const [low, high] = ranges[name];
    const canvas = box.querySelector("canvas");
    paint(canvas, entry, fields[name], ranges[name], colors[palette]);
    const said = `${title} of test trajectory ${number}, ${written(low)} to ${written(high)}`;
    canvas.setAttribute("aria-label", said);
    const [first, , last] = box.querySelectorAll(".along span");
    first.textContent = entry.steps[0];
    last.textContent = entry.steps[entry.steps.length - 1];
    const ends = box.querySelectorAll(".bar span");
    ends[0].textContent = written(low);
    ends[1].textContent = name === "truth" ? written(high) : `≥ ${written(high)}`;
    drawn[`map-${name}`] = { trajectory: number, range: ranges[name], values: fields[name] };
  }
};

// The place of a region in the maps, as shares of the frame.
const drawRegion = () => {
  const [entry, region] = [entryNow(), state.region];
  for (const box of document.querySelectorAll(".frame .region")) {
    box.hidden = !region;
    if (!region) continue;
    const times = entry.steps.length;
    const first = entry.steps.findIndex((step) => step >= region.steps[0]);
    const last = entry.steps.findLastIndex((step) => step <= region.steps[1]);
    const [low, high] = region.points[0];
    box.style.left = `${(100 * first) / times}%`;
    box.style.width = `${(100 * (last + 1 - first)) / times}%`;
    box.style.bottom = `${(100 * low) / entry.points}%`;
    box.style.height = `${(100 * (high + 1 - low)) / entry.points}%`;
  }
};

// Offset of a quantile from the mean in standard deviations, between the stored ones.
const offsetAt = (fields, index, score) => {
  const { scores, offset_steps: steps } = constants;
  const size = fields.truth.length;
  let k = 0;
  while (k < scores.length - 2 && scores[k + 1] < score) k++;
  const share = (score - scores[k]) / (scores[k + 1] - scores[k]);
  return ((1 - share) * fields.offsets[k * size + index] + share * fields.offsets[(k + 1) * size + index]) / steps;
};

const drawTime = () => {
  const entry = entryNow();
  const fields = fieldsOf(entry, state.trajectory);
  at("time").value = state.time;
  at("time-said").textContent = entry.steps[state.time];
  const level = Number(at("level").value);
  at("level-said").textContent = `${level}%`;
  const share = (100 * (state.time + 0.5)) / entry.steps.length;
  for (const now of document.querySelectorAll(".frame .now")) now.style.left = `${share}%`;
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
    title: `Step ${entry.steps[state.time]} of test trajectory ${entry.trajectories[state.trajectory].number}`,
    x: "grid point", y: "field", height: 300, xRange: [0, entry.points - 1], ticksBelow: hidden,
    series: [
      band(side(-1), side(1), "total", "var(--total)"),
      band(predictive(-1), predictive(1), "predictive", "var(--predictive)"),
      { label: "mean", x: points, y: of(fields.mean), color: "var(--mean)" },
      { label: "truth", x: points, y: of(fields.truth), color: "var(--text)", dash: "2 3", width: 1.8 },
    ],
  });
};
