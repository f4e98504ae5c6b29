// What the farm looks like after the first n events of a run: a pure function, with no clock and no page in it.
// What is drawn is in farm-scene.js, what is said in transcript.js.
import { asList, asNumber, asText } from "./kinds.js";

/**
 * @typedef {{role: string, text: string}} Fold  one message of the session, a fold of the bandoneon
 * @typedef {{id: string, text: string, replaced: boolean}} Leaf  one note of the diary, as far as this run tells
 * @typedef {{id: string, text: string, score: number, handedOn: boolean}} Ranked
 * @typedef {object} State
 * @property {number} day  how many days have begun; 0 before the first
 * @property {"before" | "day" | "night"} phase
 * @property {string} at  when the last event happened, ISO 8601
 * @property {string} session
 * @property {Fold[]} folds  the history that is sent: empty each morning, but for a session that is resumed
 * @property {Leaf[]} diary
 * @property {number} total  how many notes the diary says it holds
 * @property {{query: string, verdict: string, notes: Ranked[]} | null} ranking
 * @property {{call: string, name: string, text: string, done: boolean, ok: boolean} | null} roaster
 * @property {number} orders  how many calls the roaster has carried out
 * @property {{who: "customer" | "agent", text: string} | null} speech
 * @property {number} emptied  how many folds the night took
 * @property {string} last  the name of the last event
 * @property {Object<string, Fold[]>} kept  the histories of sessions that could be taken up again
 */

/** The memory's own tools: what they do is seen on the diary. Any other tool is the roaster's. */
const MEMORY_TOOLS = new Set(["remember", "recall", "notes", "forget", "page", "sessions"]);

/** Events at which nothing is to be seen: a step passes over them. */
const UNSEEN = new Set(["TurnStarted", "ModelRequested", "TextDelta"]);

/** @returns {State} */
export const beginning = () => ({
  day: 0, phase: "before", at: "", session: "", folds: [], diary: [], total: 0, ranking: null, roaster: null,
  orders: 0, speech: null, emptied: 0, last: "", kept: {},
});

/** The farm after the first `n` of these events. @returns {State} */
export const state = (events, n) => events.slice(0, n).reduce(after, beginning());

/** Whether something is to be seen at this event. */
export const seen = event => !UNSEEN.has(event.event);

/** The farm after one event more. The state before is left as it was. @param {State} before @returns {State} */
export function after(before, event) {
  const change = Object.hasOwn(CHANGES, event.event) ? CHANGES[event.event] : null;
  const now = { ...before, at: asText(event.at) || before.at, last: asText(event.event) };
  return change ? { ...now, ...change(wake(now, event), event) } : now;
}

// -- what each event changes ------------------------------------------------------------------------------------------

const CHANGES = {
  RunStarted(now, event) {
    const session = asText(event.session);
    // A session that goes on is sent again whole; of one that began before this recording only the length is known.
    const folds = session ? resumed(asList(now.kept[session]), asNumber(event.messages)) : [];
    const said = { role: "user", text: asText(event.prompt) };
    return {
      ...now, session, ranking: null, roaster: null, speech: { who: "customer", text: said.text },
      folds: session ? folds : [said],
    };
  },

  SessionSaved(now, event) {
    const role = asText(event.role);
    return grown(now, { role, text: role === "user" || role === "assistant" ? asText(now.speech?.text) : "" });
  },

  ModelReplied(now, event) {
    const said = asText(event.text);
    const speech = { who: "agent", text: said || asList(event.calls).map(call => `${asText(asList(call)[1])}…`).join(" ") };
    return now.session ? { ...now, speech } : { ...grown(now, { role: "assistant", text: speech.text }), speech };
  },

  ToolStarted(now, event) {
    if (MEMORY_TOOLS.has(event.name)) return now;
    const asked = Object.values(Object(event.arguments)).map(String).filter(Boolean).join(", ");
    return { ...now, roaster: { call: asText(event.call), name: asText(event.name), text: asked, done: false, ok: true } };
  },

  ToolEnded(now, event) {
    const result = asText(event.result);
    // In a session the message was saved just before, when its text was not known yet.
    const told = now.session ? filled(now.folds, result) : [...now.folds, { role: "tool", text: result }];
    const mine = now.roaster && now.roaster.call === asText(event.call);
    return {
      ...now, folds: told, kept: keep(now, told),
      orders: now.orders + (mine && event.ok ? 1 : 0),
      roaster: mine ? { ...now.roaster, done: true, ok: Boolean(event.ok) } : now.roaster,
    };
  },

  NoteRemembered(now, event) {
    const replaced = new Set(asList(event.replaces));
    const others = now.diary.filter(leaf => leaf.id !== event.note);
    const diary = others.map(leaf => (replaced.has(leaf.id) ? { ...leaf, replaced: true } : leaf));
    diary.push({ id: asText(event.note), text: asText(event.text), replaced: false });
    return { ...now, diary, total: asNumber(event.total) || diary.length };
  },

  Recalled(now, event) {
    const handed = new Set(asList(event.handed_on));
    const notes = asList(event.candidates).map(asList).map(([id, said, score]) => ({
      id: asText(id), text: asText(said), score: asNumber(score), handedOn: handed.has(id),
    }));
    // A note that was written before the recording began is in the diary all the same.
    const known = new Set(now.diary.map(leaf => leaf.id));
    const older = notes.filter(note => !known.has(note.id));
    const diary = [...older.map(({ id, text }) => ({ id, text, replaced: false })), ...now.diary];
    return {
      ...now, diary, total: Math.max(now.total, diary.length),
      ranking: { query: asText(event.query), verdict: asText(event.verdict), notes },
    };
  },

  RunEnded(now, event) {
    const said = asText(event.text) || asText(event.error);
    return said ? { ...now, speech: { who: "agent", text: said } } : now;
  },

  DayClosed(now, event) {
    const { [asText(event.session)]: ended, ...kept } = now.kept;
    const emptied = (asText(event.session) === now.session ? now.folds : ended ?? []).length || asNumber(event.messages);
    return {
      ...now, phase: "night", session: "", folds: [], ranking: null, roaster: null, speech: null, emptied,
      // It can be read again whole, if somebody resumes it: the night empties the head, not the shelf.
      kept: { ...kept, [asText(event.session)]: ended ?? now.folds },
    };
  },
};

// -- inside -----------------------------------------------------------------------------------------------------------

/** The first event of a day opens it. */
function wake(now, event) {
  if (now.phase === "day" || event.event === "DayClosed") return now;
  return { ...now, phase: "day", day: now.day + 1, folds: [], ranking: null, speech: null, emptied: 0 };
}

function grown(now, fold) {
  const folds = [...now.folds, fold];
  return { ...now, folds, kept: keep(now, folds) };
}

const keep = (now, folds) => (now.session ? { ...now.kept, [now.session]: folds } : now.kept);

function resumed(folds, messages) {
  const missing = Math.max(0, messages - folds.length);
  return [...Array.from({ length: missing }, () => ({ role: "earlier", text: "" })), ...folds].slice(-messages || Infinity);
}

/** The first tool's message that has no text yet gets it: results come in the order of the calls. */
function filled(folds, result) {
  const at = folds.findIndex(fold => fold.role === "tool" && !fold.text);
  return at < 0 ? folds : folds.map((fold, place) => (place === at ? { ...fold, text: result } : fold));
}
