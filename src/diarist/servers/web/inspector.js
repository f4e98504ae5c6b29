// The inspector: who may look, where in the memory we are, and the part of the page that shows it.
import { Refusal, ask, dropToken, hasToken, keepToken, takeToken } from "./api.js";
import { diaryView, stopListening } from "./diary.js";
import { el, the } from "./dom.js";
import "./inspector-words.js";
import { ownersView } from "./owners.js";
import { choices } from "./prefer.js";
import { say } from "./words.js";

let caller = null; // what the token allows, as the server says it
let arriving = ""; // what is to be said once the next view is there
let turn = 0; // a view that was asked for later takes the place of one that is still on its way

/** Where we are: #owner=...&view=notes&offset=50. The fragment is never sent to the server. */
const where = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function go(place, message = "") {
  arriving = message;
  const hash = `#${new URLSearchParams(Object.entries(place).filter(([, value]) => value !== "" && value != null))}`;
  if (hash === location.hash || (hash === "#" && !location.hash)) show();
  else location.hash = hash;
}

async function show({ message = arriving, stay = false } = {}) {
  const mine = ++turn;
  arriving = "";
  tell("");
  if (!hasToken()) return signIn();
  await guard(async () => {
    caller ??= await ask("GET", "/v1/token");
    const place = where();
    const owner = caller.owner ?? place.owner;
    const page = { caller, place, owner, go, guard, done: text => show({ message: text, stay: true }), tell };
    if (owner === undefined) stopListening();
    const view = owner === undefined ? await ownersView(page) : await diaryView(page);
    if (mine !== turn) return;
    const at = scrollY;
    the("main").replaceChildren(...view.parts);
    tell(message);
    crumbs(owner);
    if (stay) scrollTo(0, at);
    focus(stay);
  });
}

function focus(stay) {
  const heading = the("main").querySelector("[data-focus]") ?? the("main");
  if (!heading.hasAttribute("tabindex") && heading.tabIndex < 0) heading.setAttribute("tabindex", "-1");
  heading.focus({ preventScroll: stay });
}

function crumbs(owner) {
  const all = caller.owner === null && owner !== undefined ? [el("a", { href: "#" }, say("owners"))] : [];
  the("where").replaceChildren(...all,
    el("button", { type: "button", class: "quiet", id: "sign-out", on: { click: () => {
      dropToken();
      caller = null;
      go({});
    } } }, say("sign_out")));
}

function tell(text) {
  the("status").textContent = text;
}

/** Does it, and says in words what went wrong. */
async function guard(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (!(error instanceof Refusal)) throw error;
    if (error.status === 401) {
      dropToken();
      caller = null;
      signIn(say("token_refused"));
    } else {
      tell(error.status === 0 ? say("unreachable") : say("failed", { text: error.message }));
    }
    return undefined;
  }
}

function signIn(message = "") {
  stopListening();
  const input = el("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = el("form", { class: "sign-in" },
    el("h2", { "data-focus": true }, say("sign_in")), el("p", {}, say("sign_in_about")),
    el("label", { for: "token" }, say("token")), input, el("button", { class: "main" }, say("sign_in")));
  form.addEventListener("submit", event => {
    event.preventDefault();
    keepToken(input.value);
    show();
  });
  the("where").replaceChildren();
  the("main").replaceChildren(form);
  tell(message);
  input.focus();
}

takeToken();
the("choices").replaceWith(choices(() => show({ stay: true })));
the("skip").addEventListener("click", event => {
  event.preventDefault(); // the fragment says where we are
  the("main").focus();
});
addEventListener("hashchange", () => {
  if (takeToken()) caller = null;
  show();
});
show();
