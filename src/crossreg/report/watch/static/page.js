// The page of `crossreg watch`: asks its server every two seconds, and draws what has changed.
"use strict";

const SECONDS = 2;
const PAGE = 200;
const MOST_TICKED = 24;
const SCORES = [
  ["test NLL", "test_nll", 3], ["test ECE", "test_ece", 3], ["test CRPS", "test_crps", 4], ["test RMSE", "test_rmse", 4],
  ["Std_ω[μ]", "test_std_mu", 4], ["rel. L2", "test_relative_l2", 3], ["reg NLL", "reg_nll", 3], ["reg ECE", "reg_ece", 3],
];
const PANELS = [
  ["train_loss", "train loss", { cut: true }], ["reg_loss", "reg loss", { cut: true }],
  ["reg_nll", "NLL on reg", { cut: true }], ["reg_ece", "ECE on reg", { floor: 0 }],
];
const SETTLED = ["finished", "diverged"];
// `taken` holds the state that a run was in when its curve was read.
const state = {
  version: -1, runs: [], ticked: new Map(), curves: new Map(), taken: new Map(), shown: PAGE, live: [], silent: [],
};
// The content of every chart, for tests of the page.
window.watch = { drawn };
const EVERY_SITE = "all sites (geometric mean)";

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
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

function chosen() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.runs.filter((run) => {
    const text = `${label(run)} ${run.method} ${regime(run)} ${stateOf(run)}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const order = at("order").value;
  if (order === "name") found.sort((a, b) => label(a).localeCompare(label(b), "en", { numeric: true }));
  else if (order === "when") found.sort((a, b) => (b.when ?? Infinity) - (a.when ?? Infinity));
  else found.sort((a, b) => (a.scores[order] ?? Infinity) - (b.scores[order] ?? Infinity));
  return found;
}

// The scores that any of these runs has, and their titles.
const columnsOf = (runs) => SCORES.filter(([, key]) => runs.some((run) => run.scores[key] != null));
const titlesOf = (columns) => columns.map(([title]) => title);

function drawList() {
  const found = chosen();
  at("counted").textContent = `${found.length.toLocaleString("en")} of ${state.runs.length.toLocaleString("en")} runs`;
  const columns = columnsOf(found);
  const focused = document.activeElement?.dataset?.run;
  const rows = found.slice(0, state.shown).map((run) => {
    const box = make("input", { type: "checkbox", "data-run": run.id, "aria-label": `compare ${label(run)}` });
    box.checked = state.ticked.has(run.id);
    box.addEventListener("change", () => tick(run.id, box));
    return [
      [make("label", {}, box, ` ${run.name}`, make("small", { class: "under" }, run.method)), "left"], [run.method, "left method"],
      ...columns.map(([, key, digits]) => fixed(run.scores[key], digits)),
      [stateOf(run), run.diverged_at == null && run.state !== "diverged" ? "left" : "left warn"],
      [regime(run), "left"], [when(run), "left"],
    ];
  });
  const first = [["run", "left"], ["method", "left method"]];
  fillTable(at("runs"), [...first, ...titlesOf(columns), ["state", "left"], ["regime", "left"], ["written", "left"]], rows);
  at("more").hidden = found.length <= state.shown;
  if (focused) at("runs").querySelector(`[data-run="${focused}"]`)?.focus();
}

function tick(id, box) {
  if (box.checked && state.ticked.size >= MOST_TICKED) {
    box.checked = false;
    at("counted").textContent = `at most ${MOST_TICKED} runs can be compared`;
    return;
  }
  if (box.checked) {
    // A run keeps its look while it is ticked: the colour of its family, and dashes that no other run of that colour has.
    const looks = [...state.ticked.values()];
    const family = state.runs.find((run) => run.id === id)?.color;
    const free = [0, 1, 2, 3, 4, 5].find((color) => !looks.some((look) => look[0] === color)) ?? 0;
    const color = family ?? free;
    const taken = new Set(looks.filter((look) => look[0] === color).map((look) => look[1]));
    let count = 0;
    while (taken.has(count)) count++;
    state.ticked.set(id, [color, count]);
  } else {
    state.ticked.delete(id);
  }
  refresh();
}

function drawComparison() {
  const ticked = state.runs.filter((run) => state.ticked.has(run.id));
  at("compare").hidden = !ticked.length;
  if (!ticked.length) return;
  const styled = ticked.map((run) => (
    { run, look: lookOf(state.ticked.get(run.id)), curve: state.curves.get(run.id) }));
  const curved = styled.filter(({ curve }) => curve);
  const last = Math.max(1, ...curved.flatMap(({ curve }) => curve.step));
  const charts = PANELS.map(([key, title, options]) => [make("div"), {
    name: `compared-${key}`, title, x: "step", y: title, height: 240, xRange: [0, last], ...options,
    series: curved.map(({ run, look, curve }) => ({ key: run.id, label: label(run), ...look, ...curveOf(curve, key) })),
  }]).filter(([, options]) => options.series.some((one) => one.y.some(isNumber)));
  charts.push(...sigmaPanel(curved, last));
  const columns = columnsOf(ticked);
  // Only runs of one regime are compared: otherwise the easier regime would win.
  const task = (run) => JSON.stringify([run.regime.scenario, run.regime.observed_fraction, run.regime.train_size]);
  const isBest = (run, key) => {
    const baselines = ticked.filter((other) => task(other) === task(run)).map((other) => other.scores[key]);
    const values = baselines.filter((value) => value != null);
    return key !== "test_std_mu" && values.length > 1 && run.scores[key] === Math.min(...values);
  };
  const rows = styled.map(({ run, look }) => [
    [make("span", {}, sample(look), ` ${called(run)}`), "left"],
    ...columns.map(([, key, digits]) => [fixed(run.scores[key], digits), isBest(run, key) ? "best" : ""]),
    [stateOf(run), "left"], [regime(run), "left"],
  ]);
  const without = styled.filter(({ curve }) => curve && !curve.step.length).map(({ run }) => label(run));
  at("uncurved").hidden = !without.length;
  at("uncurved").textContent = `No history was found for ${without.join("; ")}.`;
  replaced(at("compared"), charts.map(([place]) => place), charts);
  fillTable(at("scores"), [["run", "left"], ...titlesOf(columns), ["state", "left"], ["regime", "left"]], rows);
}

// σ of one site, or the geometric mean of all sites, in every run that has it.
function sigmaPanel(curved, last) {
  const sites = [...new Set(curved.flatMap(({ curve }) => Object.keys(curve.sigma)))];
  at("site").closest(".choices").hidden = !sites.length;
  const wanted = [EVERY_SITE, ...sites];
  if (wanted.join("\n") !== [...at("site").options].map((option) => option.value).join("\n")) {
    const chosen = at("site").value;
    at("site").replaceChildren(...wanted.map((site) => new Option(site, site)));
    if (wanted.includes(chosen)) at("site").value = chosen;
  }
  if (!sites.length) return [];
  const site = at("site").value;
  const mean = (values) => {
    const logs = values.filter((value) => isNumber(value) && value > 0).map(Math.log);
    return logs.length ? Math.exp(logs.reduce((sum, value) => sum + value, 0) / logs.length) : null;
  };
  const series = curved.map(({ run, look, curve }) => {
    const y = site === EVERY_SITE ? curve.step.map((_, i) => mean(Object.values(curve.sigma).map((one) => one[i]))) : curve.sigma[site];
    return { key: run.id, label: label(run), ...look, x: curve.step, y: y || [] };
  }).filter((one) => one.y.some(isNumber));
  const options = { name: "compared-sigma", title: `σ of ${site}`, x: "step", y: "σ", height: 240, xRange: [0, last] };
  return [[make("div"), { ...options, log: true, least: 1, series }]];
}

function drawSilent() {
  at("silence").hidden = !state.silent.length;
  at("silent").replaceChildren(...state.silent.map((one) => {
    const place = one.steps ? ` at step ${one.step ?? 0} of ${one.steps}` : "";
    return make("li", {}, `${titled(one)}${place}, silent for ${ago(one.silent)}`);
  }));
}

let asked = 0;
let latest = "";

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
    // A run that has ended since its curve was read may have written more lines: read it once more.
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
    if (now !== latest) {
      latest = now;
      drawLive();
      drawComparison();
    }
    at("status").textContent = live.live.length ? `${live.live.length} training, updated every ${SECONDS} s` : "up to date";
    at("status").className = "";
  } catch {
    at("status").textContent = "The server does not answer. This page shows its last answer.";
    at("status").className = "warn";
  }
}

async function follow() {
  for (;;) {
    // A hidden page sends no requests.
    if (!document.hidden) await refresh();
    await new Promise((done) => setTimeout(done, 1000 * SECONDS));
  }
}

at("filter").addEventListener("input", () => { state.shown = PAGE; drawList(); });
at("order").addEventListener("change", drawList);
at("site").addEventListener("change", drawComparison);
onResize(() => {
  drawLive();
  drawComparison();
});
at("more").addEventListener("click", () => { state.shown += PAGE; drawList(); });
at("clear").addEventListener("click", () => { state.ticked.clear(); drawList(); refresh(); });
follow();
