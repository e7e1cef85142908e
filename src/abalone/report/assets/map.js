// The map: documents where their embeddings lie, coloured by label, with the document under the pointer beside it.

const TOP_LABELS = 8;
const layoutNames = { tsne: "neighbourhoods (t-SNE)", pca: "main directions (PCA)" };

/** What the chosen run makes of one mapped document, in labels that the run knows. */
function judged(report, chosen, document) {
  const run = report.runs[chosen];
  const known = new Set(run.labels.index);
  const meant = report.documents.truth[document].filter((label) => known.has(label));
  const given = run.map.given[document];
  return { meant, given, verdict: (label) => verdictOf(meant.includes(label), given.includes(label)) };
}

const verdictOf = (meant, given) => (meant ? (given ? "hit" : "missed") : given ? "wrong" : "none");
const VERDICTS = { hit: "correct label", missed: "missed label", wrong: "false alarm", none: "neither" };

/** How documents are coloured: a paint for each, and the legend. */
function mapPaint(report, chosen, by) {
  const run = report.runs[chosen];
  const all = report.documents.mapped.map((_, document) => document);
  if (by === "loss") {
    const order = [...run.map.loss].sort((a, b) => a - b);
    const limit = order[Math.floor(order.length * 0.95)] || 1;
    return {
      marks: all.map((document) => ({
        shape: "dot",
        heat: Math.min(1, run.map.loss[document] / limit),
        weight: run.map.loss[document],
      })),
      keys: [
        { colour: token("heat-0"), text: "right and sure" },
        { colour: token("heat-1"), text: "far off" },
      ],
    };
  }
  if (by === "frequent") {
    const top = rankedLabels(run)
      .slice(0, TOP_LABELS)
      .map((entry) => entry.label);
    return {
      marks: all.map((document) => {
        const { meant } = judged(report, chosen, document);
        const place = Math.max(...meant.map((label) => top.indexOf(label)), -1);
        return place < 0 ? { shape: "faint", weight: -1 } : { shape: "dot", paint: `cat-${place}`, weight: place };
      }),
      keys: [
        ...top.map((label, place) => ({ colour: token(`cat-${place}`), text: report.labels[label] })),
        { colour: token("faint"), text: "none of these" },
      ],
    };
  }
  const label = Number(by);
  return {
    marks: all.map((document) => {
      const verdict = judged(report, chosen, document).verdict(label);
      return verdict === "none" ? { shape: "faint", weight: -1 } : { shape: verdict, paint: verdict, weight: 1 };
    }),
    keys: ["hit", "missed", "wrong", "none"].map((verdict) => ({
      colour: token(verdict === "none" ? "faint" : verdict),
      shape: `verdict-${verdict}`,
      text: VERDICTS[verdict],
    })),
  };
}

function drawMark(context, shape, x, y, radius, colour) {
  context.beginPath();
  context.fillStyle = context.strokeStyle = colour;
  if (shape === "missed") {
    context.lineWidth = 1.8;
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  } else if (shape === "wrong") {
    context.lineWidth = 2;
    context.moveTo(x - radius, y - radius);
    context.lineTo(x + radius, y + radius);
    context.moveTo(x + radius, y - radius);
    context.lineTo(x - radius, y + radius);
    context.stroke();
  } else {
    context.arc(x, y, shape === "faint" ? radius * 0.62 : radius, 0, 2 * Math.PI);
    context.fill();
  }
}

function mix(from, to, amount) {
  const channels = (colour) => colour.match(/\w\w/g).map((part) => parseInt(part, 16));
  const [start, stop] = [channels(from), channels(to)];
  return `rgb(${start.map((value, place) => Math.round(value + (stop[place] - value) * amount)).join()})`;
}

class DocumentMap {
  constructor(report, chosen) {
    this.report = report;
    this.chosen = chosen;
    this.layout = "tsne" in report.runs[chosen].map.layouts ? "tsne" : "pca";
    this.by = "frequent";
    this.at = -1;
    this.pinned = false;
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": "Map of the documents; arrow keys go from one to the next",
    });
    this.keys = el("div");
    this.panel = el("aside", { class: "document", "aria-live": "polite" });
    this.frame = el("div", { class: "canvas" }, this.canvas);
    this.paint();
    this.tell(-1);
    this.canvas.addEventListener("pointermove", (event) => this.pinned || this.tell(this.nearest(event, 18)));
    this.canvas.addEventListener("click", (event) => {
      const found = this.nearest(event, 18);
      this.pinned = found >= 0 && !(this.pinned && found === this.at);
      this.tell(found);
    });
    this.canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  paint() {
    const { marks, keys } = mapPaint(this.report, this.chosen, this.by);
    this.marks = marks;
    this.order = marks.map((_, document) => document).sort((a, b) => marks[a].weight - marks[b].weight);
    const note =
      this.by === "frequent" && el("li", {}, "A document with several of them takes the colour of the rarest.");
    this.keys.replaceChildren(legend(keys));
    if (note) this.keys.firstChild.append(note);
    this.draw();
  }

  places() {
    const room = 14;
    const scale = this.size - 2 * room;
    return this.report.runs[this.chosen].map.layouts[this.layout].map(([x, y]) => [
      room + x * scale,
      this.height / 2 + (0.5 - y) * scale,
    ]);
  }

  draw() {
    this.size = Math.floor(this.frame.clientWidth);
    if (!this.size) return;
    const layout = this.report.runs[this.chosen].map.layouts[this.layout];
    const tall = 2 * Math.max(...layout.map(([, y]) => Math.abs(y - 0.5)), 0.25);
    this.height = Math.ceil(tall * (this.size - 28)) + 28;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.size * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.height = `${this.height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const styles = getComputedStyle(document.documentElement);
    const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
    const radius = Math.max(2.6, Math.min(6, (0.17 * this.size) / Math.sqrt(this.marks.length)));
    const places = this.places();
    for (const document of this.order) {
      const { shape, paint, heat } = this.marks[document];
      const own =
        heat !== undefined
          ? mix(colour("heat-0"), colour("heat-1"), heat)
          : colour(shape === "faint" ? "faint" : paint);
      drawMark(context, shape, ...places[document], radius, own);
    }
    if (this.at >= 0) {
      context.beginPath();
      context.lineWidth = 2;
      context.strokeStyle = colour("ink");
      context.arc(...places[this.at], radius + 4, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  nearest(event, reach) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [found, least] = [-1, reach * reach];
    this.places().forEach(([px, py], document) => {
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [found, least] = [document, distance];
    });
    return found >= 0 ? found : this.at;
  }

  /** The nearest document in the direction of the key, from the one that is shown. */
  step(event) {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!way || !this.marks.length) return;
    event.preventDefault();
    const places = this.places();
    const [x, y] = this.at < 0 ? [this.size / 2, this.height / 2] : places[this.at];
    let [found, least] = [this.at, Infinity];
    places.forEach(([px, py], document) => {
      const ahead = (px - x) * way[0] + (py - y) * way[1];
      const aside = Math.abs((px - x) * way[1]) + Math.abs((py - y) * way[0]);
      if (document !== this.at && ahead > 0 && ahead + 3 * aside < least)
        [found, least] = [document, ahead + 3 * aside];
    });
    this.tell(found);
  }

  tell(document) {
    if (document < 0) {
      this.panel.replaceChildren(el("p", { class: "hint" }, "Point at a document to read it here. A click keeps it."));
      return;
    }
    this.at = document;
    const { report, chosen } = this;
    const { meant, given, verdict } = judged(report, chosen, document);
    const labels = [...new Set([...meant, ...given])];
    this.panel.replaceChildren(
      el(
        "h3",
        {},
        `Document ${count(report.documents.mapped[document] + 1)}`,
        el("span", {}, `loss ${report.runs[chosen].map.loss[document].toFixed(2)}`),
      ),
      el("p", { class: "text" }, report.documents.texts[document] || el("em", {}, "(an empty document)")),
      labels.length
        ? el(
            "ul",
            { class: "chips" },
            labels.map((label) => chip(report.labels[label], verdict(label))),
          )
        : el("p", { class: "hint" }, "This document has none of the labels, and none was predicted."),
    );
    this.draw();
  }
}

function chip(name, verdict, note) {
  return el(
    "li",
    { class: `chip ${verdict}`, title: VERDICTS[verdict] },
    el("span", { class: "unseen" }, `${VERDICTS[verdict]}: `),
    name,
    note,
  );
}

function mapSection(report, chosen) {
  if (report.runs.every((run) => !run.map)) return null;
  const run = report.runs[chosen];
  if (!run.map) return section("map", "Map of the documents", "This model has no encoder, so it has no map.");
  const map = new DocumentMap(report, chosen);
  const byThird = report.thirds.map((name, third) => ({
    group: `${name} labels`,
    options: rankedLabels(run)
      .filter((entry) => entry.third === third)
      .map((entry) => [entry.label, report.labels[entry.label]]),
  }));
  const colours = choice(
    "Colour by",
    [
      ["frequent", `the ${Math.min(TOP_LABELS, run.labels.index.length)} most frequent labels`],
      ["loss", "loss: how far off the model is"],
      ...byThird.filter((group) => group.options.length),
    ],
    (value) => {
      map.by = value;
      map.paint();
    },
    "frequent",
  );
  colours.querySelector("select").id = "map-colour";
  const layouts = choice(
    "Layout",
    Object.keys(layoutNames)
      .filter((name) => name in run.map.layouts)
      .reverse()
      .sort((a) => (a === "tsne" ? -1 : 1))
      .map((name) => [name, layoutNames[name]]),
    (value) => {
      map.layout = value;
      map.draw();
    },
    map.layout,
  );
  const shown = report.documents.mapped.length;
  const part =
    shown < report.documents.count
      ? `${count(shown)} of the ${count(report.documents.count)} documents, drawn at random, always the same. `
      : "";
  return section(
    "map",
    "Map of the documents",
    "Each point is a document, near others that the encoder finds similar. Choose a label to see where it is found, missed, and a false alarm.",
    el("div", { class: "controls" }, colours, layouts),
    map.keys,
    el(
      "div",
      { class: "map" },
      figure(
        part +
          "Distances within a neighbourhood mean something, those across the map little." +
          (report.documents.out_of_fold
            ? " The labels are as given out of fold; the places are from the finished model, which has seen the documents."
            : ""),
        map.frame,
      ),
      map.panel,
    ),
  );
}
