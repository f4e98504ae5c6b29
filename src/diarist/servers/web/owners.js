// Everyone of whom something is kept, by pages. For the admin's token only.
import { ask } from "./api.js";
import { el } from "./dom.js";
import { pager } from "./pager.js";
import { say } from "./words.js";

const EACH = 100;

export async function ownersView({ place, go, caller }) {
  const offset = Math.max(0, Number(place.offset) || 0);
  const { owners, total } = await ask("GET", "/v1/owners", { query: { limit: EACH, offset } });
  const name = el("input", { id: "open-owner", autocomplete: "off", spellcheck: "false", dir: "auto", required: true });
  const form = el("form", { class: "row" }, el("label", {}, say("open_diary"), name), el("button", {}, say("open")));
  form.addEventListener("submit", event => {
    event.preventDefault();
    go({ owner: name.value });
  });
  const list = el("ul", { class: "owners" }, ...owners.map(owner =>
    el("li", {}, el("a", { href: `#${new URLSearchParams({ owner })}`, dir: "auto" }, owner))));
  return { parts: [el("section", { class: "narrow", "data-scope": caller.scope },
    el("h2", { "data-focus": true }, say("owners")), el("p", { class: "about" }, say("owners_n", { n: total })), form, list,
    pager({ offset, each: EACH, total, go: at => go({ offset: at || "" }) }))] };
}
