// Where in the run we are, and how it goes on: play, pause, step, scrub. It knows nothing of what is drawn.
import { seen } from "./farm-state.js";
import { asText } from "./kinds.js";

/** How long an event is looked at, in milliseconds at normal speed. */
const LOOKED_AT = {
  RunStarted: 3000, SessionSaved: 700, Recalled: 4200, ModelReplied: 1500, ToolStarted: 1100, ToolEnded: 1100,
  NoteRemembered: 2400, RunEnded: 2200, DayClosed: 7400,
};

export class Player {
  /** `show(n, moves)`: show the first n events; `moves` if they are one more than those shown before. */
  constructor(show) {
    this.show = show;
    this.events = [];
    this.at = 0;
    this.speed = 1;
    this.timer = 0;
  }

  get playing() {
    return this.timer !== 0;
  }

  get ended() {
    return this.at >= this.events.length;
  }

  open(events, at = 0) {
    this.pause();
    this.events = events;
    this.go(at);
  }

  /** One event more, of a run that goes on. Who looks at its end goes on looking there. */
  add(event) {
    const follows = this.ended;
    this.events.push(event);
    if (follows) this.go(this.events.length, true);
    else this.go(this.at);
  }

  go(n, moves = false) {
    this.at = Math.max(0, Math.min(this.events.length, n));
    this.show(this.at, moves);
  }

  play() {
    if (this.playing) return;
    if (this.ended) this.go(0);
    const next = () => {
      this.step();
      const event = this.events[this.at - 1];
      const shown = LOOKED_AT[event?.event] ?? 600;
      // A roaster needs its time; an answer is read before the next thing happens.
      const longer = event?.event === "ToolStarted" && !QUICK.has(event.name) ? 1900 : Math.min(2500, 28 * asText(event?.text).length);
      this.timer = this.ended ? 0 : setTimeout(next, (shown + longer) / this.speed);
      this.show(this.at, null);
    };
    this.timer = setTimeout(next, 200);
    this.show(this.at, null);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.show(this.at, null);
  }

  /** To the next event at which something is to be seen. */
  step() {
    let n = this.at + 1;
    while (n < this.events.length && !seen(this.events[n - 1])) n += 1;
    this.go(n, true);
  }

  back() {
    let n = this.at - 1;
    while (n > 0 && !seen(this.events[n - 1])) n -= 1;
    this.go(n);
  }
}

const QUICK = new Set(["remember", "recall", "notes", "forget", "page", "sessions"]);
