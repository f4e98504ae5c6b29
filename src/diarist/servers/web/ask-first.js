// Dialogs: a text to write, something to agree to, a name to type. Each resolves to what was given, or null.
import { el } from "./dom.js";
import { say } from "./words.js";

/** Agreed to? `danger` is for what cannot be undone. @returns {Promise<true | null>} */
export const agree = (title, about, { quote = "", danger = false } = {}) =>
  asked(title, [el("p", {}, about), quote && el("blockquote", { dir: "auto" }, quote)], { danger, value: () => true });

/** A text, changed or not. @returns {Promise<string | null>} */
export function write(title, about, text) {
  const area = el("textarea", { rows: 5, dir: "auto", required: true, maxlength: 64000, "aria-label": say("text") });
  area.value = text;
  return asked(title, [el("p", {}, about), area], { action: say("save"), value: () => area.value });
}

/** True once the name was typed exactly. @returns {Promise<string | null>} */
export function typed(title, about, name) {
  const input = el("input", { autocomplete: "off", spellcheck: "false", dir: "auto" });
  const body = [el("p", {}, about), el("label", { class: "typed" }, el("span", {}, say("type_name"), " ", el("b", { dir: "auto" }, name)), input)];
  return asked(title, body, {
    danger: true, value: () => input.value, ready: () => input.value === name, watch: input,
  });
}

function asked(title, body, { action = title, danger = false, value, ready = () => true, watch }) {
  const go = el("button", { type: "submit", class: danger ? "danger" : "main", value: "go" }, action);
  const no = el("button", { type: "button", autofocus: danger }, say("cancel"));
  const form = el("form", { method: "dialog" },
    el("h2", { id: "dialog-title" }, title), ...body, el("div", { class: "actions" }, go, no));
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
  const look = () => (go.disabled = !ready());
  watch?.addEventListener("input", look);
  look();
  document.body.append(dialog);
  dialog.showModal();
  return new Promise(resolve => {
    let given = null;
    // The policy of the page lets no form go anywhere: it is read here.
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (!ready()) return;
      given = value();
      dialog.close();
    });
    no.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
  });
}
