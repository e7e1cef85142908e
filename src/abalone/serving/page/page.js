// The page at /: a text in, its labels as bars against their thresholds, the evidence below.
// Labels and texts come from data, so they only ever become text nodes.
"use strict";

const EVIDENCE = 4; // training documents to ask for
const BELOW = 5; // labels to show that did not reach their threshold
const SAMPLED = 8; // labels that sample texts are made of
const LOW_F1 = 0.5;
const byId = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en");

let known = null; // what /v1/labels says
let about = new Map(); // label -> what is known of it
let asking = null; // the request in flight

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function percent(share, digits = 0) {
  const smallest = 10 ** -digits;
  if (share > 0 && 100 * share < smallest) return `< ${smallest.toFixed(digits)} %`;
  if (share < 1 && 100 * share > 100 - smallest) return `> ${(100 - smallest).toFixed(digits)} %`;
  return `${(100 * share).toFixed(digits)} %`;
}

function counted(number, noun) {
  return `${numbers.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

async function ask(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  throw new Error(answer?.detail ?? `the server answered ${response.status}`);
}

function labelRow({ name, probability, threshold, given }) {
  const title = make("span", "name", name);
  const { documents, f1 } = about.get(name) ?? {};
  const facts = [];
  if (f1 != null) facts.push(`F1 ${(100 * f1).toFixed(0)}${f1 < LOW_F1 ? " (low)" : ""}`);
  if (documents != null) facts.push(counted(documents, "example"));
  if (facts.length) title.append(make("span", "seen", facts.join(" · ")));

  const fill = make("span", "fill");
  fill.style.width = `${100 * probability}%`;
  const track = make("span", "track", fill);
  track.setAttribute("aria-hidden", "true");
  if (threshold !== null) {
    const cut = make("span", "cut");
    cut.style.left = `${100 * threshold}%`;
    track.append(cut);
  }
  // A label that just misses its threshold must not look as if it had reached it.
  const digits = [0, 1, 2].find((tried) => percent(probability, tried) !== percent(threshold ?? 2, tried)) ?? 0;
  const from = make("span", "from", threshold === null ? "never given" : `threshold ${percent(threshold, digits)}`);
  const value = make("span", "percent", percent(probability, digits), " ", from);
  return make("li", given ? "" : "below", title, track, value);
}

function showLabels(labels) {
  const given = labels.filter((label) => label.given);
  const below = labels.filter((label) => !label.given);
  byId("status").textContent = given.length
    ? `${counted(given.length, "label")} of ${numbers.format(known.labels.length)} given.`
    : "No label reaches its threshold.";
  byId("given").replaceChildren(...given.map(labelRow));
  byId("below").replaceChildren(...below.slice(0, BELOW).map(labelRow));
  byId("below-title").hidden = below.length === 0;
  const rest = below.slice(BELOW);
  const more = byId("more");
  more.hidden = rest.length === 0;
  more.textContent = `Show ${counted(rest.length, "more label")}`;
  more.onclick = () => {
    byId("below").append(...rest.map(labelRow));
    more.hidden = true;
  };
  byId("empty").hidden = true;
  byId("result").hidden = false;
}

function showEvidence(documents, labels) {
  const given = new Set(labels.filter((label) => label.given).map((label) => label.name));
  const rows = documents.map(({ text, labels: carried, similarity }) => {
    const chips = make("ul", "chips", ...carried.map((name) => make("li", given.has(name) ? "shared" : "", name)));
    chips.setAttribute("aria-label", "Its labels");
    const closeness = make("span", "similarity", `similarity ${similarity.toFixed(2)}`);
    return make("li", "", make("div", "head", chips, closeness), make("p", "snippet", text));
  });
  byId("evidence").replaceChildren(...rows);
  byId("near").hidden = false;
}

function showProblem(message) {
  byId("problem").textContent = message;
  byId("problem").hidden = !message;
}

function showCount() {
  const length = [...byId("text").value].length; // as the server counts: characters, not UTF-16 halves
  const most = known?.max_characters ?? Infinity;
  byId("count").textContent = length > most ? `${numbers.format(length)} of ${numbers.format(most)} characters`
    : length ? counted(length, "character") : "";
  byId("count").classList.toggle("over", length > most);
  return length <= most;
}

async function predict(event) {
  event?.preventDefault();
  const text = byId("text").value;
  if (!text.trim()) {
    showProblem("Paste a text first.");
    byId("text").focus();
    return;
  }
  if (!showCount()) {
    showProblem(`The text is too long: at most ${counted(known.max_characters, "character")}.`);
    return;
  }
  showProblem("");
  asking?.abort();
  asking = new AbortController();
  byId("predict").disabled = true;
  try {
    known ?? (await start());
    const answer = await ask("v1/predict", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ text, top_k: known.labels.length, evidence: known.evidence ? EVIDENCE : 0 }),
      signal: asking.signal,
    });
    const [{ labels, evidence }] = answer.predictions;
    showLabels(labels);
    if (evidence) showEvidence(evidence, labels);
  } catch (error) {
    if (error.name === "AbortError") return;
    showProblem(error instanceof TypeError ? "The server cannot be reached." : `Prediction failed: ${error.message}.`);
  } finally {
    byId("predict").disabled = false;
  }
}

/** A text made of label names: it suits every model, and shows no visitor a document of somebody else. */
function sampleText() {
  const best = [...known.labels].sort((a, b) => (b.f1 ?? 0) - (a.f1 ?? 0) || (b.documents ?? 0) - (a.documents ?? 0));
  const among = best.slice(0, SAMPLED).map(({ name }) => name.replace(/[-_./]+/g, " "));
  const first = Math.floor(Math.random() * among.length);
  const second = (first + 1 + Math.floor(Math.random() * (among.length - 1))) % among.length;
  return `This text is about ${first === second ? among[first] : `${among[first]} and ${among[second]}`}.`;
}

async function trySample() {
  byId("text").value = sampleText();
  showCount();
  await predict();
}

async function start() {
  known = await ask("v1/labels");
  about = new Map(known.labels.map((label) => [label.name, label]));
  byId("trust").hidden = known.labels.every(({ f1 }) => f1 == null);
  byId("sample").hidden = known.labels.length === 0;
  byId("model").textContent = `${known.model} · ${counted(known.labels.length, "label")}`;
  document.title = `${known.model} · ABALONE`;
  showCount();
}

byId("form").addEventListener("submit", predict);
byId("sample").addEventListener("click", trySample);
byId("text").addEventListener("input", showCount);
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) predict(event);
});
if (/Mac|iPhone|iPad/.test(navigator.platform)) byId("hint").querySelector("kbd").textContent = "⌘";
start().catch((error) => showProblem(`The labels cannot be read: ${error.message}.`));
