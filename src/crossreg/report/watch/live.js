// What trains now: a card for each training, with its curves so far.

const curveOf = (curve, key) => ({ x: curve.step, y: curve[key].mean, low: curve[key].low, high: curve[key].high });
const sitesOf = (curve) => Object.entries(curve.sigma).map(([site, y], i, all) => (
  { label: site, x: curve.step, y, color: siteColor(i, all.length) }));

function replicas(one) {
  const rows = [...one.replicas].sort((a, b) => (b.diverged_at >= 0) - (a.diverged_at >= 0));
  const body = make("tbody");
  for (const replica of rows) {
    const fell = replica.diverged_at >= 0;
    body.append(cells(make("tr"), [
      [replica.name, "left"], number(replica.train_loss, 3), number(replica.reg_loss, 3), number(replica.reg_nll, 3),
      number(replica.reg_ece, 3), [fell ? `diverged at step ${replica.diverged_at}` : "going on", fell ? "left warn" : "left"],
    ]));
  }
  const table = make("table", {}, heading([
    ["replica", true], ["train loss"], ["reg loss"], ["reg NLL"], ["reg ECE"], ["state", true],
  ]), body);
  return make("div", { class: "replicas wide", tabindex: "0", role: "region", "aria-label": "replicas" }, table);
}

function titled(one) {
  return one.kind === "run" ? one.name : `${one.name}: ${one.label}`;
}

// Where it is, in a line: a sweep says how far all of it is, a run its step, and whoever scores how much is scored.
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
    panels.splice(1, 0, { ...shared, name: name("reg"), title: "what ρ minimises on reg", y: "reg loss", cut: true, series });
  }
  const sites = sitesOf(curve);
  if (sites.length) {
    panels.push({ ...shared, name: name("sigma"), title: "σ per site (geometric mean)", y: "σ", log: true, least: 1, series: sites });
  }
  return panels;
}

// A card, and the charts to draw in it once it stands in the page: a chart takes the width that it has.
function training(one, opened, charts) {
  const curve = state.curves.get(one.id);
  const card = make("article", { class: "training", "data-live": one.id });
  card.append(make("h3", {}, titled(one)), make("p", {}, placeOf(one)));
  const isScoring = one.now === "scoring" && !one.programs && one.points;
  const share = isScoring ? one.scored / one.points : one.programs ? one.trained || 0 : one.steps ? one.step / one.steps : 0;
  card.append(make("progress", { max: 1, value: share, "aria-label": isScoring ? "scored" : "trained" }));
  const fallen = one.replicas.filter((replica) => replica.diverged_at >= 0);
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
      card.append(make("p", { class: "hint" }, "Means over replicas that have not diverged; bands from the least to the largest."));
    }
  } else {
    card.append(make("p", { class: "hint" }, "Curves begin with the first look at reg."));
  }
  if (one.replicas.length > 1) {
    const more = make("details", {}, make("summary", {}, `${one.replicas.length} replicas`), replicas(one));
    more.open = opened.has(one.id);
    card.append(more);
  }
  return card;
}

// Puts elements in the place of others and draws their charts; whoever reads values there stays where they were.
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
  replaced(at("live"), cards.length ? cards : [make("p", { class: "hint" }, "Nothing trains at the moment.")], charts);
  for (const [id, top] of scrolled) {
    const list = at("live").querySelector(`[data-live="${id}"] .replicas`);
    if (list) list.scrollTop = top;
  }
  if (kept) at("live").querySelector(`[data-live="${kept[0]}"] ${kept[1]}`)?.focus({ preventScroll: true });
}
