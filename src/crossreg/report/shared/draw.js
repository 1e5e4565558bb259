// Elements, numbers as people write them, ranges and ticks of axes, and how methods look.
const at = (id) => document.getElementById(id);
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

// Fills a table with a row of heads and with rows. A cell is text or an element, or a pair of these and a class.
const fillTable = (table, heads, rows) => {
  const row = (cells, name, attributes = {}) => make("tr", {}, ...cells.map((cell) => {
    const [content, style] = Array.isArray(cell) ? cell : [cell, ""];
    return make(name, { ...attributes, ...(style ? { class: style } : {}) }, content);
  }));
  const body = make("tbody", {}, ...rows.map((cells) => row(cells, "td")));
  table.replaceChildren(make("thead", {}, row(heads, "th", { scope: "col" })), body);
  return table;
};

// Charts are drawn for the width they have: calls `draw` once the window has another.
const onResize = (draw) => {
  let [width, waiting] = [innerWidth, 0];
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  });
};

// Whatever is not a number is written as a dash.
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const written = (value, digits = 3) => {
  if (!isNumber(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en").replace("-", "−");
  const size = Math.abs(value);
  const isFar = size !== 0 && (size < 1e-3 || size >= 10 ** Math.max(5, digits));
  const text = isFar ? value.toExponential(digits - 1) : Number(value.toPrecision(digits));
  return String(text).replace(/-/g, "−");
};

const fixed = (value, digits) => (isNumber(value) ? value.toFixed(digits).replace("-", "−") : "–");

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
// Ticks of a logarithmic axis: 1, 2 and 5 of each decade where there are few decades.
const decades = (low, high) => {
  const every = Math.max(1, Math.ceil((high - low) / 6));
  const found = [];
  for (let k = Math.floor(low); k <= high; k += every) {
    for (const n of high - low < 2.2 ? [1, 2, 5] : [1]) found.push(k + Math.log10(n));
  }
  const inside = found.filter((k) => k >= low && k <= high);
  return inside.length > 1 ? inside : ticks(low, high, 3);
};

// The range of values and their intervals. With `cut`, a few outliers are left outside; an arrow marks the largest of
// each curve. `least` is the smallest width.
const rangeOf = (values, { cut, floor, least = 0 }) => {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  if (!sorted.length) return [0, 1];
  let [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const upper = sorted[Math.floor(0.9 * (sorted.length - 1))];
  const isCut = cut && sorted.length > 4 && upper > low && high - low > 4 * (upper - low);
  if (isCut) high = upper + 0.5 * (upper - low);
  if (floor !== undefined) low = floor;
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  if (high === low) [low, high] = [low - 0.5 * (Math.abs(low) || 1), high + 0.5 * (Math.abs(high) || 1)];
  const margin = 0.05 * (high - low);
  return [low === floor ? low : low - margin, high + margin];
};

// A look is a place in the palette, that of the method's family, and the number of methods before it with that place.
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "9 2 2 2 2 2"];
const colorOf = (place) => `var(--c${place % 6})`;
const mixed = (first, second, share) => `color-mix(in oklab, ${first} ${Math.round(100 * (1 - share))}%, ${second})`;
// Shades of one colour, for charts whose dashes mean something else.
const shadeOf = ([place, number]) => (number ? mixed(colorOf(place), "var(--text)", 0.3 * (((number - 1) % 3) + 1)) : colorOf(place));
const lookOf = ([place, number]) => ({
  color: shadeOf([place, Math.floor(number / DASHES.length)]),
  dash: DASHES[number % DASHES.length],
});
// Colours of noise sites, in order from the input to the output.
const siteColor = (index, count) => {
  const share = count > 1 ? (2 * index) / (count - 1) : 0;
  if (share <= 1) return mixed("var(--site-first)", "var(--site-middle)", share);
  return mixed("var(--site-middle)", "var(--site-last)", share - 1);
};
const siteSeries = ({ step, sigma }) => Object.entries(sigma).map(([site, y], i, all) => (
  { label: site, x: step, y, color: siteColor(i, all.length) }));
// The looks of splits, as in the figures.
const SPLITS = {
  test: { color: colorOf(0), dash: "" },
  reg: { color: colorOf(1), dash: "6 3" },
  train: { color: "var(--soft)", dash: "2 3" },
};

const sample = (series) => {
  const svg = shape("svg", { viewBox: "0 0 26 11", "aria-hidden": "true", class: "sample" });
  const { color, dash = "", kind, marks } = series;
  const line = { x1: 0, x2: 26, y1: 5.5, y2: 5.5, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash };
  if (series.band) svg.append(shape("rect", { x: 0, y: 1, width: 26, height: 9, fill: color }));
  else if (kind !== "dots") svg.append(shape("line", line));
  if (kind === "dots" || marks) svg.append(shape("circle", { cx: 13, cy: 5.5, r: 3, fill: color }));
  return svg;
};
