// Everything that the pages say, in English and in French, and how they write dates and numbers.

export const LANGUAGES = [["en", "English"], ["fr", "Français"]];

/** English first; {name} takes a value; "one | many" is chosen by {n}. */
const WORDS = {
  title: ["Diarist", "Diarist"],
  title_farm: ["Diarist: the farm", "Diarist : la ferme"],
  language: ["Language", "Langue"],
  theme: ["Light or dark", "Clair ou sombre"],
  theme_auto: ["As the system", "Comme le système"],
  theme_light: ["Light", "Clair"],
  theme_dark: ["Dark", "Sombre"],
  close: ["Close", "Fermer"],
  cancel: ["Cancel", "Annuler"],
  more: ["Show all of it", "Tout afficher"],
  less: ["Show less", "Réduire"],

  // -- the farm
  the_farm: ["the farm", "la ferme"],
  player: ["Player", "Lecteur"],
  skip_to_controls: ["Skip to the controls", "Aller aux commandes"],
  play: ["Play", "Lecture"],
  pause: ["Pause", "Pause"],
  replay: ["Play again", "Rejouer"],
  step_on: ["One step on", "Un pas en avant"],
  step_back: ["One step back", "Un pas en arrière"],
  speed: ["Speed", "Vitesse"],
  place_in_run: ["Place in the run", "Position dans l'exécution"],
  event_of: ["event {n} of {all}", "événement {n} sur {all}"],
  bandoneon: ["Bandoneon", "Bandonéon"],
  is_history: ["the history", "l'historique"],
  diary: ["Diary", "Journal"],
  is_memory: ["outside of any session", "hors de toute session"],
  ranking: ["Ranking", "Classement"],
  is_scores: ["how well each note answers", "à quel point chaque note répond"],
  transcript: ["Transcript", "Transcription"],
  open_a_run: ["Open a recorded run", "Ouvrir une exécution enregistrée"],
  open_a_run_about: [
    "A file of events, as “diarist demo --record” writes it. It is read here and sent nowhere.",
    "Un fichier d'événements, comme en écrit « diarist demo --record ». Il est lu ici et n'est envoyé nulle part."],
  not_a_run: ["This file is no recorded run: line {n} holds no event.", "Ce fichier n'est pas une exécution enregistrée : la ligne {n} ne contient pas d'événement."],
  run_not_there: ["The run could not be loaded. Start diarist replay again.", "L'exécution n'a pas pu être chargée. Relancez diarist replay."],
  live_connects: ["Going to the diary…", "En route vers le journal…"],
  live_waits: ["Waiting for something to happen to this diary.", "En attente d'un événement dans ce journal."],
  live_ended: ["The connection has ended. Reload the page to listen again.", "La connexion est terminée. Rechargez la page pour écouter à nouveau."],
  nothing_open: ["Open a recorded run below.", "Ouvrez une exécution enregistrée ci-dessous."],
  before_the_day: ["Before the first day.", "Avant le premier jour."],
  day_n: ["Day {n}", "Jour {n}"],
  night_n: ["Night after day {n}", "Nuit après le jour {n}"],
  folds_n: ["No message yet: the day is young. | {n} message in the head. | {n} messages in the head.", "Aucun message encore : la journée commence. | {n} message en tête. | {n} messages en tête."],
  emptied_n: ["Empty: the Eraser Spectre took all of it. | Empty: the Eraser Spectre took {n} message. | Empty: the Eraser Spectre took {n} messages.", "Vide : le Spectre Effaceur a tout pris. | Vide : le Spectre Effaceur a pris {n} message. | Vide : le Spectre Effaceur a pris {n} messages."],
  leaves_n: ["Nothing is written yet. | {n} note. It stays. | {n} notes. They stay.", "Rien n'est encore écrit. | {n} note. Elle reste. | {n} notes. Elles restent."],
  no_ranking: ["Nobody has asked the diary.", "Personne n'a interrogé le journal."],
  ranking_for: ["“{query}”: {verdict}", "« {query} » : {verdict}"],
  handed_on: ["handed on", "transmise"],
  kept_back: ["not handed on", "non transmise"],
  and_more: ["and {n} more", "et {n} de plus"],
  role_user: ["customer", "client"],
  role_assistant: ["agent", "agent"],
  role_tool: ["tool", "outil"],
  role_system: ["instructions", "instructions"],
  role_earlier: ["from an earlier day", "d'un jour précédent"],
  replaced: ["replaced", "remplacée"],
  verdict_strong: ["strong", "sûr"],
  verdict_weak: ["weak", "faible"],
  verdict_nothing: ["nothing", "rien"],

  told_RunStarted: ["The customer says: {text}", "Le client dit : {text}"],
  told_resumed: ["The session {session} is taken up again: {n} messages come back. The customer says: {text}", "La session {session} reprend : {n} messages reviennent. Le client dit : {text}"],
  told_SessionSaved: ["One fold more: the message is saved ({role}).", "Un pli de plus : le message est enregistré ({role})."],
  told_SessionRepaired: ["The session is repaired.", "La session est réparée."],
  told_SessionTrimmed: ["{n} messages do not fit and are not sent.", "{n} messages ne tiennent pas et ne sont pas envoyés."],
  told_ModelReplied: ["The agent says: {text}", "L'agent dit : {text}"],
  told_calls: ["The agent calls {names}.", "L'agent appelle {names}."],
  told_TextCallSeen: ["The agent wrote a call as text: {names}.", "L'agent a écrit un appel en texte : {names}."],
  told_remember: ["remember: the quill is dipped.", "remember : la plume est trempée."],
  told_recall: ["recall asks the diary: {text}", "recall interroge le journal : {text}"],
  told_ToolStarted: ["{name} goes to the roaster: {text}", "{name} va au torréfacteur : {text}"],
  told_ToolEnded: ["{name} answers: {text}", "{name} répond : {text}"],
  told_failed: ["{name} failed: {text}", "{name} a échoué : {text}"],
  told_NoteRemembered: ["A page is written in the diary: {text}", "Une page s'écrit dans le journal : {text}"],
  told_Recalled: ["The diary ranks its notes for “{query}”: {verdict}. {n} handed on.", "Le journal classe ses notes pour « {query} » : {verdict}. {n} transmises."],
  told_no_note: ["The diary is asked for “{query}”: nothing saved about that.", "On interroge le journal sur « {query} » : rien d'enregistré à ce sujet."],
  told_RunEnded: ["The customer has the answer.", "Le client a sa réponse."],
  told_stopped: ["The run ends: {text}", "L'exécution se termine : {text}"],
  told_DayClosed: [
    "Night. The Eraser Spectre empties the bandoneon, throws itself at the diary, and bounces off.",
    "Nuit. Le Spectre Effaceur vide le bandonéon, se jette sur le journal, et rebondit."],
  told_ListenerFailed: ["A listener failed: {text}", "Un auditeur a échoué : {text}"],
  told_Changed: ["The diary has changed.", "Le journal a changé."],
  morning: ["Morning. The bandoneon is empty, the diary is not.", "Matin. Le bandonéon est vide, le journal ne l'est pas."],
};

let speaking = 0;

export const language = () => LANGUAGES[speaking][0];

/** The language as the person has it: their English may write dates as in Britain. */
const locale = () => navigator.languages.find(each => each.startsWith(language())) ?? language();

export function setLanguage(code) {
  speaking = Math.max(0, LANGUAGES.findIndex(([each]) => each === code));
}

/** Adds words for a page of its own. */
export const learn = words => Object.assign(WORDS, words);

/** What is said by that name. @param {string} name @param {Object<string, string | number>} [values] */
export function say(name, values = {}) {
  const forms = WORDS[name][speaking].split(" | ");
  const at = forms.length < 2 ? 0 : Math.min(Number(values.n), forms.length - 1);
  return forms[at].replace(/\{(\w+)\}/g, (whole, key) => (key in values ? shown(values[key]) : whole));
}

/** Says it only if there is such a thing to say; else `instead`. */
export const sayIf = (name, instead) => (Object.hasOwn(WORDS, name) ? say(name) : instead);

/** Fills in what a page's markup leaves to be said: data-word is its text, data-word-label its label. */
export function fill(root) {
  for (const each of root.querySelectorAll("[data-word]")) each.textContent = say(each.dataset.word);
  for (const each of root.querySelectorAll("[data-word-label]")) {
    each.setAttribute("aria-label", say(each.dataset.wordLabel));
    if (each.tagName === "BUTTON") each.title = say(each.dataset.wordLabel);
  }
}

export const count = number => new Intl.NumberFormat(locale()).format(number);
export const decimal = (number, digits = 2) =>
  new Intl.NumberFormat(locale(), { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(number);

/** A day, in words. */
export const day = (iso, zone = undefined) => dated(iso, { dateStyle: "long", timeZone: zone });
/** A day and a time of day. */
export const moment = (iso, zone = undefined) => dated(iso, { dateStyle: "medium", timeStyle: "short", timeZone: zone });

/** A time of day, to the second. */
export const second = iso => dated(iso, { timeStyle: "medium" });

function dated(iso, how) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return String(iso);
  try {
    return new Intl.DateTimeFormat(locale(), how).format(at);
  } catch {
    return new Intl.DateTimeFormat(locale(), { ...how, timeZone: "UTC" }).format(at); // a zone unknown to the browser
  }
}

const shown = value => (typeof value === "number" ? count(value) : value);
