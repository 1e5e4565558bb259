// The page of `crossreg watch`: asks its own server every two seconds, and draws what has changed.
"use strict";

const SECONDS = 2;
const PAGE = 200;
const MOST_TICKED = 24;
const SCORES = [
  ["test NLL", "test_nll", 3], ["test ECE", "test_ece", 3], ["test CRPS", "test_crps", 4], ["test RMSE", "test_rmse", 4],
  ["Std_ω[μ]", "test_std_mu", 4], ["rel. L2", "test_relative_l2", 3], ["reg NLL", "reg_nll", 3], ["reg ECE", "reg_ece", 3],
];
const PANELS = [
  ["train_loss", "train loss", {}], ["reg_loss", "reg loss", {}],
  ["reg_nll", "NLL on reg", {}], ["reg_ece", "ECE on reg", { floor: 0 }],
];
const SETTLED = ["finished", "diverged"];
// `taken`: of which state of a run its curve is.
const state = {
  version: -1, runs: [], ticked: new Map(), curves: new Map(), taken: new Map(), shown: PAGE, live: [], silent: [],
};
const at = (id) => document.getElementById(id);

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

function number(value, digits) {
  return value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

function regime(run) {
  const given = run.regime;
  const parts = [];
  if (given.observed_fraction != null) parts.push(`${given.observed_fraction} observed`);
  if (given.train_size != null) parts.push(`${given.train_size} ${given.scenario === "cars" ? "cars" : "trajectories"}`);
  if (given.seed != null) parts.push(`seed ${given.seed}`);
  if (given.settings) parts.push(given.settings);
  return parts.join(", ");
}

function called(run) {
  return run.kind === "run" && run.name.endsWith(run.method) ? run.name : `${run.name} · ${run.method}`;
}

function label(run) {
  return run.kind === "sweep" ? `${called(run)} · ${regime(run)}` : called(run);
}

function when(run) {
  if (!run.when) return "–";
  const date = new Date(run.when * 1000);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

function stateOf(run) {
  const place = run.step != null && run.steps && !["finished", "training"].includes(run.state) ? ` ${run.step}/${run.steps}` : "";
  const fell = run.diverged_at == null ? "" : `, diverged at ${run.diverged_at}`;
  return `${run.state}${place}${fell}`;
}

function cells(row, values) {
  for (const value of values) {
    const [text, style] = Array.isArray(value) ? value : [value, ""];
    row.append(make("td", style ? { class: style } : {}, text));
  }
  return row;
}

function heading(titles) {
  const row = make("tr");
  for (const [text, left] of titles) row.append(make("th", { scope: "col", ...(left ? { class: "left" } : {}) }, text));
  return make("thead", {}, row);
}

function chosen() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.runs.filter((run) => {
    const text = `${label(run)} ${run.method} ${regime(run)} ${stateOf(run)}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const order = at("order").value;
  const last = (value) => (value === null || value === undefined ? Infinity : value);
  if (order === "name") found.sort((a, b) => label(a).localeCompare(label(b), "en", { numeric: true }));
  else if (order === "when") found.sort((a, b) => (b.when ?? Infinity) - (a.when ?? Infinity));
  else found.sort((a, b) => last(a.scores[order]) - last(b.scores[order]));
  return found;
}

function drawList() {
  const found = chosen();
  at("counted").textContent = `${found.length.toLocaleString("en")} of ${state.runs.length.toLocaleString("en")} runs`;
  const columns = SCORES.filter(([, key]) => found.some((run) => run.scores[key] != null));
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.run : null;
  const body = make("tbody");
  for (const run of found.slice(0, state.shown)) {
    const box = make("input", { type: "checkbox", "data-run": run.id, "aria-label": `compare ${label(run)}` });
    box.checked = state.ticked.has(run.id);
    box.addEventListener("change", () => tick(run.id, box));
    body.append(cells(make("tr"), [
      [box, "left"], [run.name, "left"], [run.method, "left"], [regime(run), "left"],
      [stateOf(run), run.diverged_at == null && run.state !== "diverged" ? "left" : "left warn"],
      [when(run), "left"], ...columns.map(([, key, digits]) => number(run.scores[key], digits)),
    ]));
  }
  at("runs").replaceChildren(heading([
    ["compare", true], ["run", true], ["method", true], ["regime", true], ["state", true],
    ["written", true], ...columns.map(([title]) => [title]),
  ]), body);
  at("more").hidden = found.length <= state.shown;
  if (focused) at("runs").querySelector(`[data-run="${focused}"]`)?.focus();
}

function tick(id, box) {
  if (box.checked && state.ticked.size >= MOST_TICKED) {
    box.checked = false;
    at("counted").textContent = `at most ${MOST_TICKED} runs are compared`;
    return;
  }
  if (box.checked) {
    // A colour stays with its run while it is ticked.
    const taken = new Set(state.ticked.values());
    let free = 0;
    while (taken.has(free)) free++;
    state.ticked.set(id, free);
  } else {
    state.ticked.delete(id);
  }
  refresh();
}

function drawComparison() {
  const ticked = state.runs.filter((run) => state.ticked.has(run.id));
  at("compare").hidden = !ticked.length;
  if (!ticked.length) return;
  const styled = ticked.map((run) => ({ run, style: looks(state.ticked.get(run.id)), curve: state.curves.get(run.id) }));
  const panels = PANELS.map(([key, title, options]) => chart(
    styled.filter(({ curve }) => curve).map(({ run, style, curve }) => ({
      label: label(run), style, x: curve.step, y: curve[key].mean, low: curve[key].low, high: curve[key].high,
    })), { title, key: false, ...options }));
  const columns = SCORES.filter(([, key]) => ticked.some((run) => run.scores[key] != null));
  // The easier regime would win: only runs of one are held against each other.
  const task = (run) => JSON.stringify([run.regime.scenario, run.regime.observed_fraction, run.regime.train_size]);
  const isBest = (run, key) => {
    const rivals = ticked.filter((other) => task(other) === task(run)).map((other) => other.scores[key]);
    const values = rivals.filter((value) => value != null);
    return key !== "test_std_mu" && values.length > 1 && run.scores[key] === Math.min(...values);
  };
  const body = make("tbody");
  for (const { run, style } of styled) {
    body.append(cells(make("tr"), [
      [sample(style), "left"], [called(run), "left"], [regime(run), "left"], [stateOf(run), "left"],
      ...columns.map(([, key, digits]) => [number(run.scores[key], digits), isBest(run, key) ? "best" : ""]),
    ]));
  }
  const without = styled.filter(({ curve }) => curve && !curve.step.length).map(({ run }) => label(run));
  at("uncurved").hidden = !without.length;
  at("uncurved").textContent = `No history was found of ${without.join("; ")}.`;
  at("compared").replaceChildren(...panels);
  at("scores").replaceChildren(heading([
    ["", true], ["run", true], ["regime", true], ["state", true], ...columns.map(([title]) => [title]),
  ]), body);
}

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
  return make("div", { class: "replicas", tabindex: "0", role: "region", "aria-label": "replicas" }, table);
}

function titled(one) {
  return one.kind === "run" ? one.name : `${one.name}: ${one.label}`;
}

function training(one, opened) {
  const curve = state.curves.get(one.id);
  const card = make("article", { class: "training", "data-live": one.id });
  card.append(make("h3", {}, titled(one)));
  const parts = [];
  if (one.points) {
    parts.push(`trained ${Math.round(100 * (one.trained || 0))}%`, `scored ${one.scored} of ${one.points}`);
    if (one.number) parts.push(`program ${one.number} of ${one.programs}`);
  }
  parts.push(one.now === "compiling" ? "compiling …" : one.now === "scoring" ? "scoring …" : `step ${one.step} of ${one.steps}`);
  parts.push(`time left ${one.left}`);
  card.append(make("p", {}, parts.join(" · ")));
  const share = one.points ? one.trained || 0 : one.steps ? one.step / one.steps : 0;
  card.append(make("progress", { max: 1, value: share, "aria-label": "trained" }));
  const fallen = one.replicas.filter((replica) => replica.diverged_at >= 0);
  if (fallen.length) {
    const names = fallen.slice(0, 6).map((r) => `${r.name || "this run"} at step ${r.diverged_at}`).join("; ");
    card.append(make("p", { class: "warn" },
      `${fallen.length} of ${one.replicas.length} diverged: ${names}${fallen.length > 6 ? " …" : ""}`));
  }
  if (curve && curve.step.length) {
    const line = (key, style, text) => ({
      label: text, style, x: curve.step, y: curve[key].mean, low: curve[key].low, high: curve[key].high,
    });
    const options = { last: one.steps };
    const sites = Object.entries(curve.sigma).map(([site, y], i) => ({ label: site, style: looks(i), x: curve.step, y }));
    const panels = [
      chart([line("train_loss", "k0", "train loss"), line("reg_nll", "k1 dash", "NLL on reg")], { title: "NLL per point", ...options }),
      chart([line("reg_ece", "k0", "ECE on reg")], { title: "ECE on reg", floor: 0, key: false, ...options }),
    ];
    if (curve.reg_loss.mean.some((value) => value !== null)) {
      panels.splice(1, 0, chart([line("reg_loss", "k1", "reg loss")], { title: "what ρ minimises on reg", key: false, ...options }));
    }
    if (sites.length) panels.push(chart(sites, { title: "σ per site (geometric mean)", log: true, ...options }));
    card.append(make("div", { class: "panels" }, ...panels));
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

function drawLive() {
  const opened = new Set([...document.querySelectorAll("#live details[open]")].map((d) => d.closest("article").dataset.live));
  const scrolled = new Map([...document.querySelectorAll("#live .replicas")].map((d) => [d.closest("article").dataset.live, d.scrollTop]));
  const focused = document.activeElement?.closest?.("#live article");
  const kept = focused ? [focused.dataset.live, document.activeElement.tagName] : null;
  const cards = state.live.map((one) => training(one, opened));
  at("live").replaceChildren(...(cards.length ? cards : [make("p", { class: "hint" }, "Nothing trains at the moment.")]));
  for (const [id, top] of scrolled) {
    const list = at("live").querySelector(`[data-live="${id}"] .replicas`);
    if (list) list.scrollTop = top;
  }
  if (kept) at("live").querySelector(`[data-live="${kept[0]}"] ${kept[1].toLowerCase()}`)?.focus();
}

function drawSilent() {
  at("silence").hidden = !state.silent.length;
  at("silent").replaceChildren(...state.silent.map((one) => {
    const place = one.steps ? ` at step ${one.step ?? 0} of ${one.steps}` : "";
    return make("li", {}, `${titled(one)}${place}, silent for ${ago(one.silent)}`);
  }));
}

let asked = 0;
let drawn = "";

async function refresh() {
  const mine = ++asked;
  try {
    const live = await ask("/api/live");
    if (live.version !== state.version) {
      const found = await ask("/api/runs");
      if (mine !== asked) return;
      Object.assign(state, { version: found.version, runs: found.runs });
      at("root").textContent = found.root;
      document.title = `${found.root} · crossreg watch`;
      const there = new Set(found.runs.map((run) => run.id));
      for (const id of [...state.ticked.keys()]) if (!there.has(id)) state.ticked.delete(id);
      at("unseen").replaceChildren(...found.unseen.map((what) => make("p", {}, `Not looked into: ${what}.`)));
      drawList();
    }
    Object.assign(state, { live: live.live, silent: live.silent });
    drawSilent();
    const wanted = [...new Set([...live.live.map((one) => one.id), ...state.ticked.keys()])];
    const runs = new Map(state.runs.map((run) => [run.id, run]));
    const stage = (id) => `${runs.get(id)?.state} ${runs.get(id)?.when}`;
    const grows = (id) => !SETTLED.includes(runs.get(id)?.state);
    for (const id of state.curves.keys()) if (!wanted.includes(id)) state.curves.delete(id);
    // One that has ended since it was last asked for may have got its last lines in between: once more.
    const due = wanted.filter((id) => grows(id) || !state.curves.has(id) || state.taken.get(id) !== stage(id));
    await Promise.all(due.map(async (id) => {
      const now = stage(id);
      const curve = await ask(`/api/curve/${id}`);
      if (!curve) return;
      state.curves.set(id, curve);
      state.taken.set(id, now);
    }));
    if (mine !== asked) return;
    const now = JSON.stringify([live.live, state.version, [...state.ticked], wanted.map((id) => state.curves.get(id)?.step)]);
    if (now !== drawn) {
      drawn = now;
      drawLive();
      drawComparison();
    }
    at("status").textContent = live.live.length ? `${live.live.length} training, looked at every ${SECONDS} s` : "up to date";
    at("status").className = "";
  } catch {
    at("status").textContent = "The server does not answer; what you see is as it was.";
    at("status").className = "warn";
  }
}

async function follow() {
  for (;;) {
    // A page that nobody sees asks for nothing.
    if (!document.hidden) await refresh();
    await new Promise((done) => setTimeout(done, 1000 * SECONDS));
  }
}

at("filter").addEventListener("input", () => { state.shown = PAGE; drawList(); });
at("order").addEventListener("change", drawList);
at("more").addEventListener("click", () => { state.shown += PAGE; drawList(); });
at("clear").addEventListener("click", () => { state.ticked.clear(); drawList(); refresh(); });
follow();
