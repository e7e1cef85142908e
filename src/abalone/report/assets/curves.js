// Learning curves: every stage of every run, losses apart from scores.

const STAGE_NAMES = { pretraining: "Pre-training", training: "Training", finetuning: "Fine-tuning" };
const CURVE_NAMES = {
  train_loss: "training loss",
  validation_loss: "validation loss",
  micro_f1: "micro-F1",
  macro_f1: "macro-F1",
};
const curveName = (measure) => CURVE_NAMES[measure] || measure.replaceAll("_", " ");
const isScore = (measure) => /f1|precision|recall/.test(measure);

function curvesSection(report) {
  const stages = [...new Set(report.runs.flatMap((run) => run.history.map((entry) => entry.stage)))];
  const without = report.runs.filter((run) => !run.history.length).map((run) => run.name);
  if (!stages.length) return null;
  const panels = stages
    .flatMap((stage) => [false, true].map((scores) => curvesPanel(report.runs, stage, scores)))
    .filter(Boolean);
  return section(
    "curves",
    "Learning curves",
    without.length ? `The folder of ${without.join(" and of ")} has no training history.` : null,
    el("div", { class: panels.length > 1 ? "columns many" : "" }, panels),
  );
}

function curvesPanel(runs, stage, scores) {
  const lines = [];
  runs.forEach((run, index) => {
    const entry = run.history.find((candidate) => candidate.stage === stage);
    const measures = entry ? Object.keys(entry.curves).filter((measure) => isScore(measure) === scores) : [];
    measures.forEach((measure, place) =>
      lines.push({
        run,
        measure,
        epochs: entry.epochs,
        values: entry.curves[measure],
        dashed: place > 0,
        colour:
          runs.length > 1
            ? runColour(index)
            : token(scores ? ["medium", "head"][place % 2] : ["tail", "run-1"][place % 2]),
      }),
    );
  });
  const known = lines.flatMap((line) => line.values).filter((value) => value !== null);
  if (!known.length) return null;
  const epochs = Math.max(...lines.flatMap((line) => line.epochs));
  const format = (value) => (scores ? percent(value) : value.toFixed(3));
  const title = `${STAGE_NAMES[stage] || stage}: ${scores ? "validation F1 at 0.5" : "loss"}`;
  const drawing = chart(`${title}, by epoch`, 260, (plot, area) => {
    const least = Math.min(...known);
    const most = Math.max(...known);
    const room = (most - least) * 0.08 || Math.abs(most) * 0.1 || 0.1;
    const x =
      epochs > 1 ? linear([1, epochs], [area.left + 8, area.right - 8]) : linear([0, 2], [area.left, area.right]);
    const y = linear([Math.max(scores ? 0 : -Infinity, least - room), most + room], [area.bottom, area.top]);
    axisLeft(plot, area, y, { format: (value) => (scores ? (100 * value).toFixed(0) : plainNumber(value)) });
    axisBelow(plot, area, x, {
      title: "epoch",
      ticks: x
        .ticks(Math.min(8, Math.max(1, epochs - 1)))
        .filter((epoch) => Number.isInteger(epoch) && epoch >= 1 && epoch <= epochs),
    });
    const marks = [];
    for (const line of lines) {
      const places = line.values.map((value, place) => [x(line.epochs[place]), value === null ? NaN : y(value)]);
      plot.append(
        svg("path", { d: path(places), class: line.dashed ? "curve dashed" : "curve", style: { stroke: line.colour } }),
      );
      const best = line.values.reduce(
        (found, value, place) =>
          value === null
            ? found
            : found < 0 || (scores ? value > line.values[found] : value < line.values[found])
              ? place
              : found,
        -1,
      );
      places.forEach(([px, py], place) => {
        if (!Number.isFinite(py)) return;
        plot.append(svg("circle", { cx: px, cy: py, r: place === best ? 4.5 : 2, style: { fill: line.colour } }));
        marks.push({ x: px, y: py, line, place, best: place === best });
      });
    }
    hoverable(plot, marks, ({ line, place, best }) =>
      tipLines(`${line.run.name}, epoch ${line.epochs[place]}`, [
        [curveName(line.measure) + (best ? " (its best)" : ""), format(line.values[place])],
      ]),
    );
  });
  const keys = lines.map((line) => ({
    colour: line.colour,
    shape: line.dashed ? "dash" : "line",
    text: (runs.length > 1 ? `${line.run.name}: ` : "") + curveName(line.measure),
  }));
  return figure(null, el("h3", {}, title), legend(keys), drawing);
}
