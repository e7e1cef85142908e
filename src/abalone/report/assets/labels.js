// Every label in one table that can be sorted and searched.

function labelTable(report, chosen) {
  const run = report.runs[chosen];
  const rows = rankedLabels(run).map((entry) => ({
    ...entry,
    name: report.labels[entry.label],
    threshold: run.labels.threshold[entry.place],
    ...Object.fromEntries(Object.keys(run.by_label).map((measure) => [measure, run.by_label[measure][entry.place]])),
    // What no document carries has no recall and no F1: it must not stand among the worst.
    ...(run.by_label.support[entry.place] ? {} : { recall: null, f1: null }),
  }));
  const columns = [
    ["name", "label"],
    ["frequency", "in training"],
    ["support", "here"],
    ["predicted", "predicted"],
    ["precision", "precision"],
    ["recall", "recall"],
    ["f1", "F1"],
    ["threshold", "threshold"],
  ];
  const body = el("div");
  let [by, down, words] = ["frequency", true, ""];
  const draw = () => {
    const order = (a, b) =>
      (by === "name" ? a.name.localeCompare(b.name) : (a[by] ?? 2) - (b[by] ?? 2)) * (down ? -1 : 1);
    const shown = rows.filter((row) => row.name.toLowerCase().includes(words)).sort(order);
    const heads = columns.map(([key, text]) => [
      el(
        "button",
        {
          type: "button",
          class: "sort",
          onclick: () => {
            [by, down] = [key, by === key ? !down : key !== "name"];
            draw();
          },
        },
        text,
      ),
      { "aria-sort": by === key ? (down ? "descending" : "ascending") : "none" },
    ]);
    body.replaceChildren(
      table(
        "Labels",
        heads,
        shown.map((row) => [
          [
            [el("span", { class: "key dot", style: { "--colour": thirdColour(row.third) } }), row.name],
            { class: "label-name" },
          ],
          count(row.frequency),
          count(row.support),
          count(row.predicted),
          percent(row.precision),
          percent(row.recall),
          percent(row.f1),
          row.threshold === null ? "never" : share(row.threshold),
        ]),
        { class: "numbers" },
      ),
    );
  };
  draw();
  const search = el("input", {
    type: "search",
    placeholder: "Find a label",
    "aria-label": "Find a label",
    oninput: (event) => {
      words = event.target.value.toLowerCase();
      draw();
    },
  });
  return el("details", {}, el("summary", {}, `All ${count(rows.length)} labels as a table`), search, body);
}
