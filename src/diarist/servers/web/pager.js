// Which part of a long list is shown, and the way to the others.
import { el } from "./dom.js";
import { say } from "./words.js";

export function pager({ offset, each, total, go }) {
  if (total <= each && offset === 0) return el("span", { hidden: true });
  const last = Math.max(0, Math.floor((total - 1) / each) * each);
  const step = (word, at, off) => el("button", { type: "button", disabled: off, on: { click: () => go(at) } }, say(word));
  return el("nav", { class: "pager", "aria-label": say("pages") },
    step("first", 0, offset === 0), step("previous", Math.max(0, offset - each), offset === 0),
    el("span", {}, say("from_to", { from: Math.min(offset + 1, total), to: Math.min(offset + each, total), all: total })),
    step("next", offset + each, offset + each >= total), step("last", last, offset >= last));
}
