// Line charts, histograms and dots as SVG. `drawn` holds what each chart shows, by the chart's name.
const drawn = {};
// The curves that a reader has switched on or off, by the chart's name and the key of a series, and where values are
// read: both outlive every redrawing.
const switched = {};
const cursors = {};
const keyOf = (series) => series.key || series.label;
const isOff = (name, series) => {
  const chosen = switched[name] || (switched[name] = new Map());
  return chosen.get(keyOf(series)) ?? Boolean(series.hidden);
};

// All values that a curve reaches, including the ends of its intervals and bands.
const endsOf = ({ y, half = [], low = [], high = [] }) =>
  y.flatMap((v, i) => [v, low[i], high[i], v + (half[i] || 0), v - (half[i] || 0)]);

// The axes of a chart, and the maps from values to points of the picture.
const axesOf = (options, series, width, height) => {
  const scale = (v) => (options.log ? Math.log10(v) : v);
  const known = (v) => isNumber(v) && (!options.log || v > 0);
  const [low, high] = options.yRange || rangeOf(series.flatMap(endsOf).filter(known).map(scale), options);
  // Leave room for the longest number beside the axis.
  const longest = options.log ? 0 : Math.max(...ticks(low, high, 5).map((y) => written(y).length));
  const box = { left: Math.max(58, 24 + 7 * longest), right: width - 12, top: 10, bottom: height - 44 };
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

// A group for curves, clipped at the axes.
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

// Writes the largest value of each curve that leaves the chart at the top, in a row of its own so that none hides another.
const drawArrows = (svg, series, { box, known, px, isAbove }) => {
  let row = 0;
  for (const s of series) {
    if (s.band) continue;
    const above = s.x.map((x, i) => [x, s.y[i]]).filter(([x, y]) => isNumber(x) && known(y) && isAbove(y));
    if (!above.length) continue;
    const [x, y] = above.reduce((most, one) => (one[1] > most[1] ? one : most));
    // Beside a curve that soon comes back; otherwise where it leaves.
    const back = s.x.findIndex((other, i) => other > x && known(s.y[i]) && !isAbove(s.y[i]));
    const isNear = back >= 0 && px(s.x[back]) - px(x) < 60;
    const at = isNear ? px(s.x[back]) + 12 : px(x);
    const anchor = isNear || at < box.left + 40 ? "start" : at > box.right - 40 ? "end" : "middle";
    row += 1;
    const place = { x: at, y: box.top + 12 * row, "text-anchor": anchor, class: "above", style: `fill:${s.color}` };
    svg.append(shape("text", place, `↑ ${written(y, 2)}`));
  }
};

// Points [x, y, place] whose places follow each other, as lists.
const runsOf = (points) => {
  const runs = [];
  points.forEach((point, k) => {
    if (k && point[2] === points[k - 1][2] + 1) runs[runs.length - 1].push(point);
    else runs.push([point]);
  });
  return runs;
};

const drawSeries = (svg, s, options, axes, aside) => {
  const { box, known, px, py } = axes;
  const joined = (points) => points.map((p) => p.join(",")).join(" ");
  const line = (points, more) => svg.append(shape("polyline", { points: joined(points), fill: "none", ...more }));
  const area = (points, more) => {
    const side = (ends) => points.filter(([, , i]) => known(ends[i])).map(([x, , i]) => [px(x), py(ends[i])]);
    svg.append(shape("polygon", { points: joined([...side(s.high), ...side(s.low).reverse()]), fill: s.color, ...more }));
  };
  const every = s.x.map((x, i) => [x, s.y[i], i]);
  if (s.band) {
    area(every);
    return;
  }
  const points = every.filter(([x, y]) => isNumber(x) && known(y));
  if (s.low && points.some(([, , i]) => s.high[i] > s.low[i])) area(points, { "fill-opacity": 0.15 });
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
    for (const part of s.broken ? runsOf(points) : [points]) {
      line(part.map(([x, y]) => [px(x), py(y)]), { stroke: s.color, ...look });
      if (s.broken && part.length === 1) svg.append(shape("circle", { cx: px(part[0][0]), cy: py(part[0][1]), r: 1.5, fill: s.color }));
    }
  }
  for (const [x, y, i] of points) {
    const half = s.half && s.half[i];
    const ends = half ? [y - half, y + half] : [];
    if (half) line(ends.map((end) => [px(x) + aside, py(end)]), { stroke: s.color, "stroke-width": 1.5 });
    if (s.marks || s.kind === "dots" || points.length < 12) {
      const look = { r: s.radius || 3, fill: s.color, "fill-opacity": s.kind === "dots" ? 0.75 : 1 };
      svg.append(shape("circle", { cx: px(x), cy: py(y), ...look }));
    }
  }
};

// Draws a chart in `place`. options: {name, title, note, x, y, log, floor, cut, least, xRange, yRange, diagonal, level, bars,
// names, legend, series: [{label, key?, x, y, half?, low?, high?, band?, color, dash?, kind?, marks?, broken?, hidden?}]}.
// A label may change from one drawing to the next; the key, by default the label, does not. A broken line stops where
// values are missing.
const chart = (place, options) => {
  const caption = make("figcaption", {}, options.title);
  if (options.note) caption.append(make("small", {}, options.note));
  const figure = make("figure", { "data-chart": options.name }, caption);
  // A chart that is redrawn while someone reads it keeps its cursor.
  const [before, isRead] = [cursors[options.name], document.activeElement === place.querySelector("svg[role=img]")];
  place.replaceChildren(figure);
  if (before !== undefined) cursors[options.name] = before;
  const series = options.series.filter((s) => !isOff(options.name, s));
  drawn[options.name] = series.map(({ label, x, y, half, low, high }) => ({ label, x, y, half, low, high }));
  const [width, height] = [Math.max(230, place.clientWidth || 400), options.height || 270];
  const axes = axesOf(options, series, width, height);
  const { box, px, py } = axes;
  const said = `${options.title}: ${options.y} against ${options.x}; ${series.map((s) => s.label).join(", ")}.`;
  const named = { tabindex: 0, role: "img", "aria-label": `${said} Arrow keys read values.` };
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, ...named });
  drawAxes(svg, options, axes, width, height);
  const rule = (x1, y1, x2, y2, more) => svg.append(shape("line", { x1, y1, x2, y2, ...more }));
  const dashed = { stroke: "var(--soft)", "stroke-dasharray": "4 4" };
  if (options.diagonal) rule(px(0), py(0), px(1), py(1), dashed);
  // Intervals at the same place are drawn side by side.
  const inside = addClip(svg, axes);
  series.forEach((s, i) => drawSeries(inside, s, options, axes, 4 * (i - (series.length - 1) / 2)));
  drawArrows(svg, series, axes);
  if (options.level !== undefined) rule(box.left, py(options.level), box.right, py(options.level), dashed);
  for (const x of options.ticksBelow || []) {
    rule(px(x), box.bottom, px(x), box.bottom - 7, { stroke: "var(--warn)", "stroke-width": 1.5 });
  }
  figure.append(svg);
  addReading(figure, svg, options, series, axes, width);
  if (isRead) svg.focus({ preventScroll: true });
  if (options.series.length > 1 || options.legend) addLegend(figure, options, () => chart(place, options));
};

// The values of every curve at a place, as pairs of a series and text.
const valuesAt = (series, x) => series.flatMap((s) => {
  const i = s.x.indexOf(x);
  if (i < 0) return [];
  if (s.band) return [[s, `${written(s.low[i])} to ${written(s.high[i])}`]];
  if (s.kind === "dots") return [[s, s.x.flatMap((other, j) => (other === x ? [written(s.y[j])] : [])).join(", ")]];
  const spread = s.low && s.high[i] > s.low[i] ? ` (${written(s.low[i])} to ${written(s.high[i])})` : "";
  return [[s, `${written(s.y[i], 4)}${s.half && s.half[i] ? ` ± ${written(s.half[i], 2)}` : spread}`]];
});

// A cursor that follows the pointer or the arrow keys, with the values there: beside it, and as text for screen readers.
const addReading = (figure, svg, options, series, { px, box, first, last }, width) => {
  const all = [...new Set(series.flatMap((s) => s.x))].filter((x) => x >= first && x <= last).sort((a, b) => a - b);
  const cursor = shape("line", { y1: box.top, y2: box.bottom, class: "cursor", visibility: "hidden" });
  svg.append(cursor);
  const readout = make("p", { class: "readout unseen", "aria-live": "polite" });
  const tip = make("div", { class: "tip", "aria-hidden": "true", hidden: "" });
  figure.append(readout, tip);
  let place = -1;
  const read = (index) => {
    place = Math.min(Math.max(index, 0), all.length - 1);
    if (place < 0) return;
    const x = all[place];
    cursors[options.name] = x;
    cursor.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, px(x));
    const title = options.names ? options.names[x] : `${options.x} ${written(x)}`;
    const values = valuesAt(series, x);
    const plain = values.map(([s, text]) => (s.kind === "dots" ? text : `${s.label} ${text}`));
    readout.textContent = `${title}: ${plain.join("; ")}`;
    tip.replaceChildren(make("b", {}, title), ...values.map(([s, text]) => make("span", {},
      sample(s), make("span", {}, s.label), make("span", { class: "value" }, text))));
    tip.hidden = false;
    // Beside the cursor where there is room, and always inside the figure.
    const [room, wide] = [figure.clientWidth, tip.offsetWidth];
    const across = (px(x) / width) * room;
    const beside = across < room / 2 ? across + 12 : across - 12 - wide;
    tip.style.left = `${Math.max(0, Math.min(beside, room - wide))}px`;
    // Below the curves where it would hide them, as on a phone.
    const [above, drawing] = [figure.getBoundingClientRect().top, svg.getBoundingClientRect()];
    tip.style.top = `${(wide > room / 2 - 12 ? drawing.bottom : drawing.top + box.top + 4) - above}px`;
  };
  const hide = () => {
    delete cursors[options.name];
    cursor.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const point = (event) => {
    const bounds = svg.getBoundingClientRect();
    const x = ((event.clientX - bounds.left) / bounds.width) * width;
    read(all.reduce((best, one, i) => (Math.abs(px(one) - x) < Math.abs(px(all[best]) - x) ? i : best), 0));
  };
  // A tap moves no pointer; it only puts one down.
  for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, point);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: all.length - 1 };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(moves[event.key]);
  });
  if (options.name in cursors) {
    const index = all.indexOf(cursors[options.name]);
    read(index < 0 ? all.length - 1 : index);
  }
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
