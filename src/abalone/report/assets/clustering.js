// How far embeddings fall apart by label combination.

const CLUSTER_SCORES = [
  ["silhouette", "Silhouette", "higher is better"],
  ["davies_bouldin", "Davies–Bouldin", "lower is better"],
];

function clusteringSection(report) {
  if (!report.runs.some((run) => run.clustering)) return null;
  return section(
    "clustering",
    "Clusters of label combinations",
    "All documents with exactly the same labels form a cluster. Embeddings are better if documents of a cluster are close together and the clusters are far apart.",
    report.runs.length > 1 &&
      legend(report.runs.map((run, index) => ({ colour: runColour(index), shape: "line", text: run.name }))),
    el(
      "div",
      { class: "columns" },
      CLUSTER_SCORES.map(([measure, title, better]) =>
        figure(null, el("h3", {}, title, el("span", {}, better)), clusteringFigure(report, measure, title)),
      ),
    ),
    el(
      "p",
      { class: "hint" },
      "Most combinations are rare, so scores are shown for the most frequent tenth, two tenths and so on. Computed for the documents on the map, with Euclidean distances between embeddings.",
    ),
  );
}

function clusteringFigure(report, measure, title) {
  const lines = report.runs.map((run, index) => ({ run, index, ...run.clustering })).filter((line) => line[measure]);
  const known = lines.flatMap((line) => line[measure]).filter((value) => value !== null);
  if (!known.length) return el("p", { class: "hint" }, "Too few documents share their labels for these scores.");
  return chart(`${title} over the share of label combinations kept`, 260, (plot, area) => {
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const room = (most - least) * 0.12 || 0.1;
    const x = linear([0.1, 1], [area.left + 10, area.right - 10]);
    const y = linear([least - room, most + room], [area.bottom, area.top]);
    axisLeft(plot, area, y, { format: plainNumber });
    axisBelow(plot, area, x, {
      title: "most frequent combinations kept, in percent",
      ticks: [0.2, 0.4, 0.6, 0.8, 1],
      format: (value) => (100 * value).toFixed(0),
    });
    const marks = [];
    for (const line of lines) {
      const colour = report.runs.length > 1 ? runColour(line.index) : token("medium");
      const places = line.proportions.map((share, place) => [
        x(share),
        line[measure][place] === null ? NaN : y(line[measure][place]),
      ]);
      plot.append(svg("path", { class: "curve", d: path(places), style: { stroke: colour } }));
      places.forEach(([px, py], place) => {
        if (!Number.isFinite(py)) return;
        plot.append(svg("circle", { class: "dot", cx: px, cy: py, r: 4, style: { fill: colour } }));
        marks.push({ x: px, y: py, line, place });
      });
    }
    hoverable(plot, marks, ({ line, place }) =>
      tipLines(line.run.name, [
        [title, line[measure][place].toFixed(3).replace("-", "−")],
        ["combinations", count(line.combinations[place])],
        ["documents", count(line.documents[place])],
      ]),
    );
  });
}
