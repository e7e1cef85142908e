// Which label is predicted where another is missed.

const FIRST_PAIRS = 15;
const SHORT_NAME = 16; // characters; with longer names heatmap and pairs need the whole width each

function confusionSection(report, chosen) {
  const { confusion } = report.runs[chosen];
  if (!confusion.pairs.length) {
    return section("confusion", "Confused labels", "No document here has both a missed label and a false alarm.");
  }
  const [missed, instead, documents] = confusion.pairs[0];
  const lead = `Most often ${report.labels[instead]} is predicted where ${report.labels[missed]} is missed: on ${plural(documents, "document")}.`;
  const short = confusion.labels.every((name) => report.labels[name].length <= SHORT_NAME);
  return section(
    "confusion",
    "Confused labels",
    lead,
    el(
      "div",
      { class: short ? "columns wide-left" : "rows" },
      figure(
        "Documents on which the label of the row is missed and the label of the column is a false alarm. The last column counts missed labels without a false alarm, the last row false alarms without a missed label; neither is coloured. Labels that often occur together are next to each other.",
        el("h3", {}, "The most confused labels"),
        heatmap(report, confusion),
      ),
      figure(
        "With several labels per document, no error says which other error it belongs to: a missed label and a false alarm on the same document count as a pair. Both true: documents that carry both labels.",
        el("h3", {}, "The most frequent pairs"),
        pairsTable(report, confusion.pairs.slice(0, FIRST_PAIRS)),
      ),
    ),
    confusion.pairs.length > FIRST_PAIRS &&
      el(
        "details",
        {},
        el("summary", {}, `The ${count(confusion.pairs.length)} most frequent pairs as a table`),
        pairsTable(report, confusion.pairs),
      ),
  );
}

function pairsTable(report, pairs) {
  return table(
    "Confused labels",
    ["missed", ["predicted instead", { class: "words" }], "documents", "both true"],
    pairs.map(([missing, instead, number, both]) => [
      report.labels[missing],
      [report.labels[instead], { class: "words" }],
      count(number),
      count(both),
    ]),
    { class: "numbers narrow" },
  );
}

function heatmap(report, confusion) {
  const names = confusion.labels.map((label) => report.labels[label]);
  const size = names.length;
  const most = Math.max(1, ...confusion.instead.flat());
  const longest = Math.max(...names.map((name) => Math.min(26, name.length)), 8);
  const label = "Which label is predicted where another is missed";
  const leftOf = Math.max(122, longest * 7.4 + 10);
  const rightOf = Math.max(34, longest * 4.6 - 20); // the last name leans out there
  const cellOf = (width) => Math.max(18, Math.min(40, (width - leftOf - rightOf) / (size + 1.3)));
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
              ["without a false alarm", plural(confusion.only_missed[row], "document")],
            ]),
            false,
          );
          put(
            size,
            row,
            confusion.only_given[row],
            tipLines(`${names[row]}: false alarm`, [
              ["without a missed label", plural(confusion.only_given[row], "document")],
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
          svg("text", { class: "title", x: left - 8, y: top - 28, "text-anchor": "end" }, "predicted →"),
          svg("text", { class: "title", x: left - 8, y: top - 10, "text-anchor": "end" }, "missed ↓"),
        );
        hoverable(plot, marks, ({ words }) => words, cellOf(area.width) * 0.75);
      },
    ),
  );
}
