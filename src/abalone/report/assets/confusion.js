// Which label is given where another is meant.

const FIRST_PAIRS = 15;

function confusionSection(report, chosen) {
  const { confusion } = report.runs[chosen];
  if (!confusion.pairs.length) {
    return section("confusion", "Confused labels", "No document here misses a label and is given a wrong one as well.");
  }
  const [meant, given, documents] = confusion.pairs[0];
  const lead = `The commonest: ${report.labels[given]} where ${report.labels[meant]} is meant, on ${plural(documents, "document")}.`;
  return section(
    "confusion",
    "Confused labels",
    lead,
    el(
      "div",
      { class: "columns wide-left" },
      figure(
        "Documents where the label of the row is meant and missing, and that of the column given wrongly. The last column counts misses with nothing wrong given, the last row wrong labels with nothing missing; neither is coloured. Labels that occur together stand side by side.",
        el("h3", {}, "The most confused labels"),
        heatmap(report, confusion),
      ),
      figure(
        "With several labels a document, no error says which other one it goes with: a missing and a wrong label of the same document are taken for a pair. Both true: documents that carry both.",
        el("h3", {}, "The commonest pairs"),
        pairsTable(report, confusion.pairs.slice(0, FIRST_PAIRS)),
      ),
    ),
    confusion.pairs.length > FIRST_PAIRS &&
      el(
        "details",
        {},
        el("summary", {}, `The ${count(confusion.pairs.length)} commonest pairs as a table`),
        pairsTable(report, confusion.pairs),
      ),
  );
}

function pairsTable(report, pairs) {
  return table(
    "Confused labels",
    ["meant", ["given instead", { class: "words" }], "documents", "both true"],
    pairs.map(([missing, instead, number, both]) => [
      report.labels[missing],
      [report.labels[instead], { class: "words" }],
      count(number),
      count(both),
    ]),
    { class: "numbers" },
  );
}

function heatmap(report, confusion) {
  const names = confusion.labels.map((label) => report.labels[label]);
  const size = names.length;
  const most = Math.max(1, ...confusion.instead.flat());
  const longest = Math.max(...names.map((name) => Math.min(26, name.length)), 8);
  const label = "Which label is given where another is meant";
  const leftOf = Math.max(122, longest * 7 + 10);
  const cellOf = (width) => Math.max(18, Math.min(40, (width - leftOf - 34) / (size + 1.3)));
  return el(
    "div",
    { class: "scroll" },
    chart(
      label,
      (width) => longest * 6 + 40 + cellOf(width) * (size + 1.3),
      (plot, area) => {
        const cell = cellOf(area.width);
        const left = leftOf;
        const top = longest * 6 + 16;
        const gap = cell * 0.3;
        const at = (place) => place * cell + (place === size ? gap : 0);
        const marks = [];
        const put = (row, column, value, words, coloured) => {
          const [x, y] = [left + at(column), top + at(row)];
          plot.append(
            svg("rect", {
              class: coloured ? "cell" : "cell margin",
              x,
              y,
              width: cell - 2,
              height: cell - 2,
              rx: 3,
              style:
                coloured && value
                  ? { fill: `color-mix(in oklab, var(--heat-1) ${Math.round(12 + 88 * (value / most))}%, var(--cell))` }
                  : {},
            }),
          );
          if (value)
            plot.append(
              svg(
                "text",
                {
                  class: coloured && value > most * 0.5 ? "number strong" : "number",
                  x: x + cell / 2 - 1,
                  y: y + cell / 2 + 3.5,
                  "text-anchor": "middle",
                },
                count(value),
              ),
            );
          marks.push({ x: x + cell / 2 - 1, y: y + cell / 2 - 1, words, row, column });
        };
        for (let row = 0; row < size; row++) {
          plot.append(
            svg(
              "text",
              { class: "name", x: left - 8, y: top + at(row) + cell / 2 + 3, "text-anchor": "end" },
              svg("title", {}, names[row]),
              shorten(names[row], 26),
            ),
          );
          for (let column = 0; column < size; column++) {
            if (row === column) continue;
            const value = confusion.instead[row][column];
            put(
              row,
              column,
              value,
              tipLines(`${names[column]} instead of ${names[row]}`, [
                ["documents", count(value)],
                ["both are true on", count(confusion.together[row][column])],
              ]),
              true,
            );
          }
          put(
            row,
            size,
            confusion.only_missed[row],
            tipLines(`${names[row]} missed`, [
              ["and nothing wrong given", plural(confusion.only_missed[row], "document")],
            ]),
            false,
          );
          put(
            size,
            row,
            confusion.only_given[row],
            tipLines(`${names[row]} given wrongly`, [
              ["and nothing missing", plural(confusion.only_given[row], "document")],
            ]),
            false,
          );
        }
        [...names, "nothing"].forEach((name, place) => {
          const [x, y] = [left + at(place) + cell / 2, top - 8];
          plot.append(
            svg(
              "text",
              { class: place === size ? "name title" : "name", transform: `translate(${x},${y}) rotate(-48)` },
              svg("title", {}, name),
              shorten(name, 26),
            ),
          );
        });
        plot.append(
          svg(
            "text",
            { class: "name title", x: left - 8, y: top + at(size) + cell / 2 + 3, "text-anchor": "end" },
            "nothing",
          ),
          svg("text", { class: "title", x: left - 8, y: top - 28, "text-anchor": "end" }, "given instead →"),
          svg("text", { class: "title", x: left - 8, y: top - 10, "text-anchor": "end" }, "meant, missing ↓"),
        );
        hoverable(plot, marks, ({ words }) => words, cellOf(area.width) * 0.75);
      },
    ),
  );
}
