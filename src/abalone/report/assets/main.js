// The page: a head, a bar to find one's way, and the sections that the data allows.

const report = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const several = report.runs.length > 1;

function head() {
  const [first] = report.runs;
  const { documents } = report;
  const facts = documents
    ? `${documents.name}, ${documents.split} · ${plural(documents.count, "document")} · ${plural(report.labels.length, "label")}`
    : `Trained on ${first.corpus} · ${plural(first.statistics.train, "training document")} · ${plural(report.labels.length, "label")}`;
  const unscored =
    !documents &&
    el(
      "p",
      { class: "notice" },
      "These are the figures that model folders hold by themselves. Name a corpus with ",
      el("code", {}, "--data"),
      " to see F1 label by label, calibration, the map, confusions and the documents to read.",
    );
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
    unscored,
    several ? null : tiles(first),
  );
}

/** Sections in order: those about all runs, then those about the chosen one, which are made anew when it changes. */
const scored = Boolean(report.documents);
const SECTIONS = [
  { name: "Scores", make: scoresSection, when: !scored },
  { name: "Comparison", make: comparisonSection, when: several && scored },
  { name: "Labels", make: versusSection, when: several && scored },
  { name: "Curves", make: curvesSection, when: true },
  { name: "Tail", make: tailSection, when: true, each: true },
  { name: "Thirds", make: thirdsSection, when: scored, each: true },
  { name: "Calibration", make: calibrationSection, when: true, each: true },
  { name: "Map", make: mapSection, when: scored, each: true },
  { name: "Clusters", make: clusteringSection, when: scored },
  { name: "Confusion", make: confusionSection, when: scored, each: true },
  { name: "Documents", make: worstSection, when: scored, each: true },
  { name: "Scores", make: scoresSection, when: scored },
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
    el("footer", {}, `Made by ABALONE ${report.version}. This file stands alone: it asks the network for nothing.`),
  );
  document.body.append(tip.node);
  document.addEventListener("scroll", () => tip.hide(), { passive: true });
}

start();
