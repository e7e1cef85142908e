// The page: a head, a bar to find one's way, and the sections that the data allows.

const report = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const several = report.runs.length > 1;
const scored = Boolean(report.documents);
const hasScores = report.runs.every((run) => run.by_label); // on documents, or out of fold

/** What the scores are of, where no documents were given to score. */
function unscored() {
  const data = el("code", {}, "--data");
  if (!hasScores) {
    const bare = report.runs.filter((run) => !run.cross_fitted).map((run) => run.name);
    return el(
      "p",
      { class: "notice" },
      "This page shows only the data stored in the model folders",
      bare.length < report.runs.length && `, without out-of-fold scores, which ${bare.join(" and ")} does not have`,
      ". Pass documents with ",
      data,
      " to see F1 label by label, calibration, the map, confusions and the documents to read.",
    );
  }
  const unknown = report.runs[0].out_of_fold.untaught.map((label) => report.labels[label]);
  return el(
    "p",
    { class: "notice" },
    "These scores are out of fold: each training document was scored by a model that was not trained on it, with thresholds chosen on other documents. Expect similar scores on new documents of the same kind. ",
    unknown.length > 0 &&
      `${unknown.length === 1 ? "One label has" : `${count(unknown.length)} labels have`} all documents in one fold, so the model that scored that fold could not learn the label: ${unknown.slice(0, 12).join(", ")}${unknown.length > 12 ? " …" : ""}. `,
    several &&
      !report.comparison &&
      "The runs were trained on different documents, so their scores cannot be compared. ",
    "Pass documents with ",
    data,
    " to see the map and the documents to read.",
  );
}

function head() {
  const [first] = report.runs;
  const { documents } = report;
  const labels = plural(report.labels.length, "label");
  const trained = `Trained on ${first.corpus}`;
  const facts = documents
    ? `${documents.name}, ${documents.split} · ${plural(documents.count, "document")} · ${labels}`
    : hasScores
      ? `${trained} · out of fold, ${plural(first.out_of_fold.documents, "document")} in ${plural(first.out_of_fold.folds, "fold")} · ${labels}`
      : `${trained} · ${plural(first.statistics.train, "training document")} · ${labels}`;
  return el(
    "header",
    {},
    el("p", { class: "kicker" }, "ABALONE · ", several ? `comparison of ${report.runs.length} runs` : "report"),
    el(
      "h1",
      {},
      several
        ? report.runs.map((run, index) => [index ? el("span", { class: "versus" }, " vs ") : null, run.name])
        : first.name,
    ),
    el("p", { class: "facts" }, facts),
    !documents && unscored(),
    documents &&
      documents.out_of_fold &&
      el(
        "p",
        { class: "notice" },
        "These are training documents. Each was scored by a model that was not trained on it, with thresholds chosen on other documents. Expect similar scores on new documents of the same kind.",
      ),
    several ? null : tiles(first),
  );
}

/** Sections in order: those about all runs, then those about the chosen one, which are made anew when it changes. */
const SECTIONS = [
  { name: "Scores", make: scoresSection, when: !hasScores },
  { name: "Comparison", make: comparisonSection, when: Boolean(report.comparison) },
  { name: "Labels", make: versusSection, when: Boolean(report.comparison) },
  { name: "Curves", make: curvesSection, when: true },
  { name: "Tail", make: tailSection, when: true, each: true },
  { name: "Thirds", make: thirdsSection, when: hasScores, each: true },
  { name: "Calibration", make: calibrationSection, when: true, each: true },
  { name: "Map", make: mapSection, when: scored, each: true },
  { name: "Clusters", make: clusteringSection, when: scored },
  { name: "Confusion", make: confusionSection, when: hasScores, each: true },
  { name: "Documents", make: worstSection, when: scored, each: true },
  { name: "Scores", make: scoresSection, when: hasScores },
  { name: "Settings", make: settingsSection, when: true },
];

function makeSection(entry, chosen) {
  const made = entry.make(report, chosen);
  if (made && entry.each && several) made.querySelector("h2").append(runHead(report.runs, chosen));
  return made;
}

function start() {
  const links = el("div", { class: "links" });
  const bar = el("nav", { "aria-label": "Sections" }, links);
  const places = new Map();
  const body = el("div");
  for (const entry of SECTIONS.filter((candidate) => candidate.when)) {
    const made = makeSection(entry, 0);
    if (!made) continue;
    body.append(made);
    places.set(entry, made);
    links.append(el("a", { href: `#${made.id}` }, entry.name));
  }
  if (several) {
    bar.append(
      el(
        "fieldset",
        { class: "runs" },
        el("legend", { class: "unseen" }, "The run that single figures show"),
        report.runs.map((run, index) =>
          el(
            "label",
            {},
            el("input", {
              type: "radio",
              name: "run",
              value: index,
              checked: index === 0,
              onchange: () => {
                for (const [entry, old] of places) {
                  if (!entry.each) continue;
                  const made = makeSection(entry, index);
                  old.replaceWith(made);
                  places.set(entry, made);
                }
              },
            }),
            runHead(report.runs, index),
          ),
        ),
      ),
    );
  }
  page.append(
    head(),
    bar,
    body,
    el("footer", {}, `Made by ABALONE ${report.version}. This file is self-contained and makes no network requests.`),
  );
  document.body.append(tip.node);
  document.addEventListener("scroll", () => tip.hide(), { passive: true });
}

start();
