// Documents to read: those that went most wrong, with true and predicted labels, and how sure the run was.

function worstSection(report, chosen) {
  const run = report.runs[chosen];
  if (!run.worst.length) return null;
  const list = el("ol", { class: "worst" });
  const FIRST = 6;
  const show = (number) =>
    list.replaceChildren(...run.worst.slice(0, number).map((entry) => worstDocument(report, entry)));
  show(FIRST);
  const more =
    run.worst.length > FIRST &&
    el(
      "button",
      {
        type: "button",
        class: "more",
        onclick: () => {
          show(run.worst.length);
          more.remove();
        },
      },
      `Show all ${run.worst.length}`,
    );
  return section(
    "worst",
    "Documents to read",
    "The documents with the highest loss: either the model is wrong here, or the labels are.",
    legend(
      ["hit", "missed", "wrong"]
        .map((verdict) => ({ colour: token(verdict), shape: `verdict-${verdict}`, text: VERDICTS[verdict] }))
        .concat(
          { colour: token("muted"), shape: "bar", text: "probability" },
          { colour: token("ink"), shape: "mark-hindsight", text: "threshold" },
        ),
    ),
    list,
    more,
  );
}

function worstDocument(report, { row, text, loss, labels }) {
  return el(
    "li",
    {},
    el("h3", {}, `Document ${count(row + 1)}`, el("span", {}, `loss ${loss.toFixed(2)}`)),
    el("p", { class: "text" }, text || el("em", {}, "(an empty document)")),
    el(
      "ul",
      { class: "bars" },
      labels.map((entry) => {
        const verdict = verdictOf(entry.meant, entry.given);
        return el(
          "li",
          { class: verdict, title: VERDICTS[verdict] },
          el(
            "span",
            { class: "bar-name" },
            el("span", {
              class: `key verdict-${verdict}`,
              style: { "--colour": token(verdict === "none" ? "muted" : verdict) },
            }),
            el("span", { class: "unseen" }, `${VERDICTS[verdict]}: `),
            report.labels[entry.label],
          ),
          el(
            "span",
            { class: "track", "aria-hidden": "true" },
            el("span", { class: "level", style: { width: `${100 * entry.probability}%` } }),
            el("span", { class: "cut", style: { left: `${100 * entry.threshold}%` } }),
          ),
          el(
            "span",
            { class: "amount" },
            `${percent(entry.probability)} %`,
            el("span", { class: "unseen" }, `, threshold ${percent(entry.threshold)} %`),
          ),
        );
      }),
    ),
  );
}
