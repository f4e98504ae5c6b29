// What is about the diary as a whole: take it along, or erase it.
import { askText, of } from "./api.js";
import { el } from "./dom.js";
import { eraseAll } from "./note.js";
import { say } from "./words.js";

export async function everythingView(diary) {
  const { owner, scope, guard, go, tell } = diary;
  const save = () => guard(async () => {
    const name = `diary-${owner.replace(/[^\w.@-]+/g, "_").slice(0, 80)}.jsonl`;
    const address = URL.createObjectURL(new Blob([await askText(of(owner, "export"))], { type: "application/x-ndjson" }));
    el("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    tell(say("exported", { name }));
  });
  const erase = () => guard(async () => {
    const said = await eraseAll(owner);
    if (said === null) return;
    if (diary.caller.owner === null) go({}, said);
    else await diary.done(said);
  });
  const part = (title, about, button) => el("section", { class: "part" }, el("h3", {}, title), el("p", {}, about), button);
  return [
    part(say("export"), say("export_about"), el("button", { type: "button", on: { click: save } }, say("export"))),
    scope !== "read" && part(say("erase"), say("erase_about"),
      el("button", { type: "button", class: "danger", on: { click: erase } }, say("erase"))),
  ].filter(Boolean);
}
