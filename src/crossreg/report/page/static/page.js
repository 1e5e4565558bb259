// The figures of every group, the list of sections, and the colours.
const MOST_SHOWN = 6;
const MOST_SITES = 12;

// The look of a method, that of its family. Of many methods, only the first are switched on.
const looksIn = (group, label, i) => ({ ...lookOf(report.groups[group].looks[label] || [i, 0]), hidden: i >= MOST_SHOWN });

const calibration = (box, group, regime, split) => chart(box, {
  name: `calibration-${group}-${split}`,
  title: `Calibration on ${split}`, note: regime.label, height: 330,
  x: "nominal coverage", y: "empirical coverage", xRange: [0, 1], yRange: [0, 1], diagonal: true, legend: true,
  series: regime.lines.flatMap((line, i) => {
    const named = { key: line.label, label: `${line.label} (ECE ${fixed(line.ece[split], 3)})` };
    return line.coverage[split] ? [{ ...named, x: report.levels, y: line.coverage[split], marks: true, ...looksIn(group, line.label, i) }] : [];
  }),
});

// The note on curves of a training. A car experiment is trained on other cars than those of its calibration.
const trainedOn = (regime) => regime.trained || regime.label;
const LOSSES = [["train_loss", "train", ""], ["reg_nll", "reg", "6 3"]];
const losses = (box, group, regime) => chart(box, {
  name: `losses-${group}`,
  title: "Losses while training",
  note: `${trainedOn(regime)}; solid: NLL on train batches, dashed: NLL on reg${regime.trained ? "" : ", mean over seeds"}`,
  x: "step", y: "NLL per point", cut: true,
  series: regime.lines.flatMap((line, i) => LOSSES.flatMap(([key, split, dash]) => {
    const shade = shadeOf(report.groups[group].looks[line.label] || [i, 0]);
    const look = { color: shade, dash, hidden: i >= MOST_SHOWN / 2 };
    const label = `${line.label}, ${split}`;
    return line.history ? [{ label, x: line.history.step, y: line.history[key], ...look }] : [];
  })),
});

const monitored = (box, group, regime) => chart(box, {
  name: `ece-${group}`,
  title: "ECE on reg while training", note: trainedOn(regime), x: "step", y: "ECE", floor: 0,
  series: regime.lines.flatMap(({ label, history }, i) =>
    (history ? [{ label, x: history.step, y: history.reg_ece, ...looksIn(group, label, i) }] : [])),
});

const sigmas = (box, group, regime, { label, history }) => chart(box, {
  name: `sigma-${group}-${label}`,
  title: `σ per site while training, ${label}`,
  note: `${trainedOn(regime)}; geometric mean over channels${regime.trained ? "" : ", mean over seeds"}`,
  x: "step", y: "σ", log: true, least: 1,
  series: siteSeries(history).map((s, i) => ({ ...s, hidden: i >= MOST_SITES })),
});

const overField = (box, group, curve, number) => chart(box, {
  name: `curve-${group}-${number}`,
  title: `${curve.y} against ${curve.x}`,
  note: `${curve.where ? `${curve.where}; ` : ""}mean and 95% interval over seeds`,
  x: curve.x, y: curve.y, cut: curve.y === "test NLL", floor: curve.y === "test NLL" ? undefined : 0, legend: true,
  series: curve.series.map((s, i) => ({ ...s, marks: true, radius: 4, ...looksIn(group, s.label, i) })),
});

const redraws = [];
const startGroup = (box) => {
  const number = Number(box.dataset.group);
  const group = report.groups[number];
  const curves = group.curves.map(() => make("div"));
  box.append(...curves);
  const drawCurves = () => curves.forEach((place, i) => overField(place, number, group.curves[i], i));
  const select = make("select", { id: `regime-${number}` });
  group.regimes.forEach((regime, index) => select.add(new Option(regime.label, index)));
  const counts = group.regimes.map((regime) => regime.lines.length);
  select.value = counts.indexOf(Math.max(...counts)); // where there is most to compare
  const label = make("label", { for: select.id }, "Figures of");
  const choice = make("div", { class: "regime" }, label, select);
  choice.hidden = group.regimes.length < 2;
  box.append(choice);
  const inside = [];
  const drawRegime = () => {
    const regime = group.regimes[Number(select.value)];
    while (inside.length) inside.pop()[0].remove();
    const add = (draw) => inside.push([make("div"), draw]);
    const has = (name) => regime.lines.some((line) => line.history && line.history[name].some(isNumber));
    for (const split of ["test", "reg"]) {
      if (regime.lines.some((line) => line.coverage[split])) add((place) => calibration(place, number, regime, split));
    }
    if (has("train_loss") || has("reg_nll")) add((place) => losses(place, number, regime));
    if (has("reg_ece")) add((place) => monitored(place, number, regime));
    const noisy = regime.lines.filter((line) => line.history && Object.keys(line.history.sigma).length);
    for (const line of noisy.slice(0, 4)) add((place) => sigmas(place, number, regime, line));
    // Place all of them before the first is drawn: a chart takes the width of its place.
    box.append(...inside.map(([place]) => place));
    for (const [place, draw] of inside) draw(place);
  };
  select.addEventListener("change", drawRegime);
  redraws.push(drawCurves, drawRegime);
  drawCurves();
  drawRegime();
};

for (const section of document.querySelectorAll("main > section:not([hidden])")) {
  const title = section.querySelector("h2").textContent;
  at("contents").append(make("li", {}, make("a", { href: `#${section.id}` }, title)));
}
for (const box of document.querySelectorAll(".figures")) startGroup(box);
startFields();

onResize(() => {
  redraws.forEach((draw) => draw());
  if (report.entries.length) drawEntry();
});
document.documentElement.dataset.ready = "yes";
