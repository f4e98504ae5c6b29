// One owner's diary: what is in it at a glance, its parts, and what happens to it while we look.
import { ask, of } from "./api.js";
import { el } from "./dom.js";
import { everythingView } from "./everything.js";
import { livePanel } from "./live.js";
import { notesView } from "./notes.js";
import { percent } from "./note.js";
import { pageView } from "./page.js";
import { searchView } from "./search.js";
import { sessionsView } from "./sessions.js";
import { language, say } from "./words.js";

const VIEWS = { notes: notesView, search: searchView, page: pageView, sessions: sessionsView, all: everythingView };

let live = null, heard = ""; // the panel of the diary that is shown, and whose it is, in which language

/** Ends what listens to a diary, since another is shown, or none. */
export function stopListening() {
  live?.leave();
  live = null;
}

function listening(owner) {
  const wanted = `${language()} ${owner}`;
  if (live === null || live.ended || heard !== wanted) {
    stopListening();
    live = livePanel(owner);
    heard = wanted;
  }
  return live;
}

export async function diaryView(page) {
  const { owner, place, caller } = page;
  const name = Object.hasOwn(VIEWS, place.view ?? "") ? place.view : "notes";
  let about = await ask("GET", of(owner));
  const diary = { ...page, about, owner, zone: about.timezone, scope: caller.scope };
  const body = el("section", { class: "view", "aria-label": say(`view_${name}`) }, ...(await VIEWS[name](diary)));
  const glance = el("ul", { class: "glance" });
  const counts = () => glance.replaceChildren(...facts(about).map(each => el("li", {}, each)));
  counts();

  const changed = () => page.guard(async () => {
    about = await ask("GET", of(owner));
    counts();
    const busy = body.contains(document.activeElement) || body.querySelector(".note details[open]") || document.querySelector("dialog");
    if (name === "notes" && !busy) body.replaceChildren(...(await notesView(diary)));
  });
  const panel = listening(owner);
  panel.changed = changed;

  const tabs = el("nav", { class: "tabs", "aria-label": say("views") }, ...Object.keys(VIEWS).map(each =>
    el("a", { href: `#${new URLSearchParams({ owner, view: each })}`, "aria-current": each === name && "page" }, say(`view_${each}`))));
  const head = el("div", { class: "head" },
    el("h2", { "data-focus": true, class: "owner" }, `${say("diary_of")} `, el("bdi", {}, owner)),
    caller.scope === "read" && el("span", { class: "badge" }, say("read_only")), glance);
  return { parts: [el("div", { class: "diary" }, head, tabs, body, panel.part)] };
}

function facts(about) {
  return [
    say("notes_n", { n: about.notes }),
    about.all_notes !== about.notes && say("all_notes_n", { n: about.all_notes }),
    about.quarantined > 0 && say("quarantined_n", { n: about.quarantined }),
    about.pending > 0 && say("pending_n", { n: about.pending }),
    say("sessions_n", { n: about.sessions }),
    say("page_full", { percent: percent(about.page_tokens, about.page_budget) }),
    about.retention_days !== null && say("keeps_days", { n: about.retention_days }),
    about.timezone,
  ].filter(Boolean);
}
