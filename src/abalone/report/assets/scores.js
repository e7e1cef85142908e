// How good: one run's numbers, or several side by side with what the documents allow to say of their differences.

const OUT_OF_FOLD = "out of fold"; // scores of documents that were trained on, by models that had not seen them

function tile(name, value, note, emphasised) {
  return el(
    "div",
    { class: emphasised ? "tile emphasised" : "tile" },
    el("div", { class: "name" }, name),
    el("div", { class: "value" }, value),
    note && el("div", { class: "note" }, note),
  );
}

function tiles(run) {
  const shown = ["macro_f1", "macro_f1_head", "macro_f1_medium", "macro_f1_tail", "micro_f1"];
  const scores = run.scores || run.stored_scores.validation;
  if (!scores) return null;
  return el(
    "div",
    { class: "tiles" },
    shown
      .filter((metric) => metric in scores)
      .map((metric) => {
        const interval = run.intervals && run.intervals[metric];
        const note = interval ? `95 %: ${percent(interval[1])} – ${percent(interval[2])}` : "on validation";
        return tile(METRICS[metric], percent(scores[metric]), note, metric === "macro_f1");
      }),
    run.baseline && tile("tf-idf alone", percent(run.baseline.macro_f1), "macro-F1 of the baseline"),
  );
}

function scoresSection(report) {
  const columns = [];
  report.runs.forEach((run) => {
    const of = report.runs.length > 1 ? `${run.name}, ` : "";
    const split = report.documents ? report.documents.split : OUT_OF_FOLD;
    if (run.scores) columns.push([`${of}${split}`, run.scores]);
    if (run.baseline) columns.push([`${of}${split}, tf-idf alone`, run.baseline]);
    for (const [stored, scores] of Object.entries(run.stored_scores))
      if (!run.out_of_fold || !stored.startsWith(OUT_OF_FOLD)) columns.push([`${of}${stored}`, scores]);
  });
  if (!columns.length) return null;
  const differs = (metric, scores) => metric !== "macro_f1_present" || scores[metric] !== scores.macro_f1;
  const present = Object.keys(METRICS).filter((metric) =>
    columns.some(([, scores]) => metric in scores && differs(metric, scores)),
  );
  const rows = present.map((metric) => {
    const values = columns.map(([, scores]) => scores[metric]);
    return [METRICS[metric], ...values.map((value) => scoreText(metric, value))];
  });
  return section(
    "scores",
    "All scores",
    "In percent, except the Hamming loss." +
      (report.runs.every((run) => run.cross_fitted)
        ? ""
        : " Thresholds were chosen on validation, so scores there look a little too good.") +
      (report.runs.some((run) => run.baseline)
        ? " “tf-idf alone” is the tf-idf expert without the encoder, with its own thresholds: the baseline to beat."
        : ""),
    el(
      "div",
      { class: "card" },
      table("Scores", ["", ...columns.map(([name]) => name)], rows, { class: "numbers compact" }),
    ),
  );
}

/** Several runs on the same documents, each against the one that is chosen. */
function comparisonSection(report) {
  const { comparison, runs } = report;
  const body = el("div");
  const metrics = Object.keys(METRICS).filter((metric) => comparison.scores.every((scores) => metric in scores));
  const draw = (reference) => {
    const others = runs.map((_, index) => index).filter((index) => index !== reference);
    const heads = ["", [runHead(runs, reference), { class: "reference" }]];
    for (const index of others) heads.push(runHead(runs, index), ["difference", { class: "wide" }]);
    const widest = Math.max(
      0.01,
      ...others.flatMap((index) =>
        metrics.flatMap((metric) => comparison.differences[index][reference][metric].map(Math.abs)),
      ),
    );
    const rows = metrics.map((metric) => {
      const row = [METRICS[metric], [percent(comparison.scores[reference][metric][0]), { class: "reference" }]];
      for (const index of others) {
        row.push(percent(comparison.scores[index][metric][0]), [
          differenceBar(comparison.differences[index][reference][metric], widest),
          { class: "wide" },
        ]);
      }
      return row;
    });
    body.replaceChildren(table("Scores side by side", heads, rows, { class: "numbers comparison" }));
  };
  draw(0);
  const caption =
    `F1 in percent on the same ${plural(comparison.documents, "document")}` +
    (comparison.shared < report.labels.length ? ` and the ${comparison.shared} labels that all runs know` : "") +
    ". Bars are 95 % bootstrap intervals of the difference, over a thousand resamples of the documents, the same " +
    "for every run; pale where the interval contains zero. Training with another seed would add to the variation.";
  return section(
    "comparison",
    "Side by side",
    comparisonLead(comparison, runs),
    choice(
      "Against",
      runs.map((run, index) => [index, run.name]),
      (value) => draw(Number(value)),
      0,
    ),
    figure(caption, body),
  );
}

function comparisonLead(comparison, runs) {
  const order = runs
    .map((_, index) => index)
    .sort((a, b) => comparison.scores[b].macro_f1[0] - comparison.scores[a].macro_f1[0]);
  const [best, next] = order;
  const [value, low] = comparison.differences[best][next].macro_f1;
  const sure = low > 0 ? "and its 95 % interval excludes 0" : "which may be chance";
  return (
    `${runs[best].name} has the best macro-F1, ${percent(comparison.scores[best].macro_f1[0])}: ` +
    `${points(value)} on ${runs[next].name}, ${sure}.`
  );
}

function runHead(runs, index) {
  return el(
    "span",
    { class: "run" },
    el("span", { class: "key dot", style: { "--colour": runColour(index) } }),
    runs[index].name,
  );
}

function differenceBar([value, low, high], widest) {
  const width = 132;
  const scale = linear([-widest, widest], [4, width - 4]);
  const kind = low > 0 ? "won" : high < 0 ? "lost" : "unsure";
  const bar = svg(
    "svg",
    { width, height: 18, class: `difference ${kind}`, "aria-hidden": "true" },
    svg("line", { class: "zero", x1: width / 2, x2: width / 2, y1: 0, y2: 18 }),
    svg("line", { class: "range", x1: scale(low), x2: scale(high), y1: 9, y2: 9 }),
    svg("circle", { cx: scale(value), cy: 9, r: 4 }),
  );
  return el(
    "span",
    { class: "differs" },
    el("span", { class: `amount ${kind}` }, points(value)),
    bar,
    el("span", { class: "interval" }, `${points(low)} … ${points(high)}`),
  );
}
