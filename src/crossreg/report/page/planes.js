// Whole 2-D fields of the chosen test trajectory at a few steps, x to the right and y upwards.
const planesNow = () => entryNow().planes.find(({ number }) => number === pieceNow().number);
const decodedPlanes = new Map();
const planeFields = () => {
  const stored = planesNow();
  if (!decodedPlanes.has(stored)) decodedPlanes.set(stored, decode(stored, stored.sides[0] * stored.sides[1]));
  return decodedPlanes.get(stored);
};
const planeState = { step: 0 };
// Where a point is in the arrays, which run over steps, channels, x and y.
const planePlace = ({ sides: [nx, ny] }, x, y) => ((planeState.step * entryNow().channels + state.channel) * nx + x) * ny + y;

// One range for all stored steps of a channel, as in the maps over time.
const planeRanges = (planes, fields) => {
  const size = planes.sides[0] * planes.sides[1];
  const { channels } = entryNow();
  const own = (values) => values.filter((_, i) => Math.floor(i / size) % channels === state.channel);
  const top = Math.max(topOf(own(fields.size)), topOf(own(fields.std))) || 1;
  const truth = truthRange(own(fields.truth));
  return { truth, mean: truth, size: [0, top], std_mu: [0, top], std: [0, top] };
};

const buildPlanes = () => {
  for (const [name, title, palette] of MAPS) {
    const canvas = make("canvas", { role: "img", "data-plane": name, "aria-label": title });
    const bar = make("i");
    bar.style.background = gradient(colors[palette]);
    at("planes").append(make("div", { class: "map plane", id: `plane-${name}` },
      make("h4", {}, title),
      make("div", { class: "frame" }, canvas),
      make("div", { class: "bar" }, make("span"), bar, make("span"))));
    const read = (event) => {
      const [bounds, planes] = [canvas.getBoundingClientRect(), planesNow()];
      const [nx, ny] = planes.sides;
      const x = clamp(Math.floor(((event.clientX - bounds.left) / bounds.width) * nx), nx);
      sayPlane(x, ny - 1 - clamp(Math.floor(((event.clientY - bounds.top) / bounds.height) * ny), ny));
    };
    canvas.addEventListener("pointermove", read);
    canvas.addEventListener("click", read); // a tap moves no pointer
  }
  at("plane-step").addEventListener("change", () => {
    planeState.step = Number(at("plane-step").value);
    drawPlanes();
  });
};

const sayPlane = (x, y) => {
  const [planes, fields] = [planesNow(), planeFields()];
  const index = planePlace(planes, x, y);
  const [nx, ny] = planes.sides;
  const values = saidAt(fields, index, drawn["plane-truth"].range);
  const seen = fields.observed[(planeState.step * nx + x) * ny + y] ? "observed" : "hidden";
  at("plane-said").textContent =
    `Step ${planes.steps[planeState.step]}, point ${x * planes.stride}, ${y * planes.stride} (${seen} in the input): ${values}`;
};

const drawPlanes = () => {
  const planes = planesNow();
  const { planes: all, channels } = entryNow();
  at("planes-part").hidden = !all.length;
  at("planes-shown").hidden = !planes;
  at("planes-none").hidden = Boolean(planes);
  if (!all.length) return;
  const { number } = pieceNow();
  at("planes-of").textContent = `test trajectory ${number}${ofWhich(entryNow())}`;
  at("planes-none").textContent =
    `This page holds whole fields of test trajectory ${all.map((one) => one.number).join(", ")}, not of ${number}.`;
  if (!planes) return;
  planeState.step = clamp(planeState.step, planes.steps.length);
  if (at("plane-step").options.length !== planes.steps.length || at("plane-step").options[0].text !== String(planes.steps[0])) {
    choose(at("plane-step"), planes.steps.map(String));
  }
  at("plane-step").value = planeState.step;
  const [fields, [nx, ny]] = [planeFields(), planes.sides];
  const ranges = planeRanges(planes, fields);
  showMean(at("planes"), "plane", hasGaps(fields, (i) => Math.floor(i / (nx * ny)) % channels === state.channel));
  for (const [name, title, palette] of MAPS) {
    const box = at(`plane-${name}`);
    const canvas = box.querySelector("canvas");
    const [low, high] = ranges[name];
    Object.assign(canvas, { width: nx, height: ny });
    const image = new ImageData(nx, ny);
    for (let x = 0; x < nx; x++) {
      for (let y = 0; y < ny; y++) {
        const value = fields[name][planePlace(planes, x, y)];
        const pixel = 4 * ((ny - 1 - y) * nx + x);
        const color = 3 * Math.min(255, Math.max(0, Math.floor((255.999 * (value - low)) / (high - low))));
        for (let c = 0; c < 3; c++) image.data[pixel + c] = Number.isFinite(value) ? colors[palette][color + c] : 128;
        image.data[pixel + 3] = 255;
      }
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    canvas.style.aspectRatio = `${nx} / ${ny}`;
    canvas.setAttribute("aria-label", `${title} at step ${planes.steps[planeState.step]}, ${written(low)} to ${written(high)}`);
    sayEnds(box, ranges[name], palette);
    drawn[`plane-${name}`] = { step: planes.steps[planeState.step], range: ranges[name], values: fields[name] };
  }
};
