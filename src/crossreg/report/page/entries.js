// The rest of a run whose trajectories are shown: coverage, PIT, where it is wrong, σ per site; and the choices.
const drawCoverage = (entry) => {
  const known = Object.entries(entry.coverage).filter(([, covered]) => covered);
  chart(at("coverage"), {
    name: "coverage", title: "Coverage", height: 300, x: "nominal coverage", y: "empirical coverage",
    xRange: [0, 1], yRange: [0, 1], diagonal: true,
    series: known.map(([label, y], i) => ({ label, x: report.levels, y, marks: true, color: colorOf(i), dash: DASHES[i] })),
  });
  const total = entry.pit.reduce((sum, n) => sum + n, 0) || 1;
  const count = entry.pit.length;
  chart(at("pit"), {
    name: "pit", title: "PIT histogram", height: 300, note: `all points of ${entry.scanned} test trajectories`,
    x: "PIT of the truth", y: "density", floor: 0, xRange: [0, 1], bars: 1 / count, level: 1,
    series: [{
      label: "density",
      x: entry.pit.map((_, i) => (i + 0.5) / count),
      y: entry.pit.map((n) => (n / total) * count),
      color: colorOf(5),
    }],
  });
};

// Of a field in more than one dimension the maps have the line through the middle of the other axes.
const isOnLine = (entry, region) =>
  region.points.slice(1).every(([low, high], i) => {
    const middle = Math.floor(entry.space[i + 1] / 2);
    return low <= middle && middle <= high;
  });

const listRegions = (table, entry, regions) => {
  table.textContent = "";
  const heads = ["", "error / √U_tot", "RMS error", "√U_tot", "trajectory", "steps", "points"];
  if (entry.channels > 1) heads.push("channel");
  table.append(make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))));
  const body = make("tbody");
  regions.forEach((region, rank) => {
    const index = entry.trajectories.findIndex((stored) => stored.number === region.trajectory);
    const points = region.points.map((ends) => ends.join("–")).join(" × ");
    const ratio = region.ratio === null ? "∞" : region.ratio.toFixed(1); // no error bar at all
    const sizes = [ratio, written(region.error), written(region.std)];
    const cells = [...sizes, region.trajectory, region.steps.join("–"), points];
    if (entry.channels > 1) cells.push(region.channel);
    let first = String(rank + 1);
    if (index >= 0 && isOnLine(entry, region)) {
      const said = `Show region ${rank + 1}: trajectory ${region.trajectory}, steps ${region.steps.join(" to ")}`;
      first = make("button", { type: "button", "aria-label": said }, `${rank + 1} ▸`);
      first.addEventListener("click", () => showRegion(region, index));
    }
    body.append(make("tr", {}, make("td", {}, first), ...cells.map((text) => make("td", {}, String(text)))));
  });
  table.append(body);
};

const showRegion = (region, index) => {
  const entry = entryNow();
  Object.assign(state, { trajectory: index, channel: region.channel, region });
  const middle = (region.steps[0] + region.steps[1]) / 2;
  const away = entry.steps.map((step) => Math.abs(step - middle));
  state.time = away.indexOf(Math.min(...away));
  at("trajectory").value = index;
  at("channel").value = region.channel;
  drawMaps();
  drawRegion();
  drawTime();
  at("maps").scrollIntoView({ block: "nearest" });
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
      color: colorOf(0),
      radius: 4,
    }],
  });
};

const choose = (select, labels) => {
  select.textContent = "";
  labels.forEach((label, index) => select.add(new Option(label, index)));
};

const drawEntry = () => {
  const entry = entryNow();
  const isThere = entry.trajectories.length > 0;
  at("shown").hidden = !isThere;
  at("why").hidden = isThere;
  at("why").textContent = `The test trajectories of this run are not shown: ${entry.why}`;
  for (const id of ["trajectory", "channel", "time", "level"]) at(id).disabled = !isThere;
  drawSigma(entry);
  if (!isThere) return;
  state.trajectory = Math.min(state.trajectory, entry.trajectories.length - 1);
  state.channel = Math.min(state.channel, entry.channels - 1);
  state.time = Math.min(state.time, entry.steps.length - 1);
  choose(at("trajectory"), entry.trajectories.map((stored) => `number ${stored.number}`));
  choose(at("channel"), Array.from({ length: entry.channels }, (_, i) => String(i)));
  at("trajectory").value = state.trajectory;
  at("channel").value = state.channel;
  at("channel-choice").hidden = entry.channels === 1;
  at("time").max = entry.steps.length - 1;
  const [steps, points] = constants.block;
  at("scanned").textContent =
    `${entry.scanned} test trajectories were cut into regions of ${steps} time steps and ${points} points along each ` +
    "axis. Regions are ranked by root mean squares; of those that touch, the worst is listed. Those of a trajectory " +
    `that is stored here${entry.space.length > 1 ? ", and on the line that is," : ""} can be shown in the maps.`;
  at("map-said").textContent = "Point at a map for values.";
  drawMaps();
  drawRegion();
  drawTime();
  drawCoverage(entry);
  listRegions(at("unaware"), entry, entry.unaware);
  listRegions(at("aware"), entry, entry.aware);
};

const startFields = () => {
  const there = report.entries.filter((entry) => entry.trajectories.length);
  if (!report.entries.length) {
    at("shown").hidden = at("sigma-part").hidden = at("choices-fields").hidden = true;
    at("why").hidden = false;
    at("why").textContent = "No run here has test trajectories to show.";
    return;
  }
  const groups = new Set(report.entries.map((entry) => entry.group)).size > 1;
  choose(at("entry"), report.entries.map((entry) => (groups ? `${entry.group}: ${entry.label}` : entry.label)));
  const most = Math.max(0, ...there.map((entry) => entry.trajectories.length));
  at("chosen").textContent =
    `This page holds test trajectories of ${there.length} of ${report.runs} runs, up to ${most} of each: the first ` +
    `ones and, where all were looked through, the one with the region that is furthest off. ${report.chosen}`;
  state.entry = Math.max(0, report.entries.findIndex((entry) => entry.trajectories.length));
  at("entry").value = state.entry;
  state.time = Math.floor((entryNow().steps || []).length / 2);
  buildMaps();
  drawEntry();
  at("choices-fields").addEventListener("submit", (event) => event.preventDefault());
  at("entry").addEventListener("change", () => {
    state.entry = Number(at("entry").value);
    state.region = null;
    drawEntry();
  });
  for (const name of ["trajectory", "channel"]) {
    at(name).addEventListener("change", () => {
      state[name] = Number(at(name).value);
      state.region = null;
      drawMaps();
      drawRegion();
      drawTime();
    });
  }
  at("time").addEventListener("input", () => {
    state.time = Number(at("time").value);
    drawTime();
  });
  at("level").addEventListener("input", drawTime);
};
