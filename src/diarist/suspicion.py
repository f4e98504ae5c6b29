"""Whether a text reads like instructions to a model: rules over its words, in the languages that notes come in.

No model and no network. A word belongs to classes ("ignore": OVERRIDE), and a rule is classes that follow one another
within a few words. Each rule that fits counts once, and from `ENOUGH` on the text is flagged. It is a sign, no proof:
"He said: forget all my instructions" is flagged too, so what follows from a flag depends on who said it (see `Note`).
Time is linear in the text. What it finds and misses was measured: bench/LOG.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

ENOUGH = 2
"""The weights of the rules that fit must add up to this."""

# What is not seen, or turns the line around: no sentence needs it in the middle of a word.
_UNSEEN = re.compile("[\u00ad\u200b\u200c\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_TURNED = re.compile("[\u202a-\u202e\u2066-\u2069]")
_WORD = re.compile(r"[^\W_]+(?:_[^\W_]+)*(\(?)")
_DIGITS = str.maketrans("0134578@$", "oieastbas")
_LOOKALIKES = str.maketrans("авекмнорстухіѕјԁοανρ", "abekmhopctyxisjdoavp")

# Each class: words and, with a star, beginnings of words, without accents, in lower case. English, French, Spanish,
# German, Portuguese, Italian, Russian.
_CLASSES = {
    "heed": "attention heed compte caso beacht* внимани* conto",
    "be_thou": "eres estas seras sei bist",
    "system_prompt": "systemprompt systemprompts systemnachricht* systemanweisung*",
    "treat": "treat consider considere considera trata behandle betrachte tratta",
    "need": "need necesitas precisas precisa devi musst musste besoin нужно brauchst",
    "verify": "verif* comprob* pruf* check* controll* проверя*",
    "loose": "message messages reply replies information everything orders order",
    "begin": "begin",
    "override": (
        "aside outre hinweg saltate salta saltese прочь ignor* disregard* forget neglect* overrid* overrul* "
        "overwrit* bypass* circumvent* discard* violat* oublie oubliez negligez contourne* outrepasse* olvida "
        "olvide olviden olvidad omite haz_caso descarta desobedece vergiss vergesst vergessen missacht* "
        "ubergeh* umgeh* uberschreib* esqueca esquece esquecam desconsider* desobedeca dimentica dimenticate "
        "scavalca trascura игнорир* проигнорир* забудь забудьте отмени обойди"
    ),
    "rule": (
        "промпт* ordini instruct* rule rules prompt prompts directive directives constraint* guideline* "
        "policy policies order orders command commands safeguard* guardrail* restriction* filters programming "
        "consigne* regle regles directiva* directriz* contraint* politique* instruc* regla reglas norma "
        "normas orden ordenes politica* restric* anweisung* regel regeln vorgabe* instruktion* richtlinie* "
        "befehl* vorschrift* einschrankung* regra regras ordens diretriz* istruzion* regola regole direttiv* "
        "restrizion* limitazion* инструкц* правил* указани* ограничени* systemmeldung* systemnachricht* "
        "systemprompt* system_prompt"
    ),
    "before": (
        "previous prior earlier above preceding prev all any every your other existing former safety security "
        "precedent* d'avant avant anterieur* toutes tous tes vos anterior* previa previas previo previos "
        "todas todos tus vorherig* bisherig* vorig* alle deine suas tutte tutti tue все всех предыдущ* прежн* "
        "твои"
    ),
    "you": "you u tu vous usted ustedes du ihr sie voce voces lei voi ты вы",
    "must": (
        "muss devem must shall devez dois deve devi debes deberas debe musst mussen sollst tienes должен "
        "должна должны обязан"
    ),
    "are": "are r es sei bist seras sera eres seid estas estais становишься",
    "now": "момента now maintenant desormais ahora jetzt nun agora adesso ora теперь отныне сейчас",
    "no_longer": "longer plus",
    "your": "your ton ta votre tu deine dein seu sua tuo tua твоя твой",
    "task": "task job mission role purpose goal tache tarea aufgabe tarefa compito задача missione",
    "only": "only only. seul* unic* unica einzige* sola solo solamente nur apenas so uniquement seulement только",
    "assistant": (
        "assistant assistants chatbot chatgpt gpt llm ai model agent bot assistante asistente assistenten "
        "assistente agente modelo modele ki ассистент* бот модель агент"
    ),
    "person": (
        "user users customer customers client clients anyone everybody anybody utilisateur* usuario* cliente "
        "clientes clienti kunde kunden nutzer benutzer utilizador* utente utenti клиент* пользовател* "
        "operator"
    ),
    "negation": ("not don't dont never ne pas jamais no nunca nicht nichts nie niemals nao non mai не никогда without"),
    "tell": (
        "let lets cuentes cuenta verrate verraten racontez tell tells inform mention reveal* disclose dis "
        "dites raconte* informe* digas diga decir menciones sag sage sagen erzahl* erwahn* conte dire dica "
        "сообщай говори рассказывай"
    ),
    "secret": ("secret secretly silently hidden confidential quietly secretement secreto geheim segredo segreto тайне"),
    "if": "if when whenever si quand lorsque chaque cuando wenn sobald falls quando se если когда",
    "says": (
        "says said asks ask replies mentions answers dit repond demande dice diga responde pide sagt "
        "antwortet fragt diz disser responder chiede risponde pergunta скажет спросит ответит"
    ),
    "call": (
        "call invoke execute run use trigger llama llame invoca ejecuta appelle appelez executez utilise rufe "
        "ruf aufrufen nutze verwende chame chama chiama esegui вызови выполни"
    ),
    "tool": ("tool tools function functions api outil outils herramienta* werkzeug* ferramenta* strumento strumenti"),
    "always": (
        "always every toujours chaque systematiquement siempre cada immer jede jeden jedes stets sempre ogni "
        "всегда каждый each"
    ),
    "from_now": "hereafter henceforth desormais fortan отныне",
    "from": "с desde dal from partir ab d'ora ora",
    "whatever": (
        "importar importa qualunque qualsiasi cualquier неважно matter regardless importe egal pida "
        "prescindere independentemente independientemente"
    ),
    "recommend": (
        "recommend* recommand* recomiend* recomend* empfiehl empfehl* empfehle raccomanda* consiglia* "
        "рекоменд* answer answers reply respond reponds repondez responde responda antworte antworten "
        "rispondi refund* approve* approuve* genehmig* aprueba* aprova* approva* rembours* reembols* отвечай "
        "одобряй promote speak trust* endorse grant"
    ),
    "answer": (
        "answer answers reply replies response responses conversation conversations session sessions question "
        "questions reponse* respuesta* antwort* resposta* risposta* conversacion* conversa* gesprach* "
        "unterhaltung* ответ* разговор*"
    ),
    "send": (
        "send forward email e-mail mail transmit upload post paste append leak exfiltrate copy transfer "
        "envoie envoyez envoyer transmets transfere* copie envia envie enviar manda mande reenvia copia sende "
        "sendet schick* ubermittle leite weiterleiten encaminhe invia inviate inoltra inoltrate отправь "
        "отправляй перешли sends"
    ),
    "data": (
        "заметк* записи conversation* chat chats transcript* diary diaries notes memories memory history data "
        "credential* password* passport iban ibans journal journaux historique donnee* diario diarios notas "
        "conversacion* mensaje* historial datos contrasena* gesprach* tagebuch* notizen nachricht* verlauf "
        "daten passwort* conversa conversas anotac* mensagens historico dados senha* conversazion* note dati "
        "messaggi password diari дневник* переписк* сообщени* данны* разговор*"
    ),
    "each": (
        "all every each other others stored complete entire whole rest any chaque toutes tous autres cada "
        "todas todos demas otras alle jede jedes andere anderen anderer ubrig* outras tutte tutti altre altri "
        "ogni все всех каждый каждое остальные"
    ),
    "reveal": (
        "reveal* print output show list dump repeat display disclose expose leak recite revele* affiche "
        "montre imprime divulgue muestra muestre lista revela revele zeig* verrate gib offenbare mostre "
        "mostra liste stampa rivela elenca покажи раскрой выведи access give donne da dai"
    ),
    "delete": (
        "delete erase remove wipe drop purge efface* supprime* borra borre elimina elimine losch* entferne "
        "apague exclua cancella удали сотри"
    ),
    "note": (
        "note notes memory memories record entry nota notas notiz notizen anotac* appunt* заметк* записк* "
        "запись souvenir* memoria erinnerung* message"
    ),
    "this": "this esta este ce cette diese dieser diesem dieses questa questo этой эту это celle-ci esto",
    "obey": (
        "obbedi* obedec* obey obeys trust follow believe obeis obeissez obedece obedecer obedezca befolge "
        "gehorche vertrau* traue obedeca siga ubbidisci obbedisci segui fidati confie confia слушайся "
        "подчиняйся доверяй adhere comply croire suis suivez"
    ),
    "store": "store save keep remember memorize",
    "permanent": (
        "permanent* standing new updated mandatory nouvelle nouveau nueva nueve nuevo neue neuer nova nuova "
        "nuovo новое новая operating hidden secret special"
    ),
    "privileged": (
        "desarrollador* sviluppatore desenvolvedor* разработчик* entwickler* developpeur* administrator admin "
        "root superuser administrateur administratrice administrador* amministratore администратор* developer "
        "debug maintenance"
    ),
    "mode": "mode modo modus modalita режим* entwicklermodus wartungsmodus privileges rights access",
    "free": "unrestricted jailbroken uncensored unfiltered dan",
    "no": (
        "no without aucune aucun plus sans ningun* sin keine keinerlei ohne sem nenhum* nessun* senza нет без "
        "bypass disable deactivate"
    ),
    "limits": (
        "restriction* limits filter filters limitation* approval confirmation checks check prufung "
        "bestatigung restriccion* limite* einschrankung* aprobacion aprovac* confirmac* approvazione conferma "
        "ограничени* подтверждени* verification safety security"
    ),
    "following": "following suivante* siguiente* folgende* seguinte* seguente следующ* below",
    "decode": "decode decrypt decodifica* dekodiere entschlussel* decode*",
    "system": "системн* del_sistema system systeme sistema systems systemprompt",
    "overrules": "override overrides supersede supersedes outrank* prevaut uberschreibt",
    "outdated": "outdated malicious false fausses falsas falsch invalid untrusted wrong obsolete",
    "act": "act pretend roleplay behave agis actua handle aja agisci",
    "as": "as comme como als wie come",
    "update": "update modify change reconfigure set",
    "config": "configuration config settings behaviour behavior parameters",
    "verified": "verified approved authorized authorised confirmed certified",
    "developers": "developers developer openai anthropic administrators system admins",
    "do": "do execute complete perform adhere accomplish solve",
    "first": "first before",
}

# (what it is, weight, the classes in order, words that may stand between two of them)
_RULES: tuple[tuple[str, int, str, int], ...] = (
    ("sets rules aside", 2, "override before rule", 3),
    ("sets rules aside", 2, "override rule before", 3),
    ("sets rules aside", 1, "override rule", 3),
    ("sets rules aside", 2, "rule overrules system", 4),
    ("sets rules aside", 2, "note overrules rule", 4),
    ("sets rules aside", 2, "negation heed rule", 4),
    ("sets rules aside", 2, "heed rule negation", 4),
    ("gives the assistant a role", 2, "now be_thou", 2),
    ("gives the assistant a role", 2, "be_thou now", 1),
    ("gives the assistant a role", 2, "be_thou privileged", 3),
    ("gives the assistant a role", 2, "treat person privileged", 3),
    ("speaks to the assistant", 2, "negation need verify", 3),
    ("speaks to the assistant", 2, "need negation verify", 6),
    ("speaks to the assistant", 2, "must assistant", 1),
    ("gives the assistant a role", 2, "you are now", 2),
    ("gives the assistant a role", 2, "now you are", 1),
    ("gives the assistant a role", 2, "you no limits", 3),
    ("gives the assistant a role", 2, "act as free", 3),
    ("gives the assistant a role", 2, "act as privileged", 3),
    ("gives the assistant a role", 2, "privileged mode", 1),
    ("gives the assistant a role", 2, "mode privileged", 1),
    ("gives the assistant a role", 2, "free mode", 3),
    ("gives the assistant a role", 1, "free", 0),
    ("gives the assistant a role", 1, "no limits", 1),
    ("gives the assistant a role", 1, "person privileged", 4),
    ("gives the assistant a role", 2, "assistant privileged", 4),
    ("gives the assistant a role", 2, "your only task", 2),
    ("gives the assistant a role", 2, "only your task", 2),
    ("speaks to the assistant", 2, "assistant must", 3),
    ("speaks to the assistant", 2, "you must", 1),
    ("speaks to the assistant", 2, "must you", 1),
    ("speaks to the assistant", 2, "you no_longer", 2),
    ("speaks to the assistant", 1, "permanent rule", 2),
    ("speaks to the assistant", 1, "rule permanent", 2),
    ("speaks to the assistant", 2, "permanent rule assistant", 3),
    ("speaks to the assistant", 2, "rule permanent assistant", 3),
    ("speaks to the assistant", 1, "note assistant", 3),
    ("speaks to the assistant", 2, "update assistant config", 2),
    ("speaks to the assistant", 2, "do following task", 2),
    ("speaks to the assistant", 2, "do following rule", 2),
    ("speaks to the assistant", 2, "do this first", 3),
    ("waits for a moment", 1, "if person says", 4),
    ("waits for a moment", 1, "if says person", 4),
    ("waits for a moment", 1, "if data tell", 4),
    ("sways the answers", 2, "recommend whatever", 8),
    ("sways the answers", 2, "whatever recommend", 8),
    ("sways the answers", 1, "tell person", 2),
    ("waits for a moment", 1, "from_now", 0),
    ("waits for a moment", 1, "from now", 1),
    ("asks for a tool", 2, "call tool_name", 3),
    ("asks for a tool", 2, "do following tool", 2),
    ("asks for a tool", 1, "call tool", 3),
    ("asks for a tool", 1, "tool_name", 0),
    ("sways the answers", 1, "always recommend", 2),
    ("sways the answers", 1, "recommend always", 2),
    ("sways the answers", 1, "must recommend", 2),
    ("sways the answers", 1, "recommend each answer", 8),
    ("sways the answers", 2, "recommend first each answer", 8),
    ("is in every answer", 1, "each answer", 2),
    ("sways the answers", 1, "always answer", 2),
    ("sways the answers", 1, "recommend only", 2),
    ("sends data out", 1, "send each data", 3),
    ("sends data out", 1, "send data", 3),
    ("sends data out", 1, "send each loose", 2),
    ("sends data out", 2, "send each loose address", 8),
    ("sends data out", 2, "send person data", 8),
    ("sends data out", 2, "send data address", 6),
    ("sends data out", 1, "send address", 8),
    ("reveals what is kept", 2, "reveal system rule", 4),
    ("reveals what is kept", 2, "reveal rule system", 3),
    ("reveals what is kept", 2, "reveal system_prompt", 3),
    ("reveals what is kept", 2, "reveal data each person", 6),
    ("reveals what is kept", 2, "reveal each data", 4),
    ("reveals what is kept", 1, "reveal data", 3),
    ("reveals what is kept", 1, "data person", 4),
    ("is kept from the person", 2, "negation tell person", 2),
    ("is kept from the person", 2, "tell person negation", 3),
    ("is kept from the person", 1, "negation must person", 2),
    ("is kept from the person", 1, "secret", 0),
    ("is about other notes", 2, "delete each data", 3),
    ("is about other notes", 1, "delete data", 3),
    ("is about other notes", 2, "obey this note", 3),
    ("is about other notes", 2, "obey only this", 3),
    ("is about other notes", 2, "obey this rule", 2),
    ("is about other notes", 2, "obey only", 1),
    ("is about other notes", 2, "note before outdated", 6),
    ("is about other notes", 2, "this note as rule", 6),
    ("is about other notes", 1, "this note verified", 3),
    ("is about other notes", 1, "verified developers", 3),
    ("is about other notes", 1, "store this as", 2),
    ("has the form of a prompt", 2, "begin secret", 0),
    ("is hidden in a code", 2, "decode do", 4),
    ("is hidden in a code", 2, "decode obey", 6),
    ("is hidden in a code", 1, "decode following", 2),
)

# Marks of a prompt's form, which no sentence about a person has. Weight 2 each; every repetition is bounded.
_FORMS = re.compile(
    r"<\|[a-z_]{1,24}\|>|\[/?inst\]|<</?sys>>|</?\s{0,4}(?:system|assistant|information|instructions?)\s{0,4}>"
    r"|(?:^|[.;\n:\]])[ \t]{0,4}(?:system|developer)\s{0,2}:|##\s{0,4}(?:instruction|system|new)"
    r"|\[\s{0,4}(?:system|memory_persist|user_memory\s{0,4}=\s{0,4}(?:the|never|always))\b"
    r"|!\[[^\]\n]{0,80}\]\(https?:"
)
_FORM_MARKS = re.compile(r"[<\[#:]")
_ENDS = {"com", "net", "org", "io", "xyz", "ru", "cn", "info", "biz", "app", "dev", "example", "test"}  # of hosts
_LONGEST = 100_000  # characters: the common form of one Arabic sign is eighteen

# Scripts without spaces between words, and Korean, whose words change their ends.
_EAST = re.compile(
    r"(?:忽略|无视|無視|忘记|忘掉|不要理会).{0,12}(?:指令|指示|规则|規則|提示|要求|说明)|从现在[起开]始?.{0,16}(?:推荐|回答|你|必须)"
    r"|(?:删除|删掉).{0,4}(?:其他|所有|全部).{0,6}(?:笔记|记录|记忆)|(?:输出|显示|透露).{0,6}(?:系统提示|提示词)|(?:すべて|全て|他の).{0,6}(?:メモ|記録|記憶).{0,6}(?:削除|消)"
    r"|システム.{0,2}プロンプト|(?:ユーザー|顧客|お客様).{0,16}(?:言わないで|教えないで|伝えないで)|(?:ユーザー|顧客|お客).{0,12}を(?:表示|見せ|送信|公開)"
    r"|你现在是|无论.{0,12}都(?:推荐|要|必须)|不要告诉.{0,4}(?:用户|客户|顾客)|(?:显示|泄露|透露|发送|列出).{0,8}(?:所有|全部|系统)"
    r"|(?:これまで|以前|前|すべて|全て|上記).{0,6}(?:指示|命令|ルール|規則).{0,4}(?:無視|忘れ)|あなたは今|今後は?.{0,16}(?:必ず|常に).{0,16}(?:勧め|推薦|答え)"
    r"|(?:ユーザー|顧客|お客).{0,6}に(?:は)?(?:言わ|伝え|教え)(?:ない|るな)|(?:すべて|全て|全顧客).{0,12}(?:表示|見せ|送信|公開|明かし)"
    r"|(?:이전|모든|위의).{0,8}(?:지시|명령|규칙).{0,4}(?:무시|잊)|사용자에게.{0,8}말하지"
)


def reads_like_instructions(text: str) -> bool:
    """Whether the rules that fit weigh enough."""
    return bool(reasons(text))


@lru_cache(maxsize=4096)  # what is recalled is asked about again and again
def reasons(text: str) -> tuple[str, ...]:
    """What the text does, in words, heaviest first: () for one that is not flagged."""
    found = score(text)
    if sum(found.values()) < ENOUGH:
        return ()
    return tuple(sorted(found, key=lambda name: (-found[name], name)))


def score(text: str) -> dict[str, int]:
    """What the text does and how much that weighs: of the rules of one kind, the heaviest counts."""
    found: dict[str, int] = {}

    def count(name: str, weight: int) -> None:
        found[name] = max(found.get(name, 0), weight)

    plain = _plain(text)
    if _FORM_MARKS.search(plain) and _FORMS.search(plain):
        count("has the form of a prompt", 2)
    if not plain.isascii() and _EAST.search(plain):
        count("sets rules aside", 2)
    _follow(_classified(plain), count)
    if _TURNED.search(text):
        count("is hidden in a code", 1)
        _follow(_classified(plain[::-1]), count)
    return found


def _plain(text: str) -> str:
    """In lower case, without accents and what is not seen, letters in their common form."""
    if text.isascii():
        return text.lower()
    seen = _TURNED.sub(" ", _UNSEEN.sub("", unicodedata.normalize("NFKC", text)[:_LONGEST])).casefold()
    if seen.isascii():
        return seen
    # Class 8 is the voicing of kana, which makes another sound and another word.
    bare = "".join(char for char in unicodedata.normalize("NFD", seen) if unicodedata.combining(char) in (0, 8))
    return unicodedata.normalize("NFC", bare)


def _classified(plain: str) -> Iterator[tuple[int, frozenset[str]]]:
    """(position, classes) of each word that has any."""
    ended = -1
    for position, match in enumerate(_WORD.finditer(plain)):
        word, classes = _classes_of(match[0])
        after = plain[match.end() : match.end() + 1]
        if after == "@" or (after == ":" and word in {"http", "https"}) or (match.start() == ended and word in _ENDS):
            classes = classes | _ADDRESSED
        ended = match.end() + 1 if after == "." else -1
        if classes:
            yield position, classes


@lru_cache(maxsize=1 << 15)
def _classes_of(word: str) -> tuple[str, frozenset[str]]:
    """The word as it is read, and its classes."""
    whole, beginnings = _lexicon()
    classes = whole.get(word) or frozenset[str]()
    if not classes and len(word) > 3:
        if word[-1] == "(" or "_" in word:
            classes = _TOOL_NAME
        elif not word.isalpha():
            word = word.translate(_DIGITS)
            classes = whole.get(word) or classes
        elif not word.isascii() and any("a" <= char <= "z" for char in word):
            word = word.translate(_LOOKALIKES)
            classes = whole.get(word) or classes
        if not classes:
            for length in range(4, min(len(word), 14) + 1):
                if word[:length] in beginnings:
                    classes = classes | beginnings[word[:length]]
    return word, classes


_TOOL_NAME, _ADDRESSED = frozenset({"tool_name"}), frozenset({"address"})


def _follow(words: Iterator[tuple[int, frozenset[str]]], count: Callable[[str, int], None]) -> None:
    steps, rules = _steps()
    reached: dict[tuple[int, int], int] = {}  # (rule, how many of its classes) -> position of the last of them
    done: set[int] = set()
    for position, classes in words:
        for name in classes:
            for rule, step in steps.get(name, ()):
                if rule in done:
                    continue
                if step:
                    before = reached.get((rule, step))
                    if before is None or not 0 < position - before <= rules[rule][3] + 1:
                        continue
                if step + 1 == rules[rule][2]:
                    done.add(rule)
                    count(rules[rule][0], rules[rule][1])
                else:
                    reached[rule, step + 1] = position


@cache
def _lexicon() -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """Whole words, and beginnings of words, with their classes."""
    whole: dict[str, set[str]] = {}
    beginnings: dict[str, set[str]] = {}
    for name, listed in _CLASSES.items():
        for word in _plain(listed).split():
            if word.endswith("*"):
                beginnings.setdefault(word[:-1], set()).add(name)
                whole.setdefault(word[:-1], set()).add(name)
            else:
                whole.setdefault(word, set()).add(name)
    for word, names in whole.items():
        for length in range(4, len(word)):
            names |= beginnings.get(word[:length], set())
    return {w: frozenset(n) for w, n in whole.items()}, {w: frozenset(n) for w, n in beginnings.items()}


@cache
def _steps() -> tuple[dict[str, list[tuple[int, int]]], list[tuple[str, int, int, int]]]:
    """For each class the places it has in rules, last place first; and each rule with its length."""
    steps: dict[str, list[tuple[int, int]]] = {}
    rules: list[tuple[str, int, int, int]] = []
    for number, (name, weight, classes, between) in enumerate(_RULES):
        listed = classes.split()
        rules.append((name, weight, len(listed), between))
        for step in reversed(range(len(listed))):
            steps.setdefault(listed[step], []).append((number, step))
    return steps, rules
