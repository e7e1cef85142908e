// Two runs label by label: which labels one gained on the other.

function versusSection(report) {
  const body = el("div");
  let [a, b] = [0, 1];
  const draw = () => body.replaceChildren(...versus(report, a, b));
  const options = report.runs.map((run, index) => [index, run.name]);
  const controls = el(
    "div",
    { class: "controls" },
    choice(
      "Run A",
      options,
      (value) => {
        a = Number(value);
        draw();
      },
      a,
    ),
    choice(
      "Run B",
      options,
      (value) => {
        b = Number(value);
        draw();
      },
      b,
    ),
  );
  draw();
  return section("versus", "Label by label", null, controls, body);
}

function versus(report, a, b) {
  const [first, second] = [report.runs[a], report.runs[b]];
  const other = new Map(second.labels.index.map((label, place) => [label, place]));
  const labels = first.labels.index.flatMap((label, place) => {
    const twin = other.get(label);
    if (twin === undefined || !first.by_label.support[place]) return [];
    const [before, after] = [first.by_label.f1[place], second.by_label.f1[twin]];
    return [
      {
        label,
        third: first.labels.third[place],
        frequency: first.labels.frequency[place],
        support: first.by_label.support[place],
        before,
        after,
        gain: after - before,
      },
    ];
  });
  const won = labels.filter((entry) => entry.gain > 0).length;
  const lost = labels.filter((entry) => entry.gain < 0).length;
  const tell = (entry) =>
    tipLines(report.labels[entry.label], [
      [first.name, percent(entry.before)],
      [second.name, percent(entry.after)],
      ["difference", points(entry.gain)],
      ["training documents", count(entry.frequency)],
      ["documents here", count(entry.support)],
    ]);
  return [
    el(
      "p",
      { class: "lead" },
      `${second.name} is better than ${first.name} on ${plural(won, "label")}, worse on ${count(lost)}, and the same on ${count(labels.length - won - lost)}.`,
    ),
    el(
      "div",
      { class: "columns" },
      figure(
        "F1 of each label that some document here carries. Above the diagonal run B is better. A larger dot is a label on more documents.",
        el("h3", {}, `${second.name} against ${first.name}`),
        legend(report.thirds.map((name, third) => ({ colour: thirdColour(third), text: name }))),
        versusFigure(labels, first, second, tell),
      ),
      figure(
        "The largest differences in F1, in points. For labels with a handful of documents, large differences can be chance.",
        el("h3", {}, "Won and lost"),
        legend([
          { colour: token("won"), text: `${second.name} is better` },
          { colour: token("lost"), text: `${first.name} is better` },
        ]),
        gainFigure(report, labels, tell),
      ),
    ),
  ];
}

function versusFigure(labels, first, second, tell) {
  return chart(
    "F1 of each label in both runs",
    (width) => Math.min(420, width),
    (plot, area) => {
      const ticks = [0, 0.25, 0.5, 0.75, 1];
      const x = linear([0, 1], [area.left, area.right]);
      const y = linear([0, 1], [area.bottom, area.top]);
      const format = (value) => (100 * value).toFixed(0);
      axisLeft(plot, area, y, { title: `F1 of ${shorten(second.name, 30)}`, ticks, format });
      axisBelow(plot, area, x, { title: `F1 of ${shorten(first.name, 30)}`, ticks, format });
      plot.append(svg("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
      const marks = labels.map((entry) => ({ ...entry, x: x(entry.before), y: y(entry.after) }));
      for (const mark of [...marks].sort((one, two) => two.support - one.support)) {
        plot.append(
          svg("circle", {
            class: "dot",
            cx: mark.x,
            cy: mark.y,
            r: 3 + 1.6 * Math.log10(mark.support),
            style: { fill: thirdColour(mark.third) },
          }),
        );
      }
      hoverable(plot, marks, tell);
    },
    { top: 30 },
  );
}

function gainFigure(report, labels, tell) {
  const each = 9;
  const sorted = [...labels].sort((one, two) => two.gain - one.gain);
  const shown = [
    ...sorted.filter((entry) => entry.gain > 0).slice(0, each),
    ...sorted.filter((entry) => entry.gain < 0).slice(-each),
  ];
  if (!shown.length) return el("p", { class: "hint" }, "No label differs.");
  const line = 21;
  return chart(
    "Labels with the largest differences",
    shown.length * line + 40,
    (plot, area) => {
      const widest = Math.max(...shown.map((entry) => Math.abs(entry.gain)));
      const x = linear([-widest, widest], [area.left + 30, area.right - 30]);
      plot.append(svg("line", { class: "baseline", x1: x(0), x2: x(0), y1: area.top - 4, y2: area.bottom }));
      const marks = shown.map((entry, place) => {
        const y = area.top + place * line + line / 2;
        const up = entry.gain > 0;
        plot.append(
          svg("rect", {
            x: Math.min(x(0), x(entry.gain)),
            width: Math.abs(x(entry.gain) - x(0)),
            y: y - 7,
            height: 14,
            rx: 2,
            style: { fill: token(up ? "won" : "lost") },
          }),
          svg(
            "text",
            { class: "value", x: x(entry.gain) + (up ? 5 : -5), y: y + 4, "text-anchor": up ? "start" : "end" },
            points(entry.gain),
          ),
          svg(
            "text",
            { class: "name", x: x(0) + (up ? -7 : 7), y: y + 4, "text-anchor": up ? "end" : "start" },
            shorten(report.labels[entry.label], 24),
          ),
        );
        return { ...entry, x: x(entry.gain), y };
      });
      hoverable(plot, marks, tell, 400);
    },
    { left: 6, right: 6, bottom: 10 },
  );
}
