// The sessions with an owner, and what was said in one of them.
import { ask, of, segment } from "./api.js";
import { agree } from "./ask-first.js";
import { el } from "./dom.js";
import { reported } from "./note.js";
import { pager } from "./pager.js";
import { moment, say, sayIf } from "./words.js";

const EACH = 50, MESSAGES = 100;

export const sessionsView = diary => (diary.place.session === undefined ? list(diary) : one(diary, diary.place.session));

async function list({ owner, place, zone, go }) {
  const offset = Math.max(0, Number(place.offset) || 0);
  const { sessions, total } = await ask("GET", of(owner, "sessions"), { query: { limit: EACH, offset } });
  if (!total) return [el("p", { class: "about" }, say("no_sessions"))];
  return [
    el("ul", { class: "sessions" }, ...sessions.map(each => el("li", {},
      el("a", { href: `#${new URLSearchParams({ owner, view: "sessions", session: each.id })}`, dir: "auto" }, each.id),
      el("ul", { class: "facts" },
        el("li", {}, say("messages_n", { n: each.messages })),
        el("li", {}, say("begun", { when: moment(each.created_at, zone) })),
        el("li", {}, say("last_at", { when: moment(each.last_at, zone) })),
        each.ended_at && el("li", {}, say("ended")))))),
    pager({ offset, each: EACH, total, go: at => go({ owner, view: "sessions", offset: at || "" }) }),
  ];
}

async function one(diary, id) {
  const { owner, place, scope, go } = diary;
  const offset = Math.max(0, Number(place.offset) || 0);
  const { messages, total, damaged } = await ask("GET", of(owner, "sessions", segment(id)), { query: { limit: MESSAGES, offset } });
  const forget = () => diary.guard(async () => {
    if (!(await agree(say("forget_session"), say("forget_session_about"), { quote: id, danger: true }))) return;
    const report = await ask("DELETE", of(owner, "sessions", segment(id)));
    go({ owner, view: "sessions" }, reported(report));
  });
  return [
    el("p", {}, el("a", { href: `#${new URLSearchParams({ owner, view: "sessions" })}` }, say("back_to_sessions"))),
    el("h3", { dir: "auto" }, id),
    damaged.length > 0 && el("p", { class: "notice" }, say("damaged", { names: damaged.join(", ") })),
    el("ol", { class: "messages" }, ...messages.map(each => message(each.message))),
    pager({ offset, each: MESSAGES, total, go: at => go({ owner, view: "sessions", session: id, offset: at || "" }) }),
    scope !== "read" && el("button", { type: "button", class: "danger", on: { click: forget } }, say("forget_session")),
  ].filter(Boolean);
}

function message({ role, content, tool_calls: calls }) {
  const said = typeof content === "string" ? content : content == null ? "" : JSON.stringify(content);
  const called = (Array.isArray(calls) ? calls : []).map(call =>
    el("p", { class: "called", dir: "auto" }, `${say("calls")} ${call?.function?.name ?? ""} ${call?.function?.arguments ?? ""}`));
  return el("li", { class: `message${role === "user" ? " asked" : ""}` }, el("b", {}, sayIf(`role_${role}`, String(role))),
    said && el("p", { class: "text", dir: "auto" }, said), ...called);
}
