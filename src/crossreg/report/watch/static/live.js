// One card for each running training, with its curves so far.

const curveOf = (curve, key) => ({ x: curve.step, y: curve[key].mean, low: curve[key].low, high: curve[key].high });
const hasDiverged = (replica) => replica.diverged_at >= 0;

function replicas(one) {
  const rows = [...one.replicas].sort((a, b) => hasDiverged(b) - hasDiverged(a)).map((replica) => [
    [replica.name, "left"],
    ...["train_loss", "reg_loss", "reg_nll", "reg_ece"].map((name) => fixed(replica[name], 3)),
    hasDiverged(replica) ? [`diverged at step ${replica.diverged_at}`, "left warn"] : ["training", "left"],
  ]);
  const heads = [["replica", "left"], "train loss", "reg loss", "reg NLL", "reg ECE", ["state", "left"]];
  const table = fillTable(make("table"), heads, rows);
  return make("div", { class: "replicas wide", tabindex: "0", role: "region", "aria-label": "replicas" }, table);
}

function titled(one) {
  return one.kind === "run" ? one.name : `${one.name}: ${one.label}`;
}

// Progress in a line: of a whole sweep, by the step of a run, or by how much has been scored.
function placeOf(one) {
  const parts = [];
  if (one.programs) {
    parts.push(`trained ${Math.round(100 * (one.trained || 0))}%`, `scored ${one.scored} of ${one.points}`);
    if (one.number) parts.push(`program ${one.number} of ${one.programs}`);
  }
  if (one.now === "compiling") parts.push("compiling …");
  else if (one.now === "scoring") parts.push(!one.programs && one.points ? `scoring, ${one.scored} of ${one.points} pairs` : "scoring …");
  else parts.push(`step ${one.step} of ${one.steps}`);
  return [...parts, `time left ${one.left || "–"}`].join(" · ");
}

function panelsOf(one, curve) {
  const name = (what) => `live-${one.id}-${what}`;
  const shared = { x: "step", height: 230, xRange: [0, Math.max(one.steps || 0, ...curve.step, 1)] };
  const { color } = lookOf([one.color ?? 0, 0]);
  const panels = [{
    ...shared, name: name("nll"), title: "NLL: solid on train batches, dashed on reg", y: "NLL per point", cut: true,
    series: [{ label: "train loss", color, ...curveOf(curve, "train_loss") },
      { label: "NLL on reg", color, dash: DASHES[1], ...curveOf(curve, "reg_nll") }],
  }, {
    ...shared, name: name("ece"), title: "ECE on reg", y: "ECE", floor: 0,
    series: [{ label: "ECE on reg", color, ...curveOf(curve, "reg_ece") }],
  }];
  if (curve.reg_loss.mean.some(isNumber)) {
    const series = [{ label: "reg loss", color, dash: DASHES[1], ...curveOf(curve, "reg_loss") }];
    panels.splice(1, 0, { ...shared, name: name("reg"), title: "Loss that ρ minimizes on reg", y: "reg loss", cut: true, series });
  }
  const sites = siteSeries(curve);
  if (sites.length) {
    panels.push({ ...shared, name: name("sigma"), title: "σ per site (geometric mean)", y: "σ", log: true, least: 1, series: sites });
  }
  return panels;
}

// Returns a card. `charts` takes the charts to draw once the card stands in the page: a chart takes the width of its place.
function training(one, opened, charts) {
  const curve = state.curves.get(one.id);
  const card = make("article", { class: "training", "data-live": one.id });
  card.append(make("h3", {}, titled(one)), make("p", {}, placeOf(one)));
  const isScoring = one.now === "scoring" && !one.programs && one.points;
  const share = isScoring ? one.scored / one.points : one.programs ? one.trained || 0 : one.steps ? one.step / one.steps : 0;
  card.append(make("progress", { max: 1, value: share, "aria-label": isScoring ? "scored" : "trained" }));
  const fallen = one.replicas.filter(hasDiverged);
  if (fallen.length) {
    const names = fallen.slice(0, 6).map((r) => `${r.name || "this run"} at step ${r.diverged_at}`).join("; ");
    card.append(make("p", { class: "warn" },
      `${fallen.length} of ${one.replicas.length} diverged: ${names}${fallen.length > 6 ? " …" : ""}`));
  }
  if (curve && curve.step.length) {
    const panels = make("div", { class: "panels" });
    for (const options of panelsOf(one, curve)) {
      const place = make("div");
      panels.append(place);
      charts.push([place, options]);
    }
    card.append(panels);
    if (one.replicas.length > 1) {
      card.append(make("p", { class: "hint" }, "Means over replicas that have not diverged. Bands reach from the smallest to the largest."));
    }
  } else {
    card.append(make("p", { class: "hint" }, "Curves begin with the first evaluation on reg."));
  }
  if (one.replicas.length > 1) {
    const more = make("details", {}, make("summary", {}, `${one.replicas.length} replicas`), replicas(one));
    more.open = opened.has(one.id);
    card.append(more);
  }
  return card;
}

// Replaces the elements of a place and draws their charts. A reader who was reading values there stays where they were.
function replaced(place, elements, charts) {
  const focused = document.activeElement?.closest?.("[data-chart]")?.dataset.chart;
  const inLegend = focused && [...document.querySelectorAll(`[data-chart="${CSS.escape(focused)}"] button`)].indexOf(document.activeElement);
  const read = { ...cursors };
  place.replaceChildren(...elements);
  Object.assign(cursors, read);
  for (const [box, options] of charts) chart(box, options);
  const again = focused && place.querySelector(`[data-chart="${CSS.escape(focused)}"]`);
  if (again) (inLegend >= 0 ? again.querySelectorAll("button")[inLegend] : again.querySelector("svg[role=img]"))?.focus({ preventScroll: true });
}

function drawLive() {
  const opened = new Set([...document.querySelectorAll("#live details[open]")].map((d) => d.closest("article").dataset.live));
  const scrolled = new Map([...document.querySelectorAll("#live .replicas")].map((d) => [d.closest("article").dataset.live, d.scrollTop]));
  const focused = document.activeElement?.closest?.("#live summary, #live .replicas");
  const kept = focused && [focused.closest("article").dataset.live, focused.tagName === "SUMMARY" ? "summary" : ".replicas"];
  const charts = [];
  const cards = state.live.map((one) => training(one, opened, charts));
  replaced(at("live"), cards.length ? cards : [make("p", { class: "hint" }, "Nothing is training at the moment.")], charts);
  for (const [id, top] of scrolled) {
    const list = at("live").querySelector(`[data-live="${id}"] .replicas`);
    if (list) list.scrollTop = top;
  }
  if (kept) at("live").querySelector(`[data-live="${kept[0]}"] ${kept[1]}`)?.focus({ preventScroll: true });
}
