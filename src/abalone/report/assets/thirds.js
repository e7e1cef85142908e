// Head, medium and tail: the scores of each third, and what thresholds are worth there.

function thirdsFigure(report) {
  const { runs, thirds } = report;
  const several = runs.length > 1;
  return chart(
    "Macro-F1 of head, medium and tail labels, with 95 % intervals",
    280,
    (plot, area) => {
      const present = thirds
        .map((name, third) => ({ name, third }))
        .filter(({ name }) => runs.some((run) => `macro_f1_${name}` in run.intervals));
      const x = linear([0, present.length], [area.left, area.right]);
      const most = Math.max(
        0.1,
        ...runs.flatMap((run) => present.map(({ name }) => (run.intervals[`macro_f1_${name}`] || [0, 0, 0])[2])),
      );
      const y = linear([0, Math.min(1, most * 1.12)], [area.bottom, area.top]);
      axisLeft(plot, area, y, { format: (value) => (100 * value).toFixed(0) });
      const room = (area.right - area.left) / present.length;
      const width = Math.min(64, (room * 0.7) / runs.length);
      const marks = [];
      present.forEach(({ name, third }, place) => {
        runs.forEach((run, index) => {
          const interval = run.intervals[`macro_f1_${name}`];
          if (!interval) return;
          const middle = x(place + 0.5) + (index - (runs.length - 1) / 2) * width;
          const [value, low, high] = interval;
          plot.append(
            svg("rect", {
              x: middle - width * 0.44,
              width: width * 0.88,
              y: y(value),
              height: area.bottom - y(value),
              rx: 3,
              style: { fill: several ? runColour(index) : thirdColour(third) },
            }),
            svg("path", {
              class: "whisker",
              d: `M${middle},${y(low)}V${y(high)}M${middle - 5},${y(low)}h10M${middle - 5},${y(high)}h10`,
            }),
            svg("text", { class: "value", x: middle, y: y(high) - 7, "text-anchor": "middle" }, percent(value)),
          );
          marks.push({ x: middle, y: y(value), run, name, interval, place });
        });
      });
      axisBelow(plot, area, x, { ticks: [] });
      for (const [place, { name, third }] of present.entries()) {
        const labels = runs[0].labels.third.filter((own) => own === third).length;
        plot.append(
          svg("text", { class: "group", x: x(place + 0.5), y: area.bottom + 20, "text-anchor": "middle" }, name),
          svg(
            "text",
            { class: "subgroup", x: x(place + 0.5), y: area.bottom + 36, "text-anchor": "middle" },
            plural(labels, "label"),
          ),
        );
      }
      hoverable(
        plot,
        marks,
        ({ run, name, interval }) =>
          tipLines(`${run.name}, ${name}`, [
            ["macro-F1", percent(interval[0])],
            ["95 % interval", `${percent(interval[1])} – ${percent(interval[2])}`],
          ]),
        Infinity,
        true,
      );
    },
    { top: 22, bottom: 46 },
  );
}

function thirdsSection(report, chosen) {
  const run = report.runs[chosen];
  const keys =
    report.runs.length > 1
      ? legend(report.runs.map((run, index) => ({ colour: runColour(index), shape: "dot", text: run.name })))
      : null;
  return section(
    "thirds",
    "Head, medium, tail",
    thirdsLead(run),
    el(
      "div",
      { class: "columns" },
      figure(
        "Macro-F1 in percent, with 95 % bootstrap intervals over the documents.",
        el("h3", {}, "By how many training documents carry a label"),
        keys,
        thirdsFigure(report),
      ),
      worthPanel(report, run),
    ),
  );
}

const cutNames = (run) => ({
  half: "0.5 everywhere",
  chosen: `chosen ${run.cross_fitted ? "out of fold" : "on validation"}`,
  hindsight: "best in hindsight",
});

function worthPanel(report, run) {
  const cuts = cutNames(run);
  const keys = Object.keys(cuts)
    .filter((name) => name in run.thresholds)
    .map((name) => ({ colour: token("ink"), shape: `mark-${name}`, text: cuts[name] }));
  return figure(
    `Macro-F1 with 0.5 everywhere, with the thresholds ${cuts.chosen}, and with the best in hindsight, which were chosen on the documents shown here and cannot be known beforehand.`,
    el("h3", {}, "Effect of the thresholds"),
    legend(keys),
    worthFigure(report, run),
  );
}

function thirdsLead(run) {
  const { half, chosen } = run.thresholds;
  const gain = chosen.macro_f1 - half.macro_f1;
  return (
    `The labels in thirds, from frequent to rare. Against 0.5 everywhere the chosen thresholds ${gain >= 0 ? "bring" : "cost"} ` +
    `${Math.abs(100 * gain).toFixed(1)} points of macro-F1.`
  );
}

function worthFigure(report, run) {
  const groups = [
    ["all labels", "macro_f1", token("ink")],
    ...report.thirds.map((name, third) => [name, `macro_f1_${name}`, thirdColour(third)]),
  ].filter(([, metric]) => metric in run.thresholds.chosen);
  return chart(
    "Macro-F1 with different thresholds",
    60 + 46 * groups.length,
    (plot, area) => {
      const most = Math.max(
        0.1,
        ...Object.values(run.thresholds).flatMap((scores) => groups.map(([, metric]) => scores[metric])),
      );
      const x = linear([0, Math.min(1, most * 1.1)], [area.left, area.right]);
      for (const value of x.ticks(5))
        plot.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: area.top, y2: area.bottom }));
      axisBelow(plot, area, x, { title: "macro-F1", format: (value) => (100 * value).toFixed(0) });
      const marks = [];
      groups.forEach(([name, metric, colour], place) => {
        const y = area.top + 24 + place * 46;
        const values = Object.entries(run.thresholds).map(([kind, scores]) => [kind, scores[metric]]);
        const ends = values.map(([, value]) => x(value));
        plot.append(
          svg("text", { class: "group", x: area.left - 10, y: y + 4, "text-anchor": "end" }, name),
          svg("line", {
            class: "link",
            x1: Math.min(...ends),
            x2: Math.max(...ends),
            y1: y,
            y2: y,
            style: { stroke: colour },
          }),
        );
        for (const [kind, value] of values) {
          const px = x(value);
          plot.append(
            kind === "chosen"
              ? svg("circle", { cx: px, cy: y, r: 6, style: { fill: colour } })
              : kind === "half"
                ? svg("circle", { class: "hollow", cx: px, cy: y, r: 5, style: { stroke: colour } })
                : svg("path", { class: "pen", d: `M${px},${y - 8}V${y + 8}`, style: { stroke: colour } }),
          );
          marks.push({ x: px, y, name, kind, value });
        }
      });
      hoverable(plot, marks, ({ name, kind, value }) =>
        tipLines(`${name}, macro-F1`, [[cutNames(run)[kind], percent(value)]]),
      );
    },
    { left: 84, top: 6 },
  );
}
