// All else about the run whose trajectories are shown: coverage, PIT, where it is wrong, σ per site; and the choices.
const drawCoverage = (entry) => {
  const known = Object.entries(entry.coverage).filter(([, covered]) => covered);
  at("coverage").hidden = at("coverage-said").hidden = !known.length;
  if (known.length) chart(at("coverage"), {
    name: "coverage", title: "Coverage", height: 300, x: "nominal coverage", y: "empirical coverage",
    xRange: [0, 1], yRange: [0, 1], diagonal: true,
    series: known.map(([label, y]) => ({ label, x: report.levels, y, marks: true, ...SPLITS[label] })),
  });
  const total = entry.pit.reduce((sum, n) => sum + n, 0) || 1;
  const count = entry.pit.length;
  chart(at("pit"), {
    name: "pit", title: "PIT histogram", height: 300, note: `all points of ${entry.scanned} ${entry.forecast ? "forecasts" : "test trajectories"}`,
    x: "PIT of the truth", y: "density", floor: 0, xRange: [0, 1], bars: 1 / count, level: 1,
    series: [{
      label: "density",
      x: entry.pit.map((_, i) => (i + 0.5) / count),
      y: entry.pit.map((n) => (n / total) * count),
      color: colorOf(5),
    }],
  });
};

// Whether a piece shows a region: it is part of the same trajectory, has its steps, and its line crosses it.
const shows = ({ number, steps, line }, region) =>
  number === region.trajectory && steps[0] <= region.steps[0] && steps[steps.length - 1] >= region.steps[1] &&
  region.points.slice(1).every(([low, high], i) => low <= line[i] && line[i] <= high);

const listRegions = (table, entry, regions, none) => {
  if (!regions.length) {
    table.replaceChildren(make("tbody", {}, make("tr", {}, make("td", {}, none))));
    return;
  }
  const heads = ["", "error / √U_tot", "RMS error", "√U_tot", "trajectory", "steps", "points"];
  if (entry.channels > 1) heads.push("channel");
  const rows = regions.map((region, rank) => {
    const index = entry.trajectories.findIndex((piece) => shows(piece, region));
    const ratio = region.ratio === null ? "∞" : region.ratio.toFixed(1); // no error bar at all
    const points = region.points.map((ends) => ends.join("–")).join(" × ");
    const cells = [ratio, written(region.error), written(region.std), region.trajectory, region.steps.join("–"), points];
    if (entry.channels > 1) cells.push(channelName(entry, region.channel));
    if (index < 0) return [rank + 1, ...cells];
    const said = `Show region ${rank + 1}: trajectory ${region.trajectory}, steps ${region.steps.join(" to ")}`;
    const button = make("button", { type: "button", "aria-label": said }, `${rank + 1} ▸`);
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll("#shown tr.now")) other.classList.remove("now");
      button.closest("tr").classList.add("now");
      showRegion(region, index);
    });
    return [button, ...cells];
  });
  fillTable(table, heads, rows);
};

const showRegion = (region, index) => {
  Object.assign(state, { trajectory: index, channel: region.channel, region });
  const middle = (region.steps[0] + region.steps[1]) / 2;
  const away = pieceNow().steps.map((step) => Math.abs(step - middle));
  at("trajectory").value = index;
  at("channel").value = region.channel;
  drawPiece();
  goTo(away.indexOf(Math.min(...away)), Math.floor((region.points[0][0] + region.points[0][1]) / 2));
  document.querySelector(".stage").scrollIntoView({ block: "start" });
};

const drawSigma = (entry) => {
  const sites = Object.keys(entry.sigma);
  at("sigma-part").hidden = !sites.length;
  if (!sites.length) return;
  const pairs = sites.flatMap((site, i) => entry.sigma[site].map((value) => [i, value]));
  chart(at("sigma"), {
    name: "sigma-sites", title: "σ per site", x: "noise site", y: "σ", log: true,
    names: sites, xRange: [-0.5, sites.length - 0.5],
    series: [{
      label: "σ",
      kind: "dots",
      x: pairs.map(([site]) => site),
      y: pairs.map(([, value]) => value),
      color: "var(--site-middle)",
      radius: 4,
    }],
  });
};

const choose = (select, labels) => {
  select.replaceChildren(...labels.map((label, index) => new Option(label, index)));
};

// Draws all that changes with the trajectory or the channel.
const drawPiece = () => {
  const { steps } = pieceNow();
  state.time = clamp(state.time, steps.length);
  at("time").max = steps.length - 1;
  drawPlanes();
  drawMaps();
  drawRegion();
  drawTime();
};

const nameOf = ({ number, window, steps, line }, entry) => {
  const aside = line.length && window ? `, line through ${line.join(", ")}` : "";
  if (window) return `number ${number}, steps ${steps[0]}–${steps[steps.length - 1]}${aside}`;
  const isWorst = entry.unaware.length && entry.unaware[0].trajectory === number;
  return `number ${number}${isWorst ? " (with the worst region)" : ""}`;
};

const SINGLE_STEPS =
  "One-step predictions: each time step is predicted from the true field one step earlier, of which the model sees only " +
  "the observed points.";
const FORECASTS =
  "Forecasts from the first field of a trajectory: the model is fed its own output, and the time step is the lead time. " +
  "The prediction at each lead is that of all particles. The first test trajectories are shown.";

const drawEntry = () => {
  const entry = entryNow();
  at("kind").textContent = entry.forecast ? FORECASTS : SINGLE_STEPS;
  at("regions-part").hidden = at("chosen").hidden = Boolean(entry.forecast);
  for (const id of ["time", "plane-step"]) {
    at(id).labels[0].firstChild.textContent = entry.forecast ? "Lead time " : "Time step ";
  }
  const isThere = entry.trajectories.length > 0;
  play(false);
  at("shown").hidden = !isThere;
  at("why").hidden = isThere;
  at("why").textContent = `The test trajectories of this run are not shown: ${entry.why}`;
  for (const id of ["trajectory", "channel"]) at(id).disabled = !isThere;
  drawSigma(entry);
  if (!isThere) return;
  state.trajectory = clamp(state.trajectory, entry.trajectories.length);
  state.channel = clamp(state.channel, entry.channels);
  state.point = clamp(state.point, entry.points);
  choose(at("trajectory"), entry.trajectories.map((piece) => nameOf(piece, entry)));
  choose(at("channel"), Array.from({ length: entry.channels }, (_, i) => channelName(entry, i)));
  at("trajectory").value = state.trajectory;
  at("channel").value = state.channel;
  at("channel-choice").hidden = entry.channels === 1;
  const [steps, points] = constants.block;
  const every = [...entry.unaware, ...entry.aware].every((region) => entry.trajectories.some((p) => shows(p, region)));
  at("scanned").textContent =
    `${entry.scanned} test trajectories were cut into regions of ${steps} time steps and ${points} points along each ` +
    "axis, ranked by root mean squares. Each place of a trajectory is listed once, at its worst time. " +
    (every ? "▸ shows a region in the maps above." : "▸ shows a region in the maps above, if this page holds it.");
  at("map-said").textContent = "";
  drawPiece();
  drawCoverage(entry);
  const limit = constants.knows;
  listRegions(at("unaware"), entry, entry.unaware, `No region is off by more than ${limit} standard deviations.`);
  listRegions(at("aware"), entry, entry.aware, "No region.");
};

const sayWhatIsKept = () => {
  const there = report.entries.filter((entry) => entry.trajectories.length && !entry.forecast);
  const whole = there.map((entry) => entry.trajectories.filter((piece) => !piece.window).length);
  const windows = there.some((entry) => entry.trajectories.some((piece) => piece.window));
  const counts = [...new Set(whole)].sort((a, b) => a - b).join(" or ");
  at("chosen").textContent =
    `This page holds ${counts || "no"} whole test ${counts === "1" ? "trajectory" : "trajectories"} of each of ` +
    `${there.length} of ${report.runs} runs: first the one with the worst region, if it is stored, ` +
    `then those with the lowest numbers${windows ? "; and windows around the other listed regions" : ""}. ` +
    report.chosen;
};

const startFields = () => {
  if (!report.entries.length) {
    at("shown").hidden = at("sigma-part").hidden = at("choices-fields").hidden = true;
    at("why").hidden = false;
    at("why").textContent = "No run here has test trajectories to show.";
    return;
  }
  const groups = new Set(report.entries.map((entry) => entry.group)).size > 1;
  choose(at("entry"), report.entries.map((entry) => (groups ? `${entry.group}: ${entry.label}` : entry.label)));
  sayWhatIsKept();
  const isGiven = takePlace();
  if (!isGiven) {
    state.entry = Math.max(0, report.entries.findIndex((entry) => entry.trajectories.length));
    const piece = pieceNow();
    const [worst] = entryNow().unaware || [];
    const isShown = piece && worst && shows(piece, worst);
    // The page opens at the worst region, if a whole trajectory shows it.
    state.time = isShown ? Math.max(0, piece.steps.indexOf(worst.steps[0] + 2)) : Math.floor((piece?.steps.length || 0) / 2);
  }
  at("entry").value = state.entry;
  buildMaps();
  buildPlanes();
  drawEntry();
  if (isGiven) at("explore").scrollIntoView();
  for (const id of ["choices-fields", "choices-planes", "sliders"]) at(id).addEventListener("submit", (event) => event.preventDefault());
  for (const [name, draw] of [["entry", drawEntry], ["trajectory", drawPiece], ["channel", drawPiece]]) {
    at(name).addEventListener("change", () => {
      Object.assign(state, { [name]: Number(at(name).value), region: null });
      draw();
      keepPlace();
    });
  }
  at("time").addEventListener("input", () => {
    play(false);
    state.time = Number(at("time").value);
    drawTime();
    keepPlace();
  });
  at("level").addEventListener("input", () => {
    drawTime();
    keepPlace();
  });
  at("play").addEventListener("click", () => play(at("play").getAttribute("aria-pressed") !== "true"));
  addEventListener("hashchange", () => {
    if (!takePlace()) return;
    at("entry").value = state.entry;
    state.region = null;
    drawEntry();
  });
};
