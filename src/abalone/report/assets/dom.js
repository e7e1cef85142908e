// Elements, numbers and words. Everything from the data goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, entry] of Object.entries(value)) node.style.setProperty(key, entry);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const count = (value) => Math.round(value).toLocaleString("en-US");
const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));
const points = (value) => `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(100 * value).toFixed(1)}`;
const share = (value) => (value > 0 && value < 0.0095 ? value.toFixed(4) : value.toFixed(2));
const plainNumber = (value) => String(+value.toPrecision(3)).replace("-", "−");
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

const THIRD_NAMES = { head: "head", medium: "medium", tail: "tail" };
const METRICS = {
  macro_f1: "macro-F1",
  macro_f1_present: "macro-F1, labels that occur",
  macro_f1_head: "macro-F1, head",
  macro_f1_medium: "macro-F1, medium",
  macro_f1_tail: "macro-F1, tail",
  micro_f1: "micro-F1",
  macro_precision: "macro-precision",
  macro_recall: "macro-recall",
  micro_precision: "micro-precision",
  micro_recall: "micro-recall",
  mean_average_precision: "mean average precision",
  precision_at_1: "precision at 1",
  precision_at_3: "precision at 3",
  precision_at_5: "precision at 5",
  ranking_loss: "ranking loss",
  hamming_loss: "Hamming loss ×10³",
};
const LOWER_IS_BETTER = new Set(["ranking_loss", "hamming_loss"]);
const scoreText = (metric, value) => {
  if (value === null || value === undefined) return "–";
  return metric === "hamming_loss" ? (1000 * value).toFixed(2) : percent(value);
};

const token = (name) => `var(--${name})`;
const thirdColour = (third) => token(["head", "medium", "tail"][third]);
const runColour = (index) => token(`run-${index % 6}`);

/** A section of the page: a heading, a sentence that says what to see, and what is to be seen. */
function section(id, title, lead, ...children) {
  return el(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title),
    lead && el("p", { class: "lead" }, lead),
    children,
  );
}

function figure(caption, ...children) {
  return el("figure", {}, children, caption && el("figcaption", {}, caption));
}

/** A table; a cell is a text, a node, or [content, attributes]. */
function table(caption, heads, rows, attributes) {
  const cell = (tag, value, more) =>
    Array.isArray(value) ? el(tag, { ...more, ...value[1] }, value[0]) : el(tag, more, value);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      attributes,
      el("caption", { class: "unseen" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head) => cell("th", head, { scope: "col" })),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((value, place) => (place === 0 ? cell("th", value, { scope: "row" }) : cell("td", value))),
          ),
        ),
      ),
    ),
  );
}

function legend(entries) {
  return el(
    "ul",
    { class: "legend" },
    entries.map(({ colour, shape, text }) =>
      el("li", {}, el("span", { class: `key ${shape || "dot"}`, style: { "--colour": colour } }), text),
    ),
  );
}

function choice(label, options, onchange, chosen) {
  const menu = el("select", { onchange: () => onchange(menu.value) });
  const entry = ([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text);
  for (const option of options) {
    menu.append(option.group ? el("optgroup", { label: option.group }, option.options.map(entry)) : entry(option));
  }
  return el("label", { class: "choice" }, el("span", {}, label), menu);
}
