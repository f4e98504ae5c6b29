// One note, as it is shown everywhere: its text, everything known about it, and what can be done with it.
import { ask, of, segment } from "./api.js";
import { agree, typed, write } from "./ask-first.js";
import { el } from "./dom.js";
import { flag } from "./reasons.js";
import { day, moment, say, sayIf } from "./words.js";

const SHORT = 600; // characters; the rest on request

/**
 * @param {object} note  as the API gives it
 * @param {{owner: string, zone: string, scope: string, done: (message: string) => unknown,
 *   guard: <T>(work: () => Promise<T>) => Promise<T | undefined>}} diary
 */
export function noteCard(note, diary, ...inside) {
  const expired = note.expires_at && new Date(note.expires_at) <= new Date();
  const past = Boolean(note.replaced_by || expired);
  return el("article", { class: `note${past ? " past" : ""}${note.quarantined ? " held" : ""}`, "data-id": note.id },
    text(note.text),
    facts(note, diary.zone, expired),
    note.flagged && note.flagged_for.length > 0 && el("p", { class: "flagged-for" }, `${say("flagged_for")} ${note.flagged_for.map(flag).join("; ")}`),
    ...inside,
    note.kind === "note" && actions(note, diary));
}

function text(whole) {
  const shown = el("p", { class: "text", dir: "auto" }, whole.length > SHORT ? `${whole.slice(0, SHORT)}…` : whole);
  if (whole.length <= SHORT) return shown;
  const more = el("button", { type: "button", class: "quiet", "aria-expanded": "false", on: { click: () => {
    const open = more.getAttribute("aria-expanded") === "false";
    more.setAttribute("aria-expanded", String(open));
    more.textContent = say(open ? "less" : "more");
    shown.textContent = open ? whole : `${whole.slice(0, SHORT)}…`;
  } } }, say("more"));
  return el("div", {}, shown, more);
}

function facts(note, zone, expired) {
  const mark = (kind, words) => el("li", { class: `mark-${kind}` }, words);
  return el("ul", { class: "facts" },
    el("li", {}, el("time", { datetime: note.created_at, title: moment(note.created_at, zone) }, day(note.created_at, zone))),
    note.happened_at && el("li", {}, say("happened", { when: day(note.happened_at, zone) })),
    note.expires_at && el("li", {}, say(expired ? "expired" : "expires", { when: day(note.expires_at, zone) })),
    note.source && el("li", {}, `${say("from_source")} `, el("b", { dir: "auto" }, note.source)),
    el("li", {}, sayIf(`origin_${note.origin}`, note.origin)),
    ...note.tags.map(tag => el("li", { class: "tag", dir: "auto" }, tag)),
    note.times > 1 && el("li", {}, say("times_n", { n: note.times })),
    note.kind === "message" && mark("message", say("is_message")),
    note.flagged && mark("flagged", say("is_flagged")),
    note.quarantined && mark("held", say("is_quarantined")),
    note.released && mark("released", say("is_released")),
    note.replaced_by && mark("replaced", say("is_replaced")),
    note.pending && mark("pending", say("is_pending")));
}

function actions(note, diary) {
  const may = diary.scope !== "read";
  const button = (word, act, kind = "") =>
    el("button", { type: "button", class: `quiet ${kind}`, on: { click: () => diary.guard(act) } }, say(word));
  const chained = note.replaces.length > 0 || note.replaced_by;
  return el("div", { class: "actions" },
    may && button("correct", () => correct(note, diary)),
    may && button("pin", () => pin(note, diary)),
    note.quarantined && diary.scope === "admin" && button("release", () => release(note, diary)),
    may && button("forget", () => forget(note, diary), "danger"),
    chained && chain(note, diary));
}

async function correct(note, diary) {
  const said = await write(say("correct"), say("correct_about"), note.text);
  if (said === null || said === note.text) return;
  await ask("PATCH", of(diary.owner, "notes", segment(note.id)), { body: { text: said } });
  await diary.done(say("corrected"));
}

async function pin(note, diary) {
  const page = await ask("POST", of(diary.owner, "notes", segment(note.id), "pin"));
  await diary.done(say("pinned", { percent: percent(page.tokens, page.budget) }));
}

async function release(note, diary) {
  if (!(await agree(say("release"), say("release_about"), { quote: note.text }))) return;
  await ask("POST", of(diary.owner, "notes", segment(note.id), "release"));
  await diary.done(say("released"));
}

async function forget(note, diary) {
  if (!(await agree(say("forget"), say("forget_about"), { quote: note.text, danger: true }))) return;
  const report = await ask("DELETE", of(diary.owner, "notes", segment(note.id)));
  await diary.done(reported(report));
}

/** What an erasure of a part left. */
export const reported = report =>
  report.residue.length ? say("left_in", { names: report.residue.join(", ") }) : say(report.pending ? "not_yet" : "forgotten");

/** Asks for the name, erases everything, and says what is left. @returns {Promise<string | null>} */
export async function eraseAll(owner) {
  const confirm = await typed(say("erase"), say("erase_about"), owner);
  if (confirm === null) return null;
  const { notes, messages, residue, complete } = await ask("POST", of(owner, "erase"), { body: { confirm } });
  return say(complete ? "erased" : "erased_left", { notes, messages, names: residue.join(", ") });
}

/** The notes that this one replaced, and those that replaced it, newest first. */
function chain(note, diary) {
  const list = el("ol", { class: "chain" });
  const details = el("details", {}, el("summary", {}, say("chain")), el("p", { class: "about" }, say("chain_about")), list);
  details.addEventListener("toggle", () => {
    if (details.open && !list.firstChild) diary.guard(async () => {
      const found = await links(note, diary.owner);
      list.replaceChildren(...found.map(each => el("li", { "aria-current": each.id === note.id && "true" },
        ...(each.text === undefined ? [say("gone", { id: each.id })]
          : [el("time", { datetime: each.created_at }, day(each.created_at, diary.zone)), " ", el("span", { dir: "auto" }, each.text)]))));
    });
  });
  return details;
}

const MOST_LINKS = 50;

async function links(note, owner) {
  const get = id => ask("GET", of(owner, "notes", segment(id))).catch(() => ({ id, replaces: [], replaced_by: null }));
  const newer = [], older = [], seen = new Set([note.id]);
  for (let next = note.replaced_by; next && !seen.has(next) && newer.length < MOST_LINKS;) {
    seen.add(next);
    const found = await get(next);
    newer.unshift(found);
    next = found.replaced_by;
  }
  const waiting = [...note.replaces];
  while (waiting.length && older.length < MOST_LINKS) {
    const id = waiting.shift();
    if (seen.has(id)) continue;
    seen.add(id);
    const found = await get(id);
    older.push(found);
    waiting.push(...found.replaces);
  }
  return [...newer, note, ...older];
}

export const percent = (tokens, budget) => `${Math.round((100 * tokens) / Math.max(1, budget))} %`;
