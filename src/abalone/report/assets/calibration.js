// Whether probabilities mean what they say, and where labels are cut.

function calibrationSection(report, chosen) {
  const run = report.runs[chosen];
  return section(
    "calibration",
    "Probabilities and thresholds",
    run.reliability &&
      `Probabilities are off by ${(100 * run.reliability[0].error).toFixed(2)} points on average (expected calibration error).`,
    el(
      "div",
      { class: "columns" },
      run.reliability &&
        figure(
          "Predicted probability against the share of pairs that are true, in bins; on the diagonal, probabilities are calibrated. A larger dot stands for more (document, label) pairs; pale ones stand for fewer than ten.",
          el("h3", {}, "Reliability"),
          legend(
            run.reliability.slice(1).map((part, place) => ({
              colour: thirdColour(report.thirds.indexOf(part.group)),
              text: `${part.group}, error ${(100 * part.error).toFixed(2)} points`,
            })),
          ),
          reliabilityFigure(report, run),
        ),
      figure(
        "A label is predicted where its probability reaches its threshold. The threshold of a rare label rests on few documents.",
        el("h3", {}, "Thresholds by label"),
        legend(report.thirds.map((name, third) => ({ colour: thirdColour(third), text: name }))),
        thresholdFigure(report, chosen),
      ),
    ),
  );
}

function reliabilityFigure(report, run) {
  return chart(
    "Reliability diagram",
    (width) => Math.min(380, width),
    (plot, area) => {
      const x = linear([0, 1], [area.left, area.right]);
      const y = linear([0, 1], [area.bottom, area.top]);
      const ticks = [0, 0.25, 0.5, 0.75, 1];
      axisLeft(plot, area, y, { title: "share that is true", ticks, format: (value) => (100 * value).toFixed(0) });
      axisBelow(plot, area, x, {
        title: "probability, in percent",
        ticks,
        format: (value) => (100 * value).toFixed(0),
      });
      plot.append(svg("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
      const marks = [];
      for (const part of run.reliability.slice(1)) {
        const colour = thirdColour(report.thirds.indexOf(part.group));
        const firm = (bin) => part.pairs[bin] >= 10;
        const places = part.said.map((said, bin) => [x(said), firm(bin) ? y(part.true[bin]) : NaN]);
        plot.append(svg("path", { class: "curve", d: path(places), style: { stroke: colour } }));
        part.said.forEach((said, bin) => {
          const radius = 2 + 1.2 * Math.log10(part.pairs[bin]);
          plot.append(
            svg("circle", {
              class: firm(bin) ? "dot" : "dot pale",
              cx: x(said),
              cy: y(part.true[bin]),
              r: radius,
              style: { fill: colour },
            }),
          );
          marks.push({ x: x(said), y: y(part.true[bin]), part, bin });
        });
      }
      hoverable(plot, marks, ({ part, bin }) =>
        tipLines(part.group, [
          ["says", `${percent(part.said[bin])} %`],
          ["is true", `${percent(part.true[bin])} %`],
          ["pairs", count(part.pairs[bin])],
        ]),
      );
    },
    { top: 30 },
  );
}

function thresholdFigure(report, chosen) {
  const run = report.runs[chosen];
  const ranked = rankedLabels(run);
  return chart(
    "Threshold of each label by its training documents",
    (width) => Math.min(380, width),
    (plot, area) => {
      const frequencies = ranked.map((entry) => Math.max(1, entry.frequency));
      const x = logarithmic(
        [Math.min(...frequencies) * 0.85, Math.max(...frequencies) * 1.2 + 1],
        [area.left, area.right],
      );
      const known = run.labels.threshold.filter((value) => value !== null);
      const y = linear([0, Math.min(1.05, Math.max(0.2, ...known) * 1.1)], [area.bottom, area.top]);
      axisLeft(plot, area, y, { title: "threshold, in percent", format: (value) => (100 * value).toFixed(0) });
      axisBelow(plot, area, x, { title: "training documents (log scale)", format: count });
      const marks = ranked.map((entry, rank) => {
        const threshold = run.labels.threshold[entry.place];
        const mark = {
          x: x(Math.max(1, entry.frequency)),
          y: threshold === null ? area.top : y(threshold),
          entry,
          rank,
        };
        plot.append(
          svg("circle", {
            class: threshold === null ? "dot hollow" : "dot",
            cx: mark.x,
            cy: mark.y,
            r: 4.5,
            style: { [threshold === null ? "stroke" : "fill"]: thirdColour(entry.third) },
          }),
        );
        return mark;
      });
      hoverable(plot, marks, ({ entry, rank }) => labelTip(report, chosen, entry, rank));
    },
    { top: 30 },
  );
}
