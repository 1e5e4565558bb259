"use strict";
(() => {
  const run = JSON.parse(document.getElementById("run").textContent);
  const at = (id) => document.getElementById(id);
  const QUANTITIES = {
    truth: "truth",
    mean: "mean",
    error: "|error|",
    std_predictive: "predictive standard deviation",
    std_generalization: "generalization standard deviation",
    std: "total standard deviation",
  };
  // Where the viewer stands, in the plot's axes: along the car, across, up.
  const VIEWS = {
    "front quarter": [-1.45, -1.28, 0.72],
    "rear quarter": [1.45, -1.28, 0.72],
    side: [0, -1.9, 0.15],
    front: [-1.9, 0, 0.15],
    rear: [1.9, 0, 0.15],
    top: [0, -0.01, 1.9],
  };
  const decode = (text, Type) => new Type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const every = (array, start, stride) => array.filter((_, index) => index % stride === start);
  const average = (array) => array.reduce((sum, value) => sum + value, 0) / array.length;
  const quantile = (array, level) => Float32Array.from(array).sort()[Math.floor(level * (array.length - 1))];
  const short = (value) => value.toPrecision(3).replace("-", "−");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // Arrays are decoded when a car is first looked at.
  const decoded = new Map();
  const carOf = (index) => {
    if (!decoded.has(index)) {
      const stored = run.cars[index];
      const truth = decode(stored.truth, Float32Array);
      const fields = {};
      for (const [method, parts] of Object.entries(stored.predictions)) {
        const own = { truth };
        for (const [name, text] of Object.entries(parts)) own[name] = decode(text, Float32Array);
        own.error = own.mean.map((value, vertex) => Math.abs(value - truth[vertex]));
        fields[method] = own;
      }
      const faces = stored.faces === null ? null : decode(run.faces[stored.faces], Uint32Array);
      decoded.set(index, { vertices: decode(stored.vertices, Float32Array), faces, roofline: stored.roofline, fields });
    }
    return decoded.get(index);
  };

  const fill = (select, entries) => {
    for (const [value, text] of entries) select.add(new Option(text, value));
  };
  fill(at("car"), run.cars.map((car, index) => [index, car.label]));
  fill(at("method"), run.methods.map((name) => [name, name]));
  fill(at("quantity"), Object.entries(QUANTITIES));
  fill(at("view"), Object.keys(VIEWS).map((name) => [name, name]));
  at("car").value = run.first_car;
  at("quantity").value = "error";

  const hasWebGL = (() => {
    const canvas = document.createElement("canvas");
    return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
  })();

  const scaleOf = (car, method, quantity) => {
    if (quantity === "truth" || quantity === "mean") {
      const limit = quantile(car.fields[method].truth.map(Math.abs), run.top_level);
      return { colorscale: run.scales.pressure, cmin: -limit, cmax: limit };
    }
    const shown = at("common").checked ? Object.values(car.fields) : [car.fields[method]];
    const values = shown.flatMap((fields) => [...fields.error, ...fields.std]);
    return { colorscale: run.scales.error, cmin: 0, cmax: quantile(values, run.top_level) };
  };

  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: color("text"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: color("field"), bordercolor: color("line"), font: { color: color("text") } },
    ...more,
  });
  const config = { responsive: true, displayModeBar: false };

  const drawSurface = (car, method, quantity) => {
    if (!hasWebGL) {
      at("surface").className = "notice";
      at("surface").textContent =
        "This browser has no WebGL, so the surface cannot be turned here. Everything else on this page works. " +
        "The figures folder beside this page has the surface as pictures.";
      at("surface-hint").hidden = at("view").disabled = true;
      return;
    }
    const fields = car.fields[method];
    const values = fields[quantity];
    const line = (name, vertex) => `${QUANTITIES[name]} ${short(fields[name][vertex])}`;
    const text = Array.from(values, (_, vertex) =>
      Object.keys(QUANTITIES)
        .map((name) => line(name, vertex))
        .join("<br>"),
    );
    // The plot's third axis is up, so that turning keeps the car upright.
    const [x, y, z] = [2, 0, 1].map((axis) => every(car.vertices, axis, 3));
    const scale = scaleOf(car, method, quantity);
    const bar = {
      title: { text: `${QUANTITIES[quantity]}, ${run.units}`, side: "top" },
      orientation: "h",
      y: 0,
      yanchor: "bottom",
      thickness: 12,
      len: 0.8,
      outlinewidth: 0,
    };
    const shared = { x, y, z, text, hovertemplate: "%{text}<extra></extra>", showlegend: false };
    const body = car.faces
      ? {
          ...shared,
          ...scale,
          type: "mesh3d",
          ...Object.fromEntries(["i", "j", "k"].map((name, corner) => [name, every(car.faces, corner, 3)])),
          intensity: values,
          colorbar: bar,
          lighting: { ambient: 0.75, diffuse: 0.35, specular: 0.03, roughness: 0.9, fresnel: 0.05 },
          lightposition: { x: -2000, y: -2000, z: 6000 },
        }
      : { ...shared, type: "scatter3d", mode: "markers", marker: { ...scale, color: values, size: 3, colorbar: bar } };
    const height = Math.max(...z) - Math.min(...z);
    const roof = {
      type: "scatter3d",
      mode: "lines",
      x: car.roofline.map((vertex) => x[vertex]),
      y: car.roofline.map((vertex) => y[vertex]),
      z: car.roofline.map((vertex) => z[vertex] + 0.01 * height),
      line: { color: "#e377c2", width: 4 },
      hoverinfo: "skip",
      showlegend: false,
    };
    const hidden = { visible: false };
    const { clientWidth, clientHeight } = at("surface");
    // A narrow window shows the whole car from farther away.
    const farther = Math.max(1, (1.25 * clientHeight) / clientWidth);
    const [along, across, up] = VIEWS[at("view").value].map((length) => farther * length);
    Plotly.react(
      "surface",
      [body, roof],
      layout({
        margin: { l: 0, r: 0, t: 0, b: 0 },
        uirevision: at("view").value, // as turned by hand, until another view is chosen
        scene: {
          xaxis: hidden,
          yaxis: hidden,
          zaxis: hidden,
          domain: { x: [0, 1], y: [0.14, 1] },
          aspectmode: "data",
          dragmode: "turntable",
          camera: { eye: { x: along, y: across, z: up } },
        },
      }),
      config,
    );
  };

  const drawRoofline = (car, method) => {
    const fields = car.fields[method];
    const along = (values) => car.roofline.map((vertex) => values[vertex]);
    const [z, mean, truth] = [along(every(car.vertices, 2, 3)), along(fields.mean), along(fields.truth)];
    const band = (part, name) => {
      const half = along(fields[part]).map((value) => run.band * value);
      const ends = [mean.map((m, i) => m + half[i]), mean.map((m, i) => m - half[i])];
      return {
        x: [...z, ...[...z].reverse()],
        y: [...ends[0], ...ends[1].reverse()],
        fill: "toself",
        fillcolor: color(name),
        line: { width: 0 },
        mode: "lines",
        hoverinfo: "skip",
        name: `mean ± ${run.band}σ, ${name}`,
      };
    };
    const axis = { gridcolor: color("line"), zeroline: false, automargin: true };
    Plotly.react(
      "roofline",
      [
        band("std", "total"),
        band("std_predictive", "predictive"),
        { x: z, y: mean, mode: "lines", name: "mean", line: { color: color("mean"), width: 2 } },
        { x: z, y: truth, mode: "markers", name: "truth", marker: { color: color("text"), size: 5 } },
      ],
      layout({
        margin: { l: 50, r: 10, t: 10, b: 40 },
        hovermode: "x unified",
        legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
        xaxis: { ...axis, title: { text: "z along the car, nose to tail" }, hoverformat: ".3g" },
        yaxis: { ...axis, title: { text: run.pressure_label }, hoverformat: ".3g" },
      }),
      config,
    );
  };

  const say = (car, method) => {
    const { error, std, truth } = car.fields[method];
    const square = (values) => average(values.map((value) => value * value));
    const inside = average(error.map((value, vertex) => (value <= run.band * std[vertex] ? 1 : 0)));
    at("said").textContent =
      `${method} on this car: relative L2 error ${short(Math.sqrt(square(error) / square(truth)))}, ` +
      `mean |error| ${short(average(error))}, mean standard deviation ${short(average(std))} (${run.units}); ` +
      `the truth is within ± ${run.band}σ at ${(100 * inside).toFixed(0)}% of the vertices.`;
  };

  const draw = () => {
    const car = carOf(Number(at("car").value));
    const [method, quantity] = [at("method").value, at("quantity").value];
    at("common").disabled = quantity === "truth" || quantity === "mean";
    say(car, method);
    drawRoofline(car, method);
    drawSurface(car, method, quantity);
  };
  at("choices").addEventListener("change", draw);
  at("choices").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("theme", draw); // the plots have its colours in them
  if (run.cars.length && run.methods.length) draw();
  else at("said").textContent = "No method has a finite prediction, so there is nothing to draw.";
})();
