// The farm: opens a run, recorded or live, and puts player, scene, panels and transcript together.
import { el, the } from "./dom.js";
import { Player } from "./farm-player.js";
import { Scene } from "./farm-scene.js";
import { after, beginning, seen, state } from "./farm-state.js";
import { choices } from "./prefer.js";
import { line } from "./transcript.js";
import { day, decimal, say, sayIf } from "./words.js";

const scene = new Scene();
const player = new Player(show);
let now = beginning();
let empty = "nothing_open";
let written = 0; // events that are in the transcript

function show(n, moves) {
  if (moves === null) {
    buttons(); // only whether it plays has changed
    return;
  }
  now = moves && n > 0 && written === n - 1 ? after(now, player.events[n - 1]) : state(player.events, n);
  const event = player.events[n - 1];
  scene.show(now, event, moves);
  the("when").textContent = when();
  the("caption").textContent = (event && line(event, now)) || the("caption").textContent;
  if (!n) the("caption").textContent = player.events.length ? say("before_the_day") : say(empty);
  panels();
  transcript(n);
  buttons();
}

function when() {
  if (now.phase === "before") return say("before_the_day");
  const number = { n: now.day };
  if (now.phase === "night") return say("night_n", number);
  return [say("day_n", number), day(now.at, "UTC"), now.session].filter(Boolean).join(" · ");
}

function buttons() {
  the("play").classList.toggle("playing", player.playing);
  the("play-word").textContent = say(player.playing ? "pause" : player.ended && player.events.length ? "replay" : "play");
  the("scrub").max = player.events.length;
  the("scrub").value = player.at;
  const place = say("event_of", { n: player.at, all: player.events.length });
  the("place").textContent = place;
  the("scrub").setAttribute("aria-valuetext", `${place}. ${the("caption").textContent}`);
  the("back").disabled = player.at === 0;
  the("step").disabled = player.ended;
  the("play").disabled = !player.events.length;
}

// -- what the scene shows, to be read ---------------------------------------------------------------------------------

function panels() {
  the("about-bandoneon").textContent = now.phase === "night"
    ? say("emptied_n", { n: now.emptied }) : say("folds_n", { n: now.folds.length });
  the("folds").replaceChildren(...now.folds.slice(-60).map(fold =>
    el("li", { class: `fold ${Object.hasOwn(ROLES, fold.role) ? fold.role : "tool"}` },
      el("b", {}, sayIf(`role_${fold.role}`, fold.role)), " ", el("span", { dir: "auto" }, fold.text))));
  the("about-diary").textContent = say("leaves_n", { n: now.total });
  the("leaves").replaceChildren(...now.diary.slice(-60).map(leaf =>
    el("li", { class: leaf.replaced ? "leaf replaced" : "leaf", dir: "auto" }, leaf.text, leaf.replaced && el("em", {}, ` (${say("replaced")})`))));
  const ranking = now.ranking;
  the("about-ranking").textContent = !ranking ? say("no_ranking")
    : say("ranking_for", { query: ranking.query, verdict: sayIf(`verdict_${ranking.verdict}`, ranking.verdict) });
  the("ranks").replaceChildren(...(ranking?.notes ?? []).map(note => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = `${Math.max(0, Math.min(1, note.score)) * 100}%`;
    return el("li", { class: note.handedOn ? "rank handed" : "rank" },
      el("b", {}, decimal(note.score)), bar, el("span", { dir: "auto" }, note.text),
      el("em", {}, say(note.handedOn ? "handed_on" : "kept_back")));
  }));
}

const ROLES = { user: 1, assistant: 1, tool: 1, system: 1, earlier: 1 };

function transcript(n) {
  const list = the("transcript");
  if (n < written) {
    while (list.lastChild && Number(list.lastChild.dataset.n) > n) list.lastChild.remove();
  } else {
    let then = written === n - 1 ? now : state(player.events, written);
    for (let at = written; at < n; at += 1) {
      const event = player.events[at];
      if (written !== n - 1) then = after(then, event);
      const told = seen(event) && event.event !== "SessionSaved" ? line(event, then) : "";
      if (event.event === "RunStarted" && then.folds.length === 0 && opens(at)) {
        list.append(el("li", { class: "day", "data-n": at + 1 }, `${say("day_n", { n: then.day })} · ${day(event.at, "UTC")}`));
      }
      if (told) list.append(el("li", { class: event.event === "DayClosed" ? "night" : "", "data-n": at + 1, dir: "auto" }, told));
    }
  }
  written = n;
  list.scrollTop = list.scrollHeight;
}

/** Whether the event there is the first of a day. */
function opens(at) {
  for (let before = at - 1; before >= 0; before -= 1) {
    if (player.events[before].event === "DayClosed") return true;
    if (player.events[before].event === "RunStarted") return false;
  }
  return true;
}

// -- where the run comes from -----------------------------------------------------------------------------------------

/** The events of a recording. Throws the number of the line that is none. */
function parsed(text) {
  return text.split("\n").map((each, at) => [each.trim(), at + 1]).filter(([each]) => each).map(([each, number]) => {
    try {
      const event = JSON.parse(each);
      if (typeof event.event === "string") return event;
    } catch {
      // said below, with the others
    }
    throw new RangeError(String(number));
  });
}

function open(text) {
  try {
    const events = parsed(text);
    the("file-error").textContent = "";
    reset();
    player.open(events);
    return true;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    the("file-error").textContent = say("not_a_run", { n: Number(error.message) });
    return false;
  }
}

function reset() {
  written = 0;
  the("transcript").replaceChildren();
}

async function begin() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const inside = the("run"); // in a file made by diarist replay --html
  if (inside) {
    the("bring").hidden = true;
    open(inside.textContent);
  } else if (asked.has("run")) {
    const answer = await fetch("run.jsonl").catch(() => null);
    if (answer?.ok) open(await answer.text());
    else {
      empty = "run_not_there";
      player.open([]);
    }
  } else if (asked.has("live")) {
    await listen(asked.get("live"));
  } else {
    player.open([]);
  }
}

async function listen(owner) {
  empty = "live_connects";
  player.open([]);
  const { events } = await import("./api.js");
  try {
    for await (const event of events(owner)) {
      if (event.event !== "Changed") player.add(event);
      else if (empty !== "live_waits") {
        empty = "live_waits"; // the first thing that is said is where the diary stands
        if (!player.events.length) player.open([]);
      }
    }
  } catch {
    // said below: whatever ended it, nothing more will come
  }
  empty = "live_ended";
  if (player.events.length) the("caption").textContent = say("live_ended");
  else player.open([]);
}

// -- the controls -----------------------------------------------------------------------------------------------------

document.body.dataset.title = "title_farm";
the("choices").replaceWith(choices(() => {
  reset();
  player.go(player.at);
}));
the("play").addEventListener("click", () => (player.playing ? player.pause() : player.play()));
the("step").addEventListener("click", () => {
  player.pause();
  player.step();
});
the("back").addEventListener("click", () => {
  player.pause();
  player.back();
});
the("scrub").addEventListener("input", () => {
  const wanted = Number(the("scrub").value); // to pause puts it back
  player.pause();
  player.go(wanted);
});
the("speed").addEventListener("change", () => {
  player.speed = Number(the("speed").value);
  the("scene").style.setProperty("--pace", String(1 / player.speed));
});
the("file").addEventListener("change", async () => {
  const [file] = the("file").files;
  if (file) open(await file.text());
});
document.addEventListener("keydown", event => {
  const typing = event.target instanceof Element && event.target.closest("input, select, textarea, button");
  if (typing || event.altKey || event.ctrlKey || event.metaKey) return;
  const act = { " ": () => the("play").click(), ArrowRight: () => the("step").click(), ArrowLeft: () => the("back").click() }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
begin();
