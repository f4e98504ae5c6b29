// Recall, as a model gets it: hits with their scores, the verdict, and why each was found.
import { ask, of } from "./api.js";
import { el } from "./dom.js";
import { noteCard } from "./note.js";
import { because, notice } from "./reasons.js";
import { decimal, say, sayIf } from "./words.js";

const asked = { owner: "", question: "", where: "notes", limit: 8 }; // kept while the page is, and nowhere else

export async function searchView(diary) {
  if (asked.owner !== diary.owner) Object.assign(asked, { owner: diary.owner, question: "" });
  const question = el("input", { type: "search", id: "question", dir: "auto", autocomplete: "off", required: true, maxlength: 32000, value: asked.question });
  const where = el("select", { name: "where" }, ...["notes", "sessions", "all"].map(each =>
    el("option", { value: each, selected: each === asked.where }, say(`where_${each}`))));
  const limit = el("select", { name: "limit" }, ...[4, 8, 20, 50].map(each =>
    el("option", { value: each, selected: each === asked.limit }, each)));
  const results = el("div", { id: "results" });
  const form = el("form", { class: "ask", role: "search" },
    el("label", { for: "question", class: "wide" }, say("question")),
    question, el("button", { class: "main" }, say("view_search")),
    el("label", {}, say("where"), where), el("label", {}, say("most"), limit));
  const look = () => diary.guard(async () => {
    const found = await ask("POST", of(diary.owner, "recall"), {
      body: { question: asked.question, where: asked.where, limit: asked.limit },
    });
    results.replaceChildren(...shown(found, diary));
  });
  form.addEventListener("submit", event => {
    event.preventDefault();
    Object.assign(asked, { question: question.value, where: where.value, limit: Number(limit.value) });
    look();
  });
  if (asked.question) await look();
  return [form, el("p", { class: "about" }, say("ask_about")), results];
}

function shown(found, diary) {
  return [
    el("p", { class: `verdict verdict-${found.verdict}`, role: "status" },
      el("b", {}, sayIf(`verdict_${found.verdict}`, found.verdict)), " ", sayIf(`means_${found.verdict}`, "")),
    ...found.notices.map(each => el("p", { class: "notice" }, notice(each))),
    el("p", { class: "hidden", role: "status" }, say("hits_n", { n: found.hits.length })),
    el("ol", { class: "notes hits" }, ...found.hits.map(hit => el("li", {}, bar(hit.score), noteCard(hit.note, diary,
      hit.older_than && el("p", { class: "about" }, say("is_older")), why(hit))))),
    found.hits.length > 0 && el("details", {}, el("summary", {}, say("given")), el("pre", { class: "given", dir: "auto", tabindex: 0 }, found.context)),
  ].filter(Boolean);
}

function bar(score) {
  const filled = el("span");
  filled.style.width = `${100 * score}%`;
  return el("div", { class: "score" },
    el("span", { class: "meter", role: "img", "aria-label": say("score", { score: decimal(score) }) }, filled),
    el("b", { "aria-hidden": "true" }, decimal(score)));
}

/** The parts of a score, which add up to its log-odds: shown as a table, each with a bar to the left or the right. */
function why(hit) {
  const sum = hit.why.reduce((all, part) => all + part.value, 0);
  const most = Math.max(1, ...hit.why.map(part => Math.abs(part.value)));
  const signed = value => (value < 0 ? "−" : "+") + decimal(Math.abs(value));
  const rows = hit.why.map(part => {
    const filled = el("span", { class: part.value < 0 ? "less" : "more" });
    filled.style.width = `${(50 * Math.abs(part.value)) / most}%`;
    return el("tr", {},
      el("th", { scope: "row" }, sayIf(`part_${part.name}`, part.name)),
      el("td", { class: "number", "data-value": part.value }, signed(part.value)),
      el("td", { class: "pull", "aria-hidden": "true" }, filled),
      el("td", { dir: "auto" }, because(part)));
  });
  const head = el("tr", {}, ...["part", "value"].map(word => el("th", { scope: "col" }, say(word))),
    el("td", { "aria-hidden": "true" }), el("th", { scope: "col" }, say("reason")));
  const foot = el("tr", { class: "sum" }, el("th", { scope: "row" }, say("sum")),
    el("td", { class: "number", "data-value": sum }, signed(sum)), el("td", { "aria-hidden": "true" }),
    el("td", {}, say("sum_is", { sum: signed(sum), score: decimal(1 / (1 + Math.exp(-sum))) })));
  return el("details", { class: "why" }, el("summary", {}, say("why")), el("p", { class: "about" }, say("why_about")),
    el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": say("why") },
      el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows), el("tfoot", {}, foot))));
}
