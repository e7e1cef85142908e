// Scales, axes, a drawing that follows its width, and one tooltip for all.

function linear([low, high], [start, stop]) {
  const scale = (value) => start + ((value - low) / (high - low || 1)) * (stop - start);
  scale.ticks = (wanted) => {
    const rough = (high - low || 1) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) {
      found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
    }
    return found;
  };
  return scale;
}

function logarithmic([low, high], [start, stop]) {
  const inner = linear([Math.log10(low), Math.log10(high)], [start, stop]);
  const scale = (value) => inner(Math.log10(Math.max(value, low)));
  scale.ticks = () => {
    const found = [];
    const decades = Math.log10(high / low);
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) {
      for (const factor of decades < 1.5 ? [1, 2, 5] : decades < 2.6 ? [1, 3] : [1]) found.push(factor * 10 ** power);
    }
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  };
  return scale;
}

/** A drawing that is made anew whenever its width changes, so that words keep their size. */
function chart(label, height, draw, margin) {
  const space = { top: 14, right: 14, bottom: 44, left: 50, ...margin };
  const box = el("div", { class: "chart" });
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(box.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    const tall = typeof height === "function" ? height(width) : height;
    const plot = svg("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": label });
    draw(plot, {
      left: space.left,
      right: width - space.right,
      top: space.top,
      bottom: tall - space.bottom,
      width,
      height: tall,
    });
    box.replaceChildren(plot);
  };
  new ResizeObserver(redraw).observe(box);
  return box;
}

function axisBelow(plot, area, scale, { title, format = String, ticks }) {
  const marks = ticks || scale.ticks(Math.max(2, Math.min(8, (area.right - area.left) / 80)));
  const axis = svg(
    "g",
    { class: "axis" },
    svg("line", { x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }),
  );
  for (const value of marks) {
    axis.append(svg("text", { x: scale(value), y: area.bottom + 17, "text-anchor": "middle" }, format(value)));
  }
  if (title)
    axis.append(svg("text", { class: "title", x: area.right, y: area.bottom + 37, "text-anchor": "end" }, title));
  plot.append(axis);
}

function axisLeft(plot, area, scale, { title, format = String, ticks }) {
  const marks = ticks || scale.ticks(Math.max(2, Math.min(6, (area.bottom - area.top) / 48)));
  const axis = svg("g", { class: "axis" });
  for (const value of marks) {
    axis.append(
      svg("line", { class: "grid", x1: area.left, x2: area.right, y1: scale(value), y2: scale(value) }),
      svg("text", { x: area.left - 9, y: scale(value) + 4, "text-anchor": "end" }, format(value)),
    );
  }
  if (title) axis.append(svg("text", { class: "title", x: area.left - 40, y: area.top - 12 }, title));
  plot.append(axis);
}

/** A line through [x, y] places, with a gap wherever y is missing. */
function path(places) {
  let pen = "M";
  return places
    .map(([x, y]) => {
      if (!Number.isFinite(y)) {
        pen = "M";
        return "";
      }
      const step = `${pen}${x.toFixed(1)},${y.toFixed(1)}`;
      pen = "L";
      return step;
    })
    .join("");
}

const tip = {
  node: el("div", { id: "tip", role: "status", "aria-live": "polite", hidden: true }),
  show(x, y, ...content) {
    this.node.replaceChildren(...content.flat(Infinity).filter(Boolean));
    this.node.hidden = false;
    const { width, height } = this.node.getBoundingClientRect();
    const left = Math.min(Math.max(8, x + 16), window.innerWidth - width - 8);
    const above = y + 18 + height > window.innerHeight;
    this.node.style.left = `${left}px`;
    this.node.style.top = `${Math.max(8, above ? y - height - 14 : y + 18)}px`;
  },
  hide() {
    this.node.hidden = true;
  },
};

const tipLines = (head, rows) => [
  el("strong", {}, head),
  el(
    "dl",
    {},
    rows.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  ),
];

/** The nearest of many marks, under the pointer or by the arrow keys: ringed, and told in the tooltip.
 *  By column, what counts is where the pointer is from left to right. */
function hoverable(plot, marks, tell, reach = 32, byColumn = false) {
  if (!marks.length) return;
  const ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
  plot.append(ring);
  plot.classList.add("hoverable");
  plot.setAttribute("tabindex", "0");
  const inOrder = [...marks].sort((a, b) => a.x - b.x || a.y - b.y);
  let at = -1;
  const leave = () => {
    ring.setAttribute("visibility", "hidden");
    tip.hide();
  };
  const enter = (mark) => {
    at = inOrder.indexOf(mark);
    ring.setAttribute("cx", mark.x);
    ring.setAttribute("cy", mark.y);
    ring.setAttribute("visibility", "visible");
    const place = plot.getBoundingClientRect();
    tip.show(place.left + mark.x, place.top + mark.y, tell(mark));
  };
  const follow = (event) => {
    const place = plot.getBoundingClientRect();
    let best = null;
    let least = reach * reach;
    for (const mark of marks) {
      const [across, along] = [mark.x - event.clientX + place.left, mark.y - event.clientY + place.top];
      const distance = across ** 2 + (byColumn ? 0.01 : 1) * along ** 2;
      if (distance < least) [best, least] = [mark, distance];
    }
    if (best) enter(best);
    else leave();
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step) return;
    event.preventDefault();
    enter(inOrder[Math.min(inOrder.length - 1, Math.max(0, at + step))]);
  });
}
