// Test trajectories: maps over space and time.
const report = JSON.parse(at("report").textContent);
window.report = { drawn };
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const constants = report.constants;
const colors = Object.fromEntries(Object.entries(constants.colors).map(([name, text]) => [name, bytes(text)]));

const MISSING = -32768;
const STORED = ["truth", "error", "std_mu", "std_predictive", "std_generalization"];
// Arrays run over steps, channels and `size` points; each channel has its own unit, and fields an origin.
const numbers = ({ tops, origins, data }, size) => {
  const stored = new DataView(bytes(data).buffer);
  return Float32Array.from({ length: stored.byteLength / 2 }, (_, i) => {
    const value = stored.getInt16(2 * i, true);
    const channel = Math.floor(i / size) % tops.length;
    return value === MISSING ? NaN : (value * tops[channel]) / 32767 + (origins ? origins[channel] : 0);
  });
};

// Where the reader is. A piece is a stored trajectory, or a window of one.
const state = { entry: 0, trajectory: 0, channel: 0, time: 0, point: 0, region: null };
const entryNow = () => report.entries[state.entry];
const pieceNow = () => entryNow().trajectories[state.trajectory];
const place = (entry, time, point) => (time * entry.channels + state.channel) * entry.points + point;

// Arrays of a piece, or of planes, with what follows from them. Where the truth is not known the mean has its own array.
const decode = (stored, size) => {
  const fields = Object.fromEntries(STORED.map((name) => [name, numbers(stored[name], size)]));
  const gaps = stored.gap_mean && numbers(stored.gap_mean, size);
  fields.mean = fields.truth.map((value, i) => (gaps && Number.isNaN(value) ? gaps[i] : value + fields.error[i]));
  fields.size = fields.error.map(Math.abs);
  fields.std = fields.std_predictive.map((value, i) => Math.hypot(value, fields.std_generalization[i]));
  fields.observed = bytes(stored.observed);
  return fields;
};

// A piece is decoded when it is first looked at.
const decoded = new Map();
const fieldsNow = () => {
  const stored = pieceNow();
  if (!decoded.has(stored)) {
    const fields = decode(stored, entryNow().points);
    fields.offsets = new Int8Array(bytes(stored.offsets).buffer);
    decoded.set(stored, fields);
  }
  return decoded.get(stored);
};

const MAPS = [
  ["truth", "Truth", "RdBu_r"],
  ["mean", "Mean", "RdBu_r"],
  ["size", "|error|", "viridis"],
  ["std_mu", "Std_ω[μ]", "viridis"],
  ["std", "√U_tot, total", "viridis"],
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
  return sorted.length ? sorted[Math.floor(0.995 * (sorted.length - 1))] : 0;
};
const ofChannel = (entry, values) =>
  values.filter((_, i) => Math.floor(i / entry.points) % entry.channels === state.channel);

// Even on both sides of 0, or, of fields that keep to one side of it (a pressure, a density), from end to end.
const truthRange = (values) => {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  if (low < high && low * high > 0) return [low, high];
  const limit = high < low ? 1 : Math.max(-low, high) || 1;
  return [-limit, limit];
};

// Errors and standard deviations share one range, which holds all but the largest 0.5% of either.
const rangesOf = (entry, fields) => {
  const top = Math.max(topOf(ofChannel(entry, fields.size)), topOf(ofChannel(entry, fields.std))) || 1;
  const truth = truthRange(ofChannel(entry, fields.truth));
  return { truth, mean: truth, size: [0, top], std_mu: [0, top], std: [0, top] };
};

const paint = (canvas, entry, times, values, [low, high], palette) => {
  const { points } = entry;
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

// The mean is drawn where the truth has gaps: there it is all that can be seen of the field.
const hasGaps = (fields, isOwn) => fields.truth.some((value, i) => Number.isNaN(value) && isOwn(i));
const showMean = (box, kind, isShown) => {
  at(`${kind}-mean`).hidden = !isShown;
  box.classList.toggle("five", isShown);
};

// The ends of a colour bar. Errors and standard deviations may be larger than theirs.
const sayEnds = (box, range, palette) => {
  const isField = palette === "RdBu_r";
  const [low, high] = range.map((value) => written(value, isField ? digitsOf(range) : 3));
  const [first, last] = box.querySelectorAll(".bar span");
  first.textContent = low;
  last.textContent = isField ? high : `≥ ${high}`;
};

// A channel by its name, or by its number.
const channelName = (entry, channel) => entry.names[channel] || String(channel);
const ofWhich = (entry) => (entry.names.length ? `, ${channelName(entry, state.channel)}` : "");

const gradient = (palette) => {
  const color = (share) => palette.slice(3 * Math.round(255 * share), 3 * Math.round(255 * share) + 3).join(" ");
  const stops = Array.from({ length: 17 }, (_, i) => `rgb(${color(i / 16)})`);
  return `linear-gradient(to right, ${stops.join(", ")})`;
};

const clamp = (value, count) => Math.min(count - 1, Math.max(0, value));

const buildMaps = () => {
  for (const [name, title, palette] of MAPS) {
    const canvas = make("canvas", { role: "img", tabindex: 0, "data-map": name });
    const marks = ["now", "here", "region"].map((kind) => make("div", { class: kind, ...(kind === "now" ? {} : { hidden: "" }) }));
    const bar = make("i");
    bar.style.background = gradient(colors[palette]);
    const frame = make("div", { class: "frame" }, canvas, ...marks);
    at("maps").append(make("div", { class: "map", id: `map-${name}` },
      make("h4", {}, title),
      make("div", { class: "place" }, make("span", { class: "up", "aria-hidden": "true" }, "grid point"), frame),
      make("div", { class: "along" }, make("span"), make("span", {}, "time step"), make("span")),
      make("div", { class: "bar" }, make("span"), bar, make("span"))));
    const under = (event) => {
      const [entry, bounds, times] = [entryNow(), canvas.getBoundingClientRect(), pieceNow().steps.length];
      const inside = (share, count) => clamp(Math.floor(share * count), count);
      return [
        inside((event.clientX - bounds.left) / bounds.width, times),
        entry.points - 1 - inside((event.clientY - bounds.top) / bounds.height, entry.points),
      ];
    };
    canvas.addEventListener("pointermove", (event) => sayPoint(...under(event)));
    canvas.addEventListener("click", (event) => goTo(...under(event))); // a tap moves no pointer
    canvas.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 10 : 1;
      const moves = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] };
      const [later, up] = moves[event.key] || [0, 0];
      if (!(later || up) && event.key !== "Enter") return;
      event.preventDefault();
      goTo(state.time + later, state.point + up);
    });
  }
};

// Chooses a time and a point: the maps mark it, and the field at that time shows its values.
const goTo = (time, point) => {
  const entry = entryNow();
  state.time = clamp(time, pieceNow().steps.length);
  state.point = clamp(point, entry.points);
  cursors.slice = state.point;
  for (const mark of document.querySelectorAll(".frame .here")) mark.hidden = false;
  drawTime();
  sayPoint(state.time, state.point);
  keepPlace();
};

// Digits that tell the values of a range apart, however far it is from 0.
const digitsOf = ([low, high]) => Math.min(7, 3 + Math.max(0, Math.floor(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low)))));

// All that is known of a point, in words.
const saidAt = (fields, index, range) => Object.entries(QUANTITIES).map(([name, title]) => {
  const digits = name === "truth" || name === "mean" ? digitsOf(range) : 3;
  return `${title} ${written(fields[name][index], digits)}`;
}).join("; ");

const sayPoint = (time, point) => {
  const [entry, fields] = [entryNow(), fieldsNow()];
  const values = saidAt(fields, place(entry, time, point), drawn["map-truth"].range);
  const seen = fields.observed[time * entry.points + point] ? "observed" : "hidden";
  at("map-said").textContent =
    `Step ${pieceNow().steps[time]}, point ${point} (${seen} in the input): ${values}`;
};

const drawMaps = () => {
  const [entry, fields, { number, steps }] = [entryNow(), fieldsNow(), pieceNow()];
  const ranges = rangesOf(entry, fields);
  showMean(at("maps"), "map", hasGaps(fields, (i) => Math.floor(i / entry.points) % entry.channels === state.channel));
  for (const [name, title, palette] of MAPS) {
    const box = at(`map-${name}`);
    const [low, high] = ranges[name];
    const canvas = box.querySelector("canvas");
    paint(canvas, entry, steps.length, fields[name], ranges[name], colors[palette]);
    const said = `${title} of test trajectory ${number}${ofWhich(entry)}, ${written(low)} to ${written(high)}`;
    canvas.setAttribute("aria-label", `${said}. Arrow keys move through time and space and read values.`);
    const [first, , last] = box.querySelectorAll(".along span");
    first.textContent = steps[0];
    last.textContent = steps[steps.length - 1];
    sayEnds(box, ranges[name], palette);
    drawn[`map-${name}`] = { trajectory: number, range: ranges[name], values: fields[name] };
  }
  at("range-said").textContent =
    `|error|, Std_ω[μ] and √U_tot share one range, 0 to ${written(ranges.std[1])}: it holds 99.5% of the errors and of ` +
    "√U_tot, and what is larger has the brightest colour.";
};

// The place of a region in the maps, as shares of the frame.
const drawRegion = () => {
  const [entry, region, { steps }] = [entryNow(), state.region, pieceNow()];
  for (const box of document.querySelectorAll(".frame .region")) {
    box.hidden = !region;
    if (!region) continue;
    const first = steps.findIndex((step) => step >= region.steps[0]);
    const last = steps.findLastIndex((step) => step <= region.steps[1]);
    const [low, high] = region.points[0];
    box.style.left = `${(100 * first) / steps.length}%`;
    box.style.width = `${(100 * (last + 1 - first)) / steps.length}%`;
    box.style.bottom = `${(100 * low) / entry.points}%`;
    box.style.height = `${(100 * (high + 1 - low)) / entry.points}%`;
  }
};
