// How the runs were made: settings, data, and what was mixed in.

const DATA_FACTS = [
  "train",
  "validation",
  "labels",
  "labels_per_document",
  "words_per_document",
  "frequency_max",
  "frequency_median",
  "frequency_min",
  "labels_under_30",
  "gini",
];

function settingsSection(report) {
  const several = report.runs.length > 1;
  const names = Object.keys(report.runs[0].settings);
  const differs = (name) => new Set(report.runs.map((run) => JSON.stringify(run.settings[name]))).size > 1;
  const text = (value) => (value === null ? "–" : String(value));
  const row = (name) => [el("code", {}, name), ...report.runs.map((run) => text(run.settings[name]))];
  const heads = ["", ...report.runs.map((run) => run.name)];
  const number = (value) => (Number.isInteger(value) ? count(value) : value === undefined ? "–" : value.toFixed(2));
  const changed = names.filter(differs);
  return section(
    "settings",
    several ? "How they were made" : "How it was made",
    null,
    changed.length > 0 && [
      el(
        "div",
        { class: "card" },
        el("h3", {}, "Settings that differ"),
        table("Settings that differ", heads, changed.map(row), { class: "settings compact" }),
      ),
    ],
    el(
      "details",
      {},
      el("summary", {}, several ? "All settings" : "Settings"),
      table("Settings", heads, names.map(row), { class: "settings" }),
    ),
    el(
      "details",
      {},
      el("summary", {}, "Training data"),
      table(
        "Training data",
        heads,
        DATA_FACTS.map((name) => [
          name.replaceAll("_", " "),
          ...report.runs.map((run) => number(run.statistics[name])),
        ]),
        { class: "numbers" },
      ),
    ),
    report.runs.map(
      (run) =>
        Object.keys(run.mixture).length > 0 &&
        el(
          "p",
          { class: "hint" },
          `${several ? `${run.name}: ` : ""}mixed in beside the encoder: `,
          Object.entries(run.mixture)
            .map(([name, weight]) => `${name} (weight ${weight.toFixed(2)})`)
            .join(", "),
          ".",
        ),
    ),
  );
}
