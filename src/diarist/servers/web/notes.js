// The notes of a diary by pages, newest first: for people, so those kept out of recall are among them.
import { ask, of } from "./api.js";
import { el } from "./dom.js";
import { noteCard } from "./note.js";
import { pager } from "./pager.js";
import { say } from "./words.js";

const EACH = 50;

export async function notesView(diary) {
  const { owner, place, zone, go } = diary;
  const offset = Math.max(0, Number(place.offset) || 0);
  const filter = { tag: place.tag, source: place.source, since: place.since, before: place.before, replaced: place.replaced };
  const { notes, total } = await ask("GET", of(owner, "notes"), { query: {
    limit: EACH, offset, tag: filter.tag, source: filter.source,
    since: filter.since && midnight(filter.since, zone), before: filter.before && midnight(filter.before, zone),
    include_replaced: Boolean(filter.replaced), include_quarantined: true,
  } });
  const to = more => go({ owner, view: "notes", ...filter, ...more });
  const narrowed = Object.values(filter).some(Boolean);
  if (total === 0 && !narrowed) return [el("p", { class: "about" }, say("no_notes_yet"))];
  const pages = () => pager({ offset, each: EACH, total, go: at => to({ offset: at || "" }) });
  return [
    // Where there is little room it is out of the way until it is wanted.
    el("details", { class: "filters", open: narrowed || matchMedia("(min-width: 48rem)").matches },
      el("summary", {}, say("filter_notes")), form(filter, to)),
    total > 0 ? pages() : el("p", { class: "about" }, say("no_notes")),
    el("ol", { class: "notes" }, ...notes.map(note => el("li", {}, noteCard(note, diary)))),
    notes.length > 10 && pages(),
  ].filter(Boolean);
}

function form(filter, to) {
  const field = (name, type) => {
    const input = el("input", { name, type, dir: "auto", autocomplete: "off", value: filter[name] });
    return [input, el("label", {}, say(name), input)];
  };
  const [tag, tagLabel] = field("tag", "text"), [source, sourceLabel] = field("source", "text");
  const [since, sinceLabel] = field("since", "date"), [before, beforeLabel] = field("before", "date");
  const replaced = el("input", { type: "checkbox", name: "replaced", checked: Boolean(filter.replaced) });
  const whole = el("form", { class: "row filter" }, tagLabel, sourceLabel, sinceLabel, beforeLabel,
    el("label", {}, replaced, say("with_replaced")), el("button", {}, say("filter")));
  whole.addEventListener("submit", event => {
    event.preventDefault();
    to({ tag: tag.value, source: source.value, since: since.value, before: before.value, replaced: replaced.checked ? 1 : "" });
  });
  return whole;
}

/** The beginning of a day where the owner lives, ISO 8601 with an offset. */
function midnight(date, zone) {
  try {
    const parts = new Intl.DateTimeFormat("en-US", { timeZone: zone, timeZoneName: "longOffset" })
      .formatToParts(new Date(`${date}T00:00:00Z`));
    return `${date}T00:00:00${parts.find(part => part.type === "timeZoneName").value.slice(3) || "Z"}`;
  } catch {
    return `${date}T00:00:00Z`; // a zone unknown to the browser, or no date: the server says what is wrong with it
  }
}
