// Line charts, histograms and marks as SVG. What a chart draws is kept in `drawn`, by the chart's name.
const report = JSON.parse(document.getElementById("report").textContent);
const drawn = {};
window.report = { drawn };
const STYLES = 6;
const DASHES = ["", "6 3", "2 3"];
// What a reader has switched on or off, by the chart's name and the key of a series: it outlives every redrawing.
const switched = {};
const keyOf = (series) => series.key || series.label;
const isOff = (name, series) => {
  const chosen = switched[name] || (switched[name] = new Map());
  return chosen.has(keyOf(series)) ? chosen.get(keyOf(series)) : Boolean(series.hidden);
};

const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const shape = (name, attributes = {}, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
};

// Numbers as people write them; what is none is a dash.
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const written = (value, digits = 3) => {
  if (!isNumber(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en").replace("-", "−");
  const size = Math.abs(value);
  const isFar = size !== 0 && (size < 1e-3 || size >= 1e5);
  const text = isFar ? value.toExponential(digits - 1) : Number(value.toPrecision(digits));
  return String(text).replace(/-/g, "−");
};

const ticks = (low, high, count) => {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
};
// Places of marks on a logarithmic axis: 1, 2 and 5 of each decade where there are few decades.
const decades = (low, high) => {
  const every = Math.max(1, Math.ceil((high - low) / 6));
  const found = [];
  for (let k = Math.floor(low); k <= high; k += every) {
    for (const n of high - low < 2.2 ? [1, 2, 5] : [1]) found.push(k + Math.log10(n));
  }
  const inside = found.filter((k) => k >= low && k <= high);
  return inside.length > 1 ? inside : ticks(low, high, 3);
};

// The range of values and their intervals. Where `cut` asks for it, a few that are far off are left outside; the largest
// of each curve is told by an arrow.
const rangeOf = (values, options) => {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  if (!sorted.length) return [0, 1];
  let [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const upper = sorted[Math.floor(0.9 * (sorted.length - 1))];
  const isCut = options.cut && sorted.length > 4 && upper > low && high - low > 4 * (upper - low);
  if (isCut) high = upper + 0.5 * (upper - low);
  if (options.floor !== undefined) low = options.floor;
  if (high === low) [low, high] = [low - 0.5 * (Math.abs(low) || 1), high + 0.5 * (Math.abs(high) || 1)];
  const margin = 0.05 * (high - low);
  return [low === options.floor ? low : low - margin, high + margin];
};

const sample = (series) => {
  const svg = shape("svg", { viewBox: "0 0 26 11", "aria-hidden": "true" });
  const { color, dash = "", kind, marks } = series;
  const line = { x1: 0, x2: 26, y1: 5.5, y2: 5.5, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash };
  if (series.band) svg.append(shape("rect", { x: 0, y: 1, width: 26, height: 9, fill: color }));
  else if (kind !== "dots") svg.append(shape("line", line));
  if (kind === "dots" || marks) svg.append(shape("circle", { cx: 13, cy: 5.5, r: 3, fill: color }));
  return svg;
};

// All values that a curve reaches, the ends of its intervals and bands too.
const endsOf = ({ y, half = [], low = [], high = [] }) =>
  y.flatMap((v, i) => [v, low[i], high[i], v + (half[i] || 0), v - (half[i] || 0)]);

// The places of a chart: from values to points of the picture.
const axesOf = (options, series, width, height) => {
  const box = { left: 58, right: width - 12, top: 10, bottom: height - 44 };
  const scale = (v) => (options.log ? Math.log10(v) : v);
  const known = (v) => isNumber(v) && (!options.log || v > 0);
  const [low, high] = options.yRange || rangeOf(series.flatMap(endsOf).filter(known).map(scale), options);
  const [first, last] = options.xRange || rangeOf(series.flatMap((s) => s.x), {});
  const px = (x) => box.left + ((x - first) / (last - first)) * (box.right - box.left);
  const across = (y) => box.bottom - ((y - low) / (high - low)) * (box.bottom - box.top);
  const py = (y) => across(scale(y));
  return { box, known, low, high, first, last, px, py, across, isAbove: (y) => scale(y) > high };
};

const drawAxes = (svg, options, axes, width, height) => {
  const { box, low, high, first, last, px, across } = axes;
  const text = (x, y, said, more = {}) => svg.append(shape("text", { x, y, "text-anchor": "middle", ...more }, said));
  for (const y of options.log ? decades(low, high) : ticks(low, high, 5)) {
    const at = across(y);
    svg.append(shape("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" }));
    const value = options.log ? Number((10 ** y).toPrecision(2)) : y;
    text(box.left - 6, at + 4, written(value), { "text-anchor": "end" });
  }
  const { names } = options;
  const places = names ? names.map((_, i) => i) : ticks(first, last, Math.max(3, Math.floor(width / 75)));
  // Names that would run into each other stand in two rows.
  const crowded = names && (box.right - box.left) / names.length < 90;
  places.forEach((x, i) => {
    text(px(x), box.bottom + 15 + (crowded && i % 2 ? 12 : 0), names ? names[x] : written(x));
  });
  const middle = (box.top + box.bottom) / 2;
  text((box.left + box.right) / 2, height - 4, options.x);
  text(13, middle, options.y, { transform: `rotate(-90 13 ${middle})` });
};

// Room for curves: what lies outside of the axes is cut off there.
let clips = 0;
const addClip = (svg, { box }) => {
  const id = `clip${clips++}`;
  const clip = shape("clipPath", { id });
  const spare = 4; // marks at the very edge stay whole
  const [width, height] = [box.right - box.left + 2 * spare, box.bottom - box.top + 2 * spare];
  clip.append(shape("rect", { x: box.left - spare, y: box.top - spare, width, height }));
  const group = shape("g", { "clip-path": `url(#${id})` });
  svg.append(clip, group);
  return group;
};

// Of each curve that leaves the chart at the top, its largest value; one row each, so that none hides another.
const drawArrows = (svg, series, { box, known, px, isAbove }) => {
  let row = 0;
  for (const s of series) {
    if (s.band) continue;
    const above = s.x.map((x, i) => [x, s.y[i]]).filter(([x, y]) => isNumber(x) && known(y) && isAbove(y));
    if (!above.length) continue;
    const [x, y] = above.reduce((most, one) => (one[1] > most[1] ? one : most));
    // Beside a curve that soon comes back, and else where it leaves.
    const back = s.x.findIndex((other, i) => other > x && known(s.y[i]) && !isAbove(s.y[i]));
    const isNear = back >= 0 && px(s.x[back]) - px(x) < 60;
    const at = isNear ? px(s.x[back]) + 12 : px(x);
    const anchor = isNear || at < box.left + 40 ? "start" : at > box.right - 40 ? "end" : "middle";
    row += 1;
    const place = { x: at, y: box.top + 12 * row, "text-anchor": anchor, class: "above", style: `fill:${s.color}` };
    svg.append(shape("text", place, `↑ ${written(y, 2)}`));
  }
};

const drawSeries = (svg, s, options, axes, aside) => {
  const { box, known, px, py } = axes;
  const joined = (points) => points.map((p) => p.join(",")).join(" ");
  const line = (points, more) => svg.append(shape("polyline", { points: joined(points), fill: "none", ...more }));
  if (s.band) {
    const side = (ends) => s.x.flatMap((x, i) => (known(ends[i]) ? [[px(x), py(ends[i])]] : []));
    svg.append(shape("polygon", { points: joined([...side(s.high), ...side(s.low).reverse()]), fill: s.color }));
    return;
  }
  const points = s.x.map((x, i) => [x, s.y[i], i]).filter(([x, y]) => isNumber(x) && known(y));
  if (options.bars) {
    const width = (px(1) - px(0)) * options.bars;
    for (const [x, y] of points) {
      const [left, top] = [px(x) - width / 2 + 0.5, py(y)];
      svg.append(shape("rect", { x: left, width: width - 1, y: top, height: box.bottom - top, fill: s.color }));
    }
    return;
  }
  if (s.kind !== "dots") {
    const look = { "stroke-width": s.width || 2, "stroke-dasharray": s.dash || "", "stroke-linejoin": "round" };
    line(points.map(([x, y]) => [px(x), py(y)]), { stroke: s.color, ...look });
  }
  for (const [x, y, i] of points) {
    const half = s.half && s.half[i];
    const ends = half ? [y - half, y + half] : [];
    if (half) line(ends.map((end) => [px(x) + aside, py(end)]), { stroke: s.color, "stroke-width": 1.5 });
    if (s.marks || s.kind === "dots" || points.length < 3) {
      const look = { r: s.radius || 3, fill: s.color, "fill-opacity": s.kind === "dots" ? 0.75 : 1 };
      svg.append(shape("circle", { cx: px(x), cy: py(y), ...look }));
    }
  }
};

// A chart in `place`. options: {name, title, note, x, y, log, floor, cut, xRange, yRange, diagonal, level, bars, names,
// series: [{label, key?, x, y, half?, low?, high?, band?, color, dash?, kind?, marks?, hidden?}]}. A label may change
// while a reader looks; the key, by default the label, does not.
const chart = (place, options) => {
  place.textContent = "";
  const caption = make("figcaption", {}, options.title);
  if (options.note) caption.append(make("small", {}, options.note));
  const figure = make("figure", { "data-chart": options.name }, caption);
  place.append(figure);
  const series = options.series.filter((s) => !isOff(options.name, s));
  drawn[options.name] = series.map(({ label, x, y, half, low, high }) => ({ label, x, y, half, low, high }));
  const [width, height] = [Math.max(260, place.clientWidth || 400), options.height || 270];
  const axes = axesOf(options, series, width, height);
  const { box, px, py } = axes;
  const said = `${options.title}: ${options.y} against ${options.x}; ${series.map((s) => s.label).join(", ")}.`;
  const named = { tabindex: 0, role: "img", "aria-label": `${said} Arrow keys read values.` };
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, ...named });
  drawAxes(svg, options, axes, width, height);
  const rule = (x1, y1, x2, y2, more) => svg.append(shape("line", { x1, y1, x2, y2, ...more }));
  const dashed = { stroke: "var(--soft)", "stroke-dasharray": "4 4" };
  if (options.diagonal) rule(px(0), py(0), px(1), py(1), dashed);
  // Intervals at one place stand beside each other.
  const inside = addClip(svg, axes);
  series.forEach((s, i) => drawSeries(inside, s, options, axes, 4 * (i - (series.length - 1) / 2)));
  drawArrows(svg, series, axes);
  if (options.level !== undefined) rule(box.left, py(options.level), box.right, py(options.level), dashed);
  for (const x of options.ticksBelow || []) {
    rule(px(x), box.bottom, px(x), box.bottom - 7, { stroke: "var(--warn)", "stroke-width": 1.5 });
  }
  figure.append(svg);
  addReading(figure, svg, options, series, axes, width);
  if (options.series.length > 1 || options.legend) addLegend(figure, options, () => chart(place, options));
};

// A cursor that follows the pointer or the arrow keys, and the values there in words.
const addReading = (figure, svg, options, series, { px, box, first, last }, width) => {
  const all = [...new Set(series.flatMap((s) => s.x))].filter((x) => x >= first && x <= last).sort((a, b) => a - b);
  const cursor = shape("line", { y1: box.top, y2: box.bottom, class: "cursor", visibility: "hidden" });
  svg.append(cursor);
  const hint = "Point at the figure, or use the arrow keys in it, for values.";
  const readout = make("p", { class: "readout", "aria-live": "polite" }, hint);
  figure.append(readout);
  let place = -1;
  const read = (index) => {
    place = Math.min(Math.max(index, 0), all.length - 1);
    if (place < 0) return;
    const x = all[place];
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", px(x));
    cursor.setAttribute("x2", px(x));
    const at = options.names ? options.names[x] : `${options.x} ${written(x)}`;
    const values = series.flatMap((s) => {
      const i = s.x.indexOf(x);
      if (i < 0) return [];
      if (s.band) return `${s.label} ${written(s.low[i])} to ${written(s.high[i])}`;
      if (s.kind === "dots") return s.x.flatMap((other, j) => (other === x ? [written(s.y[j])] : [])).join(", ");
      return `${s.label} ${written(s.y[i], 4)}${s.half && s.half[i] ? ` ± ${written(s.half[i], 2)}` : ""}`;
    });
    readout.textContent = `${at}: ${values.join("; ")}`;
  };
  const point = (event) => {
    const bounds = svg.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * width;
    const nearest = all.reduce((best, x, i) => (Math.abs(px(x) - at) < Math.abs(px(all[best]) - at) ? i : best), 0);
    read(nearest);
  };
  // A tap moves no pointer: it only puts one down.
  for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, point);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: all.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(moves[event.key]);
  });
};

const addLegend = (figure, { name, series }, redraw) => {
  const legend = make("ul", { class: "legend" });
  for (const s of series) {
    const button = make("button", { type: "button", "aria-pressed": String(!isOff(name, s)) }, sample(s), s.label);
    button.addEventListener("click", () => {
      switched[name].set(keyOf(s), !isOff(name, s));
      const index = series.indexOf(s);
      const place = figure.parentElement;
      redraw();
      place.querySelectorAll(".legend button")[index].focus();
    });
    legend.append(make("li", {}, button));
  }
  figure.append(legend);
};
const colorOf = (index) => `var(--c${index % STYLES})`;
