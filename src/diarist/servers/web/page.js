// The page that goes whole into the prompt: how full it is, and its text to write.
import { ask, of } from "./api.js";
import { el } from "./dom.js";
import { say } from "./words.js";

export async function pageView(diary) {
  const page = await ask("GET", of(diary.owner, "page"));
  const may = diary.scope !== "read";
  const area = el("textarea", { rows: 12, dir: "auto", readonly: !may, "aria-label": say("page_text"), spellcheck: "true" });
  area.value = page.text;
  const form = el("form", { class: "page" }, fullness(page), area, may && el("button", { class: "main" }, say("save")));
  form.addEventListener("submit", event => {
    event.preventDefault();
    diary.guard(async () => {
      // With the version that was read: what somebody else wrote since is not overwritten.
      await ask("PUT", of(diary.owner, "page"), { body: { text: area.value, version: page.version } });
      await diary.done(say("page_saved"));
    });
  });
  return [el("p", { class: "about" }, say("page_about")), form,
    el("details", {}, el("summary", {}, say("page_rendered")), el("pre", { class: "given", dir: "auto", tabindex: 0 }, page.rendered))];
}

function fullness({ tokens, budget }) {
  const words = say("page_tokens", { tokens, budget });
  return el("p", { class: "fullness" },
    el("meter", { min: 0, max: budget, value: tokens, high: 0.9 * budget, "aria-label": words }), " ", words);
}
