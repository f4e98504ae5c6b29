// What a person chose for these pages: the language, and light or dark. Kept by the browser, if it lets us.
import { el } from "./dom.js";
import { LANGUAGES, fill, language, say, setLanguage } from "./words.js";

const THEMES = ["auto", "light", "dark"];

/** The two choices, for the top of a page; `changed` is called when the language is another one. */
export function choices(changed) {
  const languages = el("select", { id: "language", on: { change: () => {
    store("diarist-language", languages.value);
    speak(languages.value);
    changed();
  } } }, ...LANGUAGES.map(([code, name]) => el("option", { value: code, lang: code }, name)));
  const themes = el("select", { id: "theme", on: { change: () => {
    store("diarist-theme", themes.value);
    light(themes.value);
  } } }, ...THEMES.map(theme => el("option", { value: theme, "data-word": `theme_${theme}` })));
  speak(stored("diarist-language") ?? (navigator.language.startsWith("fr") ? "fr" : "en"));
  light(stored("diarist-theme") ?? "auto");
  languages.value = language();
  themes.value = document.documentElement.dataset.theme;
  const both = el("div", { class: "choices" },
    el("label", {}, el("span", { class: "hidden", "data-word": "language" }), languages),
    el("label", {}, el("span", { class: "hidden", "data-word": "theme" }), themes));
  fill(both);
  return both;
}

function speak(code) {
  setLanguage(code);
  document.documentElement.lang = language();
  fill(document);
  document.title = say(document.body.dataset.title ?? "title");
}

function light(theme) {
  document.documentElement.dataset.theme = THEMES.includes(theme) ? theme : "auto";
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a page opened from a file may have no storage
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Then it is chosen for this visit only.
  }
}
