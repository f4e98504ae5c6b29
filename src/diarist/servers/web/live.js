// What happens to the diary while we look at it.
import { events } from "./api.js";
import { el } from "./dom.js";
import { line } from "./transcript.js";
import { say, second } from "./words.js";

const MOST = 100; // lines; the oldest go

/**
 * The panel of a diary, which goes on listening from view to view until `leave`. `panel.changed` is called when
 * something was written, by whatever program; `panel.ended` says that nothing more will come.
 */
export function livePanel(owner) {
  const stop = new AbortController();
  const state = el("p", { class: "about", id: "live-state" }, say("live_off"));
  const list = el("ol", { id: "live", class: "live", tabindex: 0, "aria-label": say("live") }, el("li", { class: "about" }, say("live_none")));
  const farm = el("a", { href: `farm.html#${new URLSearchParams({ live: owner })}` }, say("see_farm"));
  const part = el("aside", { class: "aside", "aria-labelledby": "live-title" },
    el("h3", { id: "live-title" }, say("live")), el("p", { class: "about" }, say("live_about")), state, list, farm);
  const panel = { part, ended: false, changed: () => {}, leave: () => stop.abort() };
  listen().catch(() => {}).finally(() => {
    panel.ended = true;
    state.textContent = say("live_off");
  });

  async function listen() {
    let told = false;
    for await (const event of events(owner, stop.signal)) {
      state.textContent = say("live_on");
      if (event.event === "Changed" && !told) {
        told = true; // the first says only where the diary stands
        continue;
      }
      if (list.firstChild?.className === "about") list.replaceChildren();
      const at = event.at ? new Date(event.at) : new Date();
      list.prepend(el("li", { class: `event event-${event.event}` },
        el("time", { datetime: at.toISOString() }, second(at)), " ",
        el("span", { dir: "auto" }, line(event, { last: event.event }) || event.event)));
      while (list.childElementCount > MOST) list.lastChild.remove();
      if (event.event === "Changed") panel.changed();
    }
  }

  return panel;
}
