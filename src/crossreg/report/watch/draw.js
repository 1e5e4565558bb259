// Small line charts as SVG: axes with round numbers, curves with bands, a key below.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "dash", "dots", "long"];

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function looks(index) {
  return `k${index % 6} ${DASHES[Math.floor(index / 6) % DASHES.length]}`;
}

function sample(style) {
  const svg = shape("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" });
  svg.append(shape("line", { x1: 1, y1: 5, x2: 29, y2: 5, class: `curve ${style}` }));
  return svg;
}

function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step + 0);
  return found;
}

// Logarithms of 1, 2, 5, 10, … where few decades are shown, of powers of ten otherwise.
function decades(low, high) {
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const factor of high - low < 1.7 ? [1, 2, 5] : [1]) found.push(power + Math.log10(factor));
  }
  return found.filter((value) => value >= low && value <= high);
}

function written(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? Number(value.toPrecision(3)).toExponential() : Number(value.toPrecision(4));
  return String(text).replace("e+", "e").replaceAll("-", "−");
}

// A few losses of the first steps would press all others flat: the range holds what comes after them.
function range(values, floor, least = 0) {
  const sorted = [...values].sort((a, b) => a - b);
  let low = sorted[0];
  let high = sorted[sorted.length - 1];
  const upper = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.97))];
  if (sorted.length > 20 && high - low > 3 * (upper - low)) high = upper;
  if (floor !== undefined) low = Math.min(low, floor);
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  if (high === low) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  const margin = 0.04 * (high - low);
  return [low === floor ? low : low - margin, high + margin];
}

let clips = 0;

// curves: [{label, style, x, y, low?, high?}]; options: {title, log, floor, last}
function chart(curves, options) {
  const width = 320;
  const height = 210;
  const box = { left: 46, right: width - 20, top: 10, bottom: height - 34 };
  const known = (value) => value !== null && value !== undefined && (!options.log || value > 0);
  const scale = (value) => (options.log ? Math.log10(value) : value);
  const drawn = curves.map((curve) => ({
    ...curve,
    points: curve.x.map((x, i) => [x, curve.y[i], i]).filter(([, y]) => known(y)),
  })).filter((curve) => curve.points.length);
  const figure = make("figure", {}, make("figcaption", {}, options.title));
  if (!drawn.length) {
    figure.append(make("p", { class: "hint" }, "no values yet"));
    return figure;
  }
  const values = drawn.flatMap((c) => c.points.flatMap(([, y, i]) => (c.low ? [y, c.low[i], c.high[i]] : [y])));
  const [low, high] = range(values.map(scale), options.floor, options.log ? 1 : 0);
  const last = Math.max(options.last || 0, ...drawn.map((c) => c.points[c.points.length - 1][0]), 1);
  const px = (x) => box.left + (x / last) * (box.right - box.left);
  const py = (y) => box.bottom - ((scale(y) - low) / (high - low)) * (box.bottom - box.top);
  const said = drawn.map((c) => `${c.label} ${written(c.points[c.points.length - 1][1])}`).join(", ");
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${options.title}: ${said}` });
  const clip = `clip${clips++}`;
  const cut = shape("clipPath", { id: clip });
  cut.append(shape("rect", { x: box.left, y: box.top, width: box.right - box.left + 4, height: box.bottom - box.top }));
  svg.append(cut);
  for (const y of options.log ? decades(low, high) : ticks(low, high)) {
    const at = box.bottom - ((y - low) / (high - low)) * (box.bottom - box.top);
    svg.append(shape("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" }));
    svg.append(shape("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, written(options.log ? 10 ** y : y)));
  }
  for (const x of ticks(0, last, 4)) {
    svg.append(shape("text", { x: px(x), y: box.bottom + 16, "text-anchor": "middle" }, x.toLocaleString("en")));
  }
  svg.append(shape("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, "step"));
  const group = shape("g", { "clip-path": `url(#${clip})` });
  for (const curve of drawn) {
    if (curve.low && curve.points.some(([, , i]) => curve.high[i] > curve.low[i])) {
      const up = curve.points.map(([x, , i]) => `${px(x)},${py(curve.high[i])}`);
      const down = curve.points.map(([x, , i]) => `${px(x)},${py(curve.low[i])}`).reverse();
      group.append(shape("polygon", { points: [...up, ...down].join(" "), class: `band ${curve.style}` }));
    }
    const path = curve.points.map(([x, y]) => `${px(x)},${py(y)}`);
    const line = shape("polyline", { points: path.join(" "), class: `curve ${curve.style}` });
    line.append(shape("title", {}, curve.label));
    group.append(line);
    if (path.length < 40) {
      for (const [x, y] of curve.points) {
        const dot = shape("circle", { cx: px(x), cy: py(y), r: path.length < 15 ? 2.6 : 1.6, class: curve.style });
        dot.append(shape("title", {}, `${curve.label}, step ${x}: ${y.toPrecision(4)}`));
        group.append(dot);
      }
    }
  }
  svg.append(group);
  figure.append(svg);
  if (options.key !== false) {
    const key = make("ul", { class: "key" });
    for (const curve of drawn) key.append(make("li", {}, sample(curve.style), curve.label));
    figure.append(key);
  }
  return figure;
}
