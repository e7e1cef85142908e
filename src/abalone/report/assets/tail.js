// The long tail: how often each label was there to learn from, and what was learned.

const NEEDY = 5; // labels that need examples
const NAME_LENGTH = 20; // characters of a label under the chart
const NAME_ROOM = 11; // pixels from one name to the next

const rankedLabels = (run) =>
  run.labels.index
    .map((label, place) => ({ label, place, third: run.labels.third[place], frequency: run.labels.frequency[place] }))
    .sort((a, b) => b.frequency - a.frequency || a.place - b.place);

/** Mean of the neighbours in rank: the trend that single labels scatter around. */
function trend(values, half) {
  return values.map((_, at) => {
    const near = values.slice(Math.max(0, at - half), at + half + 1);
    return near.reduce((sum, value) => sum + value, 0) / near.length;
  });
}

function tailFigure(report, chosen) {
  const run = report.runs[chosen];
  const ranked = rankedLabels(run);
  const scored = Boolean(run.by_label);
  const label = scored
    ? "Training documents of each label, most frequent first, above its F1"
    : "Training documents of each label, most frequent first";
  const names = ranked.map((entry) => shorten(report.labels[entry.label], NAME_LENGTH));
  const below = 14 + 6.1 * Math.max(...names.map((name) => name.length));
  return chart(
    label,
    (scored ? 450 : 250) + below,
    (plot, area) => {
      const split = scored ? area.top + (area.bottom - area.top) * 0.4 : area.bottom;
      const upper = { ...area, bottom: split - (scored ? 26 : 0) };
      const lower = { ...area, top: split + 10 };
      const x = linear([-0.5, ranked.length - 0.5], [area.left, area.right]);
      const most = Math.max(10, ranked[0].frequency);
      const bars = logarithmic([0.7, most * 1.25], [upper.bottom, upper.top]);
      axisLeft(plot, upper, bars, {
        title: "training documents (log scale)",
        format: count,
        ticks: bars.ticks().filter((value) => value >= 1),
      });
      thirdBands(plot, area, x, ranked, report.thirds);
      const step = (area.right - area.left) / ranked.length;
      const width = Math.max(1, step * (step > 5 ? 0.72 : 1));
      const marks = [];
      for (const [rank, entry] of ranked.entries()) {
        if (entry.frequency > 0) {
          plot.append(
            svg("rect", {
              class: "bar",
              x: x(rank) - width / 2,
              width,
              y: bars(entry.frequency),
              height: upper.bottom - bars(entry.frequency),
              rx: width > 5 ? 1.5 : 0,
              style: { fill: thirdColour(entry.third) },
            }),
          );
        }
        marks.push({ x: x(rank), y: bars(Math.max(1, entry.frequency)), rank, entry });
      }
      plot.append(
        svg("line", { class: "baseline", x1: area.left, x2: area.right, y1: upper.bottom, y2: upper.bottom }),
      );
      if (scored) drawF1(report, chosen, plot, lower, x, ranked, marks);
      axisBelow(plot, area, x, { ticks: [] });
      labelNames(plot, area, x, names, below);
      hoverable(plot, marks, ({ rank, entry }) => labelTip(report, chosen, entry, rank), Infinity, true);
    },
    { top: 30, bottom: 22 + below },
  );
}

/** Names under the chart, as many as there is room for. */
function labelNames(plot, area, x, names, below) {
  const every = Math.ceil(NAME_ROOM / (x(1) - x(0)));
  names.forEach((name, rank) => {
    if (rank % every) return;
    const place = `translate(${x(rank) + 4},${area.bottom + 8}) rotate(-90)`;
    plot.append(svg("text", { class: "label", transform: place, "text-anchor": "end" }, name));
  });
  const some = every > 1 ? "; there is room for some names, point at the chart for the others" : "";
  plot.append(
    svg(
      "text",
      { class: "title", x: area.right, y: area.bottom + below + 14, "text-anchor": "end" },
      `${plural(names.length, "label")}, most frequent first${area.width > 600 ? some : ""}`,
    ),
  );
}

function drawF1(report, chosen, plot, area, x, ranked, marks) {
  const run = report.runs[chosen];
  const y = linear([0, 1], [area.bottom, area.top]);
  axisLeft(plot, area, y, { title: "F1", format: (value) => (100 * value).toFixed(0), ticks: [0, 0.25, 0.5, 0.75, 1] });
  const half = Math.max(2, Math.round(ranked.length / 16));
  report.runs.forEach((other, index) => {
    const f1 = new Map(other.labels.index.map((label, place) => [label, other.by_label.f1[place]]));
    const known = ranked.map((entry, rank) => [rank, f1.get(entry.label)]).filter(([, value]) => value !== undefined);
    const smooth = trend(
      known.map(([, value]) => value),
      half,
    );
    plot.append(
      svg("path", {
        d: path(known.map(([rank], place) => [x(rank), y(smooth[place])])),
        class: index === chosen ? "trend" : "trend other",
        style: { stroke: report.runs.length > 1 ? runColour(index) : token("ink") },
      }),
    );
  });
  const radius = Math.max(1.6, Math.min(4.5, (area.right - area.left) / ranked.length / 2.4));
  for (const [rank, entry] of ranked.entries()) {
    const value = run.by_label.f1[entry.place];
    const absent = run.by_label.support[entry.place] === 0;
    if (radius > 2.5)
      plot.append(
        svg("line", {
          class: "stem",
          x1: x(rank),
          x2: x(rank),
          y1: area.bottom,
          y2: y(value),
          style: { stroke: thirdColour(entry.third) },
        }),
      );
    plot.append(
      svg("circle", {
        class: absent ? "dot hollow" : "dot",
        cx: x(rank),
        cy: y(value),
        r: radius,
        style: { [absent ? "stroke" : "fill"]: thirdColour(entry.third) },
      }),
    );
    marks.push({ x: x(rank), y: y(value), rank, entry });
  }
}

function thirdBands(plot, area, x, ranked, names) {
  names.forEach((name, third) => {
    const ranks = ranked.flatMap((entry, rank) => (entry.third === third ? [rank] : []));
    if (!ranks.length) return;
    const start = x(Math.min(...ranks) - 0.5);
    const stop = x(Math.max(...ranks) + 0.5);
    plot.prepend(
      svg("rect", {
        class: "band",
        x: start,
        width: stop - start,
        y: area.top - 8,
        height: area.bottom - area.top + 8,
        style: { fill: thirdColour(third) },
      }),
    );
    plot.append(
      svg(
        "text",
        { class: "third", x: stop - 6, y: area.top + 8, "text-anchor": "end", style: { fill: thirdColour(third) } },
        THIRD_NAMES[name],
      ),
    );
  });
}

function labelTip(report, chosen, entry, rank) {
  const run = report.runs[chosen];
  const own = (measure) => run.by_label[measure][entry.place];
  const threshold = run.labels.threshold[entry.place];
  return tipLines(report.labels[entry.label], [
    ["rank", `${rank + 1} of ${run.labels.index.length}, ${report.thirds[entry.third]}`],
    ["training documents", count(entry.frequency)],
    run.by_label && [
      "F1",
      `${percent(own("f1"))} (precision ${percent(own("precision"))}, recall ${percent(own("recall"))})`,
    ],
    run.by_label && ["here", `on ${plural(own("support"), "document")}, predicted for ${count(own("predicted"))}`],
    ["threshold", threshold === null ? "never predicted" : share(threshold)],
  ]);
}

function tailLead(report, chosen) {
  const run = report.runs[chosen];
  const share30 = run.statistics.labels_under_30;
  const rare = `${share30 === 1 ? "One label has" : `${count(share30)} of ${count(run.labels.index.length)} labels have`} fewer than 30 training documents`;
  if (!run.scores || !("macro_f1_tail" in run.scores)) return `${rare}.`;
  const gap = run.scores.macro_f1_head - run.scores.macro_f1_tail;
  const unknown = run.by_label.f1.filter((value, place) => value === 0 && run.by_label.support[place] > 0).length;
  return (
    `${rare}. From head to tail ${report.runs.length > 1 ? `${run.name} loses` : "the model loses"} ${(100 * gap).toFixed(1)} points of macro-F1` +
    (unknown
      ? `; ${unknown === 1 ? "one label" : `${count(unknown)} labels`} that these documents carry ${unknown === 1 ? "is" : "are"} never found.`
      : ".")
  );
}

/** Where more training documents would help most: rare labels that are found badly. */
function needsExamples(report, run) {
  const places = run.needs_examples;
  const shown = places.slice(0, NEEDY);
  const own = (measure, place) => run.by_label[measure][place];
  return figure(
    "Labels on fewer than 30 training documents, and with an F1 below 50 here: more training documents help these most. Found: the documents here that carry the label and are given it.",
    el("h3", {}, places.length === 1 ? "This label needs examples" : `These ${count(shown.length)} labels need examples`,
      places.length > shown.length && el("span", {}, `of ${count(places.length)} such labels, the worst first`)),
    table(
      "Labels that need examples",
      ["label", "in training", "here", "found", "F1"],
      shown.map((place) => [
        report.labels[run.labels.index[place]],
        count(run.labels.frequency[place]),
        count(own("support", place)),
        count(own("recall", place) * own("support", place)),
        percent(own("f1", place)),
      ]),
      { class: "numbers narrow" },
    ),
  );
}

function tailSection(report, chosen) {
  const run = report.runs[chosen];
  const caption = run.by_label
    ? "Above, the training documents of each label; below, its F1 here. The line is the mean over neighbouring labels. A hollow dot is a label that no document here carries."
    : "The training documents of each label.";
  const keys =
    report.runs.length > 1 && run.by_label
      ? legend(report.runs.map((other, index) => ({ colour: runColour(index), shape: "line", text: other.name })))
      : null;
  return section(
    "tail",
    "The long tail",
    tailLead(report, chosen),
    keys,
    figure(caption, tailFigure(report, chosen)),
    run.needs_examples && run.needs_examples.length > 0 && needsExamples(report, run),
    run.by_label && labelTable(report, chosen),
  );
}
