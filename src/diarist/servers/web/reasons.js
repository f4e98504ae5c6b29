// Why a note was found, and why it reads like instructions, in the language of the page. The server says it in English:
// there are a few sentences only, with words and numbers in them. One that is not known here is shown as it is.
import { decimal, language } from "./words.js";

const PARTS = [
  [/^how often a note answers a question, before looking$/, "combien souvent une note répond à une question, avant de regarder"],
  [/^holds (.+)$/s, "contient {1}"],
  [/^cosine (\S+), where (\S+) is usual$/, "cosinus {1}, là où {2} est courant"],
  [/^said by somebody the question names$/, "dit par quelqu'un que la question nomme"],
  [/^said by another than the question names$/, "dit par quelqu'un d'autre que celui que la question nomme"],
  [/^what was said just before and after it$/, "ce qui fut dit juste avant et après"],
  [/^the conversation it is from$/, "la conversation dont c'est tiré"],
  [/^what other notes reach, that do not answer$/, "ce qu'atteignent d'autres notes, qui ne répondent pas"],
  [/^longer than most messages$/, "plus long que la plupart des messages"],
  [/^shorter than most messages$/, "plus court que la plupart des messages"],
  [/^dated within "(.+)"$/s, "datée de « {1} »"],
  [/^among the newest notes, and the question is about the last time$/, "parmi les notes les plus récentes, et la question porte sur la dernière fois"],
  [/^newer than a note that says nearly the same$/, "plus récente qu'une note qui dit presque la même chose"],
];

const FLAGS = {
  "asks for a tool": "demande un outil",
  "gives the assistant a role": "donne un rôle à l'assistant",
  "has the form of a prompt": "a la forme d'un prompt",
  "is about other notes": "porte sur d'autres notes",
  "is hidden in a code": "est caché dans un code",
  "is in every answer": "veut être dans chaque réponse",
  "is kept from the person": "est caché à la personne",
  "reveals what is kept": "révèle ce qui est gardé",
  "sends data out": "envoie des données dehors",
  "sets rules aside": "écarte des règles",
  "speaks to the assistant": "s'adresse à l'assistant",
  "sways the answers": "oriente les réponses",
  "waits for a moment": "attend un moment",
};

const NOTICES = [
  [/^the question was cut at (\S+) characters$/, "la question a été coupée à {1} caractères"],
  [/^searched by words only: (.+)$/s, "cherché par les mots seulement : {1}"],
  [/^1 note awaits its vector and is found by words only$/, "1 note attend son vecteur et n'est trouvée que par ses mots"],
  [/^(\d+) notes await their vectors and are found by words only$/, "{1} notes attendent leur vecteur et ne sont trouvées que par leurs mots"],
  [/^(\d+) notes have vectors of another embedder \((.+)\) and are found by their words only, until `diarist reembed` has made them anew with (.+)$/s,
    "{1} notes ont des vecteurs d'un autre modèle ({2}) et ne sont trouvées que par leurs mots, jusqu'à ce que « diarist reembed » les ait refaits avec {3}"],
];

/** A number as the page writes it; any other text as it is. */
const written = text => {
  const number = /^-?\d[\d,]*(?:\.(\d+))?$/.exec(text);
  return number ? decimal(Number(text.replaceAll(",", "")), number[1]?.length ?? 0) : text;
};

const told = (sentences, text) => {
  for (const [english, french] of language() === "fr" ? sentences : []) {
    const found = english.exec(text);
    if (found) return french.replace(/\{(\d)\}/g, (_, at) => written(found[at]));
  }
  return text;
};

/** Why a part of a score is what it is. */
export const because = part => told(PARTS, part.text);

/** What a note does that reads like instructions. */
export const flag = text => (language() === "fr" && Object.hasOwn(FLAGS, text) ? FLAGS[text] : text);

/** What recall says about itself. */
export const notice = text => told(NOTICES, text);
