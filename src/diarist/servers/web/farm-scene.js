// Draws a state of the farm. What moves between two states is decided here and in farm.css; what is true is not.
import { drawn, el, the } from "./dom.js";
import { decimal } from "./words.js";

const PLAYER = { x: 584, y: 508 }; // the middle of the bandoneon
const NARROWEST = 14, WIDEST = 232; // of the bellows, between the two boxes
const COLOURS = { user: "#3f7c85", assistant: "#e9c46a", tool: "#c8553d", system: "#8d8491", earlier: "#b9a5b9" };
const SHEETS = 6; // that fit on the line; the panel below has all of them

export class Scene {
  constructor() {
    this.root = the("scene");
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.folds = [];
    this.width = NARROWEST;
    this.moving = 0;
    this.timers = [];
  }

  /** Shows a state. `moves`: whether it follows from the one shown before, so that what happened may be acted out. */
  show(state, event, moves) {
    const acted = moves && !this.still.matches;
    this.timers.splice(0).forEach(clearTimeout);
    this.root.dataset.phase = state.phase;
    this.root.classList.toggle("acted", acted);
    this.play(acted ? ACTS[event?.event]?.(state) ?? "" : "");
    this.root.classList.toggle("roasting", Boolean(state.roaster && !state.roaster.done));
    this.root.classList.toggle("asking", state.speech?.who === "customer");
    this.root.classList.toggle("visited", state.phase === "day");
    this.hang(state.ranking, acted && event?.event === "Recalled");
    this.write(state.diary, state.total, acted && event?.event === "NoteRemembered");
    this.parcels(state, acted && event?.event === "ToolEnded");
    this.speak(state);
    if (state.phase === "night" && acted) {
      const taken = this.folds; // the spectre rubs them out from the end
      taken.forEach((_, at) => this.later(900 + (1900 * at) / taken.length, () => this.stretch(taken.slice(0, taken.length - at - 1))));
    } else {
      this.stretch(state.folds, acted);
    }
  }

  later(ms, act) {
    this.timers.push(setTimeout(act, ms));
  }

  /** Begins an act of farm.css from its start. */
  play(act) {
    if (this.act) this.root.classList.remove(this.act);
    this.act = act;
    if (!act) return;
    void this.root.getBoundingClientRect(); // so that the same act begins anew
    this.root.classList.add(act);
  }

  // -- the bandoneon --------------------------------------------------------------------------------------------------

  stretch(folds, acted = true) {
    const grew = folds.length > this.folds.length;
    this.folds = folds;
    const wanted = folds.length ? Math.min(WIDEST, NARROWEST + folds.length * 20) : NARROWEST;
    cancelAnimationFrame(this.moving);
    if (!acted || this.still.matches) {
      this.width = wanted;
      this.bellows();
      return;
    }
    const from = this.width, began = performance.now();
    const frame = now => {
      const t = Math.min(1, (now - began) / 550);
      const back = grew ? 1 + 1.7 * (t - 1) ** 3 + 0.7 * (t - 1) ** 2 : 1 - (1 - t) ** 3; // it draws breath, then settles
      this.width = from + (wanted - from) * back;
      this.bellows();
      if (t < 1) this.moving = requestAnimationFrame(frame);
    };
    this.moving = requestAnimationFrame(frame);
  }

  bellows() {
    const width = this.width, left = PLAYER.x - width / 2, right = PLAYER.x + width / 2;
    const shown = this.folds.length ? this.folds.slice(-40) : [{ role: "system" }];
    const step = width / shown.length;
    const sag = x => 26 * Math.sin((Math.PI * (x - left)) / Math.max(1, width)) * Math.min(1, width / WIDEST);
    const parts = shown.flatMap((fold, at) => {
      const [a, b, c] = [left + at * step, left + (at + 0.5) * step, left + (at + 1) * step];
      const colour = COLOURS[fold.role] ?? COLOURS.tool;
      const side = (x1, x2, y1, y2) =>
        `M${x1} ${PLAYER.y - y1 + sag(x1)}L${x2} ${PLAYER.y - y2 + sag(x2)}V${PLAYER.y + y2 + sag(x2)}L${x1} ${PLAYER.y + y1 + sag(x1)}z`;
      return [
        drawn("path", { d: side(a, b, 40, 50), fill: colour }),
        drawn("path", { d: side(b, c, 50, 40), fill: colour }),
        drawn("path", { d: side(b, c, 50, 40), fill: "#2d1e2f", opacity: 0.22, stroke: "none" }),
      ];
    });
    the("bellows").replaceChildren(...parts);
    const lean = Math.min(8, width / 24);
    the("box-left").setAttribute("transform", `translate(${left} ${PLAYER.y}) rotate(${-lean})`);
    the("box-right").setAttribute("transform", `translate(${right} ${PLAYER.y}) rotate(${lean})`);
    place("hand-left", left - 50, PLAYER.y - 8);
    place("hand-right", right + 50, PLAYER.y - 8);
    arm("arm-left", 534, left - 46, -1);
    arm("arm-right", 634, right + 46, 1);
  }

  // -- the diary ------------------------------------------------------------------------------------------------------

  write(diary, total, fresh) {
    const many = Math.max(diary.length, total);
    const thick = Math.min(26, many * 1.5);
    the("stack").setAttribute("d", `M764 502q50-16 98 2 46-18 98-2v${4 + thick}q-50-14-98 2-48-16-98-2z`);
    const lines = Array.from({ length: Math.min(12, many) }, (_, at) => {
      const column = at % 12 < 6 ? 0 : 1, row = at % 6;
      const [x, y] = column ? [872 + row, 440 + row * 9] : [792 - row * 1.5, 440 + row * 9];
      const length = 42 + ((at * 17) % 16), last = at === Math.min(12, many) - 1;
      return drawn("path", { d: `M${x} ${y}q6-5 12 0t12 0 12 0h${length - 36}`, pathLength: 1, class: last && fresh ? "ink" : "" });
    });
    the("writing").replaceChildren(...lines);
    the("diary").classList.toggle("thick", many > 0);
  }

  // -- the line with what was ranked ----------------------------------------------------------------------------------

  hang(ranking, fresh) {
    const notes = (ranking?.notes ?? []).slice(0, SHEETS);
    const room = 700 / Math.max(notes.length, 4), first = 600 - (room * (notes.length - 1)) / 2;
    const sheets = notes.map((note, at) => {
      const x = first + at * room, y = 40 + 22 * (1 - ((x - 600) / 364) ** 2);
      const paper = note.handedOn ? "#fff6e0" : "#cfc8d6";
      return drawn("g", { transform: `translate(${x} ${y})` },
        drawn("g", { class: `sheet ${note.handedOn ? "handed" : "back"} ${fresh ? `fresh n${at}` : ""}` },
          drawn("path", { d: "M-50 0q50 8 100 0l4 84q-26 10-54 2-28 10-54 0z", fill: paper, stroke: "#2d1e2f", "stroke-width": 3.5, "stroke-linejoin": "round" }),
          drawn("path", { d: "M-36 56h64M-36 68h46", stroke: "#4a4a86", "stroke-width": 3, "stroke-linecap": "round", opacity: note.handedOn ? 1 : 0.5 }),
          drawn("text", { x: 0, y: 42, "text-anchor": "middle", class: "score" }, decimal(note.score)),
          drawn("path", { d: "M-6-10h12l-2 24h-8z", fill: note.handedOn ? "#b9432f" : "#8a5a3c", stroke: "#2d1e2f", "stroke-width": 2.5 }),
          note.handedOn && drawn("path", { d: "M40 70l5 11 12 1-9 8 3 12-11-6-11 6 3-12-9-8 12-1z", fill: "#ffd66b", stroke: "#2d1e2f", "stroke-width": 2.5 })));
    });
    the("sheets").replaceChildren(...sheets);
    this.root.classList.toggle("ranked", notes.length > 0);
  }

  // -- the roaster ----------------------------------------------------------------------------------------------------

  parcels(state, fresh) {
    const many = Math.min(3, state.orders);
    const boxes = Array.from({ length: many }, (_, at) =>
      drawn("g", { transform: `translate(${430 - (at === 2 ? 26 : at * 52)} ${at === 2 ? 552 : 596})` },
        drawn("g", { class: fresh && at === many - 1 && state.roaster?.ok ? "pop" : "" },
          drawn("path", { d: "M-24-18h48v42h-48z", fill: "#d9a766", stroke: "#2d1e2f", "stroke-width": 3.5, "stroke-linejoin": "round" }),
          drawn("path", { d: "M0-18v42M-24 2h48", stroke: "#b9432f", "stroke-width": 4 }),
          drawn("path", { d: "M0-18q-16-16-18-2 6 8 18 2 12 6 18-2-2-14-18 2", fill: "#b9432f", stroke: "#2d1e2f", "stroke-width": 2.5 }))));
    the("parcels").replaceChildren(...boxes);
  }

  // -- who speaks -----------------------------------------------------------------------------------------------------

  speak({ speech, phase }) {
    if (!speech?.text || phase !== "day") {
      the("bubbles").replaceChildren();
      return;
    }
    const shown = this.root.getBoundingClientRect();
    const larger = Math.min(1.4, Math.max(1, 0.62 / Math.max(shown.width / 1200, shown.height / 660))); // on a phone
    const [left, tail] = speech.who === "customer" ? [262, 424] : [larger > 1 ? 510 : 540, 620];
    const short = speech.text.length > 104 ? `${speech.text.slice(0, 102).trimEnd()}…` : speech.text;
    const width = Math.max(150, Math.min(370, 50 + short.length * 13)), x = width < 370 ? tail - width / 3 : left;
    const rows = Math.ceil(short.length / 27), height = 24 + Math.min(4, rows) * 27, top = 286 - height;
    the("bubbles").replaceChildren(drawn("g", { transform: `translate(${tail} 316) scale(${larger}) translate(${-tail} -316)` }, drawn("g", { class: "bubble" },
      drawn("path", {
        d: `M${x + 22} ${top}h${width - 44}q22 0 22 22v${height - 44}q0 22-22 22H${tail + 34}q-6 20-24 30 4-16-2-30H${x + 22}q-22 0-22-22v${44 - height}q0-22 22-22z`,
        fill: "#fffaf0", stroke: "#2d1e2f", "stroke-width": 3.5, "stroke-linejoin": "round" }),
      drawn("foreignObject", { x: x + 14, y: top + 6, width: width - 28, height: height - 12 },
        el("p", { class: "said", dir: "auto" }, short)))));
  }
}

const ACTS = {
  DayClosed: () => "act-night",
  NoteRemembered: () => "act-remember",
  Recalled: state => (state.ranking?.notes.some(note => note.handedOn) ? "act-recall" : ""),
  RunStarted: state => (state.day > 1 && state.emptied === 0 && !state.folds.length ? "act-morning" : ""),
  SessionSaved: () => "act-play",
};

function place(id, x, y) {
  the(id).setAttribute("cx", x);
  the(id).setAttribute("cy", y);
}

function arm(id, shoulder, hand, side) {
  the(id).setAttribute("d", `M${shoulder} 466Q${hand + side * 26} 470 ${hand} ${PLAYER.y - 6}`);
}
