// Test trajectories as maps: a line of the field over time, and whole 2-D fields ("planes") at a few time steps.
const report = JSON.parse(at("report").textContent);
window.report = { drawn };
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const constants = report.constants;
const colors = Object.fromEntries(Object.entries(constants.colors).map(([name, text]) => [name, bytes(text)]));

const MISSING = -32768;
const STORED = ["truth", "error", "std_mu", "std_predictive", "std_generalization"];
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

// What the reader looks at. A piece is a stored trajectory, or a window of one.
const state = { entry: 0, trajectory: 0, channel: 0, time: 0, point: 0, plane: 0, region: null };
const entryNow = () => report.entries[state.entry];
const pieceNow = () => entryNow().trajectories[state.trajectory];
const stepName = () => (entryNow().forecast ? "Lead" : "Step");
const planesNow = () => entryNow().planes.find(({ number }) => number === pieceNow().number);
const clamp = (value, count) => Math.min(count - 1, Math.max(0, value));

// Arrays run over steps, channels and `size` points. Each channel has its own unit, and that of a field an origin too.
const numbers = ({ tops, origins, data }, size) => {
  const stored = new DataView(bytes(data).buffer);
  return Float32Array.from({ length: stored.byteLength / 2 }, (_, i) => {
    const value = stored.getInt16(2 * i, true);
    const channel = Math.floor(i / size) % tops.length;
    return value === MISSING ? NaN : (value * tops[channel]) / 32767 + (origins ? origins[channel] : 0);
  });
};

// The arrays of a piece or of planes, decoded when they are first shown. Where the truth is unknown, the mean has an
// array of its own.
const decoded = new Map();
const decode = (stored, size) => {
  if (decoded.has(stored)) return decoded.get(stored);
  const fields = Object.fromEntries(STORED.map((name) => [name, numbers(stored[name], size)]));
  const gaps = stored.gap_mean && numbers(stored.gap_mean, size);
  fields.mean = fields.truth.map((value, i) => (gaps && Number.isNaN(value) ? gaps[i] : value + fields.error[i]));
  fields.size = fields.error.map(Math.abs);
  fields.std = fields.std_predictive.map((value, i) => Math.hypot(value, fields.std_generalization[i]));
  fields.observed = bytes(stored.observed);
  if (stored.offsets) fields.offsets = new Int8Array(bytes(stored.offsets).buffer);
  decoded.set(stored, fields);
  return fields;
};
const fieldsNow = () => decode(pieceNow(), entryNow().points);
const planeFields = () => decode(planesNow(), planesNow().sides[0] * planesNow().sides[1]);

// The index of a point of the chosen channel in arrays of `size` points.
const place = (step, point, size) => (step * entryNow().channels + state.channel) * size + point;
const isOfChannel = (i, size) => Math.floor(i / size) % entryNow().channels === state.channel;
const ofChannel = (values, size) => values.filter((_, i) => isOfChannel(i, size));

// The largest value but for the top 0.5%, so that one point does not darken the rest.
const topOf = (values) => {
  const sorted = values.filter(Number.isFinite).sort();
  return sorted.length ? sorted[Math.floor(0.995 * (sorted.length - 1))] : 0;
};
const extentOf = (values) => values.filter(Number.isFinite).reduce(
  ([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

// Symmetric about 0, or, for a field that keeps to one side of 0 (a pressure, a density), from end to end.
const truthRange = (values) => {
  const [low, high] = extentOf(values);
  if (low < high && low * high > 0) return [low, high];
  const limit = high < low ? 1 : Math.max(-low, high) || 1;
  return [-limit, limit];
};

// The range of each map. Errors and standard deviations share one, which holds 99.5% of either.
const rangesOf = (fields, size) => {
  const top = Math.max(topOf(ofChannel(fields.size, size)), topOf(ofChannel(fields.std, size))) || 1;
  const truth = truthRange(ofChannel(fields.truth, size));
  return { truth, mean: truth, size: [0, top], std_mu: [0, top], std: [0, top] };
};

// Colours a canvas of `across` columns and `up` rows, counted from below; grey where there is no number.
const paint = (canvas, across, up, valueAt, [low, high], palette) => {
  Object.assign(canvas, { width: across, height: up });
  const image = new ImageData(across, up);
  for (let x = 0; x < across; x++) {
    for (let y = 0; y < up; y++) {
      const value = valueAt(x, y);
      const pixel = 4 * ((up - 1 - y) * across + x);
      const color = 3 * Math.min(255, Math.max(0, Math.floor((255.999 * (value - low)) / (high - low))));
      for (let c = 0; c < 3; c++) image.data[pixel + c] = Number.isFinite(value) ? palette[color + c] : 128;
      image.data[pixel + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
};

// The ends of a colour bar. Errors and standard deviations may exceed theirs.
const labelBar = (box, range, palette) => {
  const isField = palette === "RdBu_r";
  const [low, high] = range.map((value) => written(value, isField ? digitsOf(range) : 3));
  const [first, last] = box.querySelectorAll(".bar span");
  first.textContent = low;
  last.textContent = isField ? high : `≥ ${high}`;
};

// Channels are known by their names, or by their numbers.
const channelName = (entry, channel) => entry.names[channel] || String(channel);
const ofWhich = (entry) => (entry.names.length ? `, ${channelName(entry, state.channel)}` : "");

const colorBar = (palette) => {
  const color = (share) => palette.slice(3 * Math.round(255 * share), 3 * Math.round(255 * share) + 3).join(" ");
  const stops = Array.from({ length: 17 }, (_, i) => `rgb(${color(i / 16)})`);
  const bar = make("i");
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  return make("div", { class: "bar" }, make("span"), bar, make("span"));
};

// Appends a map to the element `kind`s. `around` lays out what stands between its title and its colour bar; `sides`
// returns its columns and rows; `read` and `pick` take the column and the row under the pointer.
const addMap = (kind, [name, title, palette], canvas, around, { sides, read, pick }) => {
  const under = (event) => {
    const [bounds, [across, up]] = [canvas.getBoundingClientRect(), sides()];
    const inside = (share, count) => clamp(Math.floor(share * count), count);
    const x = inside((event.clientX - bounds.left) / bounds.width, across);
    return [x, up - 1 - inside((event.clientY - bounds.top) / bounds.height, up)];
  };
  at(`${kind}s`).append(make("div", { class: kind === "map" ? "map" : `map ${kind}`, id: `${kind}-${name}` },
    make("h4", {}, title), ...around, colorBar(colors[palette])));
  canvas.addEventListener("pointermove", (event) => read(...under(event)));
  canvas.addEventListener("click", (event) => pick(...under(event))); // a tap moves no pointer
};

// Draws every map of a kind, and returns their ranges. The mean has a map only where the truth has gaps: there it is
// all that can be seen of the field.
const paintMaps = (kind, fields, size, [across, up], indexOf, label, about) => {
  const ranges = rangesOf(fields, size);
  const hasGaps = fields.truth.some((value, i) => Number.isNaN(value) && isOfChannel(i, size));
  at(`${kind}-mean`).hidden = !hasGaps;
  at(`${kind}s`).classList.toggle("five", hasGaps);
  for (const [name, title, palette] of MAPS) {
    const box = at(`${kind}-${name}`);
    const [range, values, canvas] = [ranges[name], fields[name], box.querySelector("canvas")];
    paint(canvas, across, up, (x, y) => values[indexOf(x, y)], range, colors[palette]);
    canvas.setAttribute("aria-label", label(title, `${written(range[0])} to ${written(range[1])}`));
    labelBar(box, range, palette);
    drawn[`${kind}-${name}`] = { ...about, range, values };
  }
  return ranges;
};

const buildMaps = () => {
  for (const map of MAPS) {
    const canvas = make("canvas", { role: "img", tabindex: 0, "data-map": map[0] });
    const marks = ["now", "here", "region"].map((kind) => make("div", { class: kind, ...(kind === "now" ? {} : { hidden: "" }) }));
    const frame = make("div", { class: "frame" }, canvas, ...marks);
    const around = [
      make("div", { class: "place" }, make("span", { class: "up", "aria-hidden": "true" }, "grid point"), frame),
      make("div", { class: "along" }, make("span"), make("span"), make("span")),
    ];
    const sides = () => [pieceNow().steps.length, entryNow().points];
    addMap("map", map, canvas, around, { sides, read: sayPoint, pick: goTo });
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

const buildPlanes = () => {
  for (const map of MAPS) {
    const canvas = make("canvas", { role: "img", "data-plane": map[0], "aria-label": map[1] });
    const sides = () => planesNow().sides;
    addMap("plane", map, canvas, [make("div", { class: "frame" }, canvas)], { sides, read: sayPlane, pick: sayPlane });
  }
  at("plane-step").addEventListener("change", () => {
    state.plane = Number(at("plane-step").value);
    drawPlanes();
  });
};

// Chooses a time and a point: the maps mark it, and the chart of the field reads its values.
const goTo = (time, point) => {
  state.time = clamp(time, pieceNow().steps.length);
  state.point = clamp(point, entryNow().points);
  cursors.slice = state.point;
  for (const mark of document.querySelectorAll(".frame .here")) mark.hidden = false;
  drawTime();
  sayPoint(state.time, state.point);
  keepPlace();
};

// Digits that tell the values of a range apart, however far it is from 0.
const digitsOf = ([low, high]) => Math.min(7, 3 + Math.max(0, Math.floor(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low)))));

// Every stored quantity at a point, in words.
const sayValues = (kind, step, point, isObserved, fields, index) => {
  const { range } = drawn[`${kind}-truth`];
  const values = Object.entries(QUANTITIES).map(([name, title]) => {
    const digits = name === "truth" || name === "mean" ? digitsOf(range) : 3;
    return `${title} ${written(fields[name][index], digits)}`;
  });
  at(`${kind}-said`).textContent =
    `${stepName()} ${step}, point ${point} (${isObserved ? "observed" : "hidden"} in the input): ${values.join("; ")}`;
};

const sayPoint = (time, point) => {
  const [{ points }, fields] = [entryNow(), fieldsNow()];
  sayValues("map", pieceNow().steps[time], point, fields.observed[time * points + point], fields, place(time, point, points));
};

const sayPlane = (x, y) => {
  const [{ steps, stride, sides: [nx, ny] }, fields] = [planesNow(), planeFields()];
  const isObserved = fields.observed[(state.plane * nx + x) * ny + y];
  const point = `${x * stride}, ${y * stride}`;
  sayValues("plane", steps[state.plane], point, isObserved, fields, place(state.plane, x * ny + y, nx * ny));
};

const drawMaps = () => {
  const [entry, { number, steps }] = [entryNow(), pieceNow()];
  const label = (title, range) => `${title} of test trajectory ${number}${ofWhich(entry)}, ${range}. ` +
    "Arrow keys move through time and space and read values.";
  const indexOf = (time, point) => place(time, point, entry.points);
  const ranges = paintMaps("map", fieldsNow(), entry.points, [steps.length, entry.points], indexOf, label, { trajectory: number });
  for (const along of document.querySelectorAll("#maps .along")) {
    const said = [steps[0], entry.forecast ? "lead time" : "time step", steps[steps.length - 1]];
    said.forEach((text, i) => { along.children[i].textContent = text; });
  }
  at("range-said").textContent =
    `|error|, Std_ω[μ] and √U_tot share one range, 0 to ${written(ranges.std[1])}. It holds 99.5% of the errors and of ` +
    "√U_tot; larger values have the brightest colour.";
};

const drawPlanes = () => {
  const [planes, entry, { number }] = [planesNow(), entryNow(), pieceNow()];
  at("planes-part").hidden = !entry.planes.length;
  at("planes-shown").hidden = !planes;
  at("planes-none").hidden = Boolean(planes);
  if (!entry.planes.length) return;
  at("planes-of").textContent = `test trajectory ${number}${ofWhich(entry)}`;
  at("planes-none").textContent =
    `This page holds whole fields of test trajectory ${entry.planes.map((one) => one.number).join(", ")}, not of ${number}.`;
  if (!planes) return;
  const { steps, sides: [nx, ny] } = planes;
  state.plane = clamp(state.plane, steps.length);
  if (at("plane-step").options.length !== steps.length || at("plane-step").options[0].text !== String(steps[0])) {
    choose(at("plane-step"), steps.map(String));
  }
  at("plane-step").value = state.plane;
  const step = steps[state.plane];
  const label = (title, range) => `${title} at ${stepName().toLowerCase()} ${step}, ${range}`;
  paintMaps("plane", planeFields(), nx * ny, [nx, ny], (x, y) => place(state.plane, x * ny + y, nx * ny), label, { step });
  for (const canvas of document.querySelectorAll("#planes canvas")) canvas.style.aspectRatio = `${nx} / ${ny}`;
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
