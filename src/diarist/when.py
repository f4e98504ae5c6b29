"""What a question says about time: that it is about the last time or the usual ("as always", «comme d'habitude»,
前回), or which days it names ("last Tuesday", "in March", «mardi dernier», 昨日).

Nothing here decides what a note is worth: `recall.py` does. Words are compared without case and accents.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from . import analysis

# Ways to say "as before", without accents, in the languages of the bundled models. Each stands for itself: "last name"
# and "the usual suspects" are not about time, "last time" is.
_AS_BEFORE = {
    "en": "last time|(?:as|like) (?:usual|always|ever|before|last)|(?:the|my|his|her|their) (?:usual|regular)"
    "|same (?:again|as|one|ones|thing|things|order|stuff)|the same(?= ?(?:[.!?,]|$|please))"
    "|(?:last|latest|previous|most recent) (?:order|purchase|one|request|visit|delivery|conversation|session)"
    "|once more|(?:most )?recently|lately",
    "fr": "la derniere fois|(?:comme )?d'hab(?:itude)?|comme (?:toujours|avant|la derniere)|la meme chose|les memes"
    "|pareil|(?:derniere|precedente) (?:commande|visite|livraison)|dernierement|recemment",
    "es": "la ultima vez|(?:como|lo de) siempre|lo mismo|el mismo (?:pedido|de siempre)|igual que"
    "|ultim[oa]s? (?:pedido|compra|visita)|ultimamente|recientemente|lo habitual|como antes",
    "pt": "(?:da|a|na) ultima vez|como sempre|o de sempre|o mesmo|a mesma|do costume|ultim[oa] (?:pedido|compra|visita)"
    "|ultimamente|recentemente",
    "de": "(?:das|beim|vom) (?:letzten?|vorigen?) mal|letzte[sn]? mal|wie (?:immer|ublich|gehabt|sonst|zuvor)"
    "|das ubliche"
    "|(?:das|den|die) gleichen?|dasselbe|dieselbe[n]?|letzte bestellung|neulich|kurzlich|zuletzt",
    "it": "l'ultima volta|scorsa volta|come (?:sempre|al solito|prima)|(?:il|la|le|i|del) solit[oaei]|lo stesso"
    "|la stessa"
    "|ultim[oa] (?:ordine|acquisto|visita)|ultimamente|recentemente",
    "nl": "(?:vorige|laatste) keer|zoals (?:altijd|gewoonlijk|gebruikelijk)|hetzelfde|dezelfde|laatste bestelling"
    "|onlangs",
    "ru": "(?:в )?прошлый раз|последний раз|как (?:обычно|всегда|раньше)|то же самое|последний заказ|недавно",
    "pl": "ostatnim razem|jak (?:zwykle|zawsze|ostatnio)|to samo|ostatnie zamowienie|ostatnio",
    "tr": "gecen (?:sefer|defa)|her zamanki|aynisi|son siparis|son zamanlarda",
    "ar": "المره الماضيه|المرة الماضية|اخر مره|اخر مرة|كالعاده|كالعادة|كالمعتاد|نفس الطلب|نفس الشيء",
    "ja": "前回|いつもの|いつも通り|いつもどおり|この前|こないだ|同じ(?:もの|の)|前と同じ|最近|直近",
    "zh": "上次|上一次|上回|老样子|老樣子|照旧|照舊|跟以前一样|和以前一样|同样的|一样的|最近",
    "ko": "지난번|저번|늘 하던|평소|항상 먹던|똑같이|같은 걸로|같은 것|최근",
}
# What a note says that ends an older one: "no longer", "moved", «désormais», もう. Compared with an older note that is
# about the same, not by itself.
_CHANGED = (
    "no longer|not any ?more|any ?more|now|nowadays|from now on|moved|switched|stopped|quit|gave up|dislikes?|corrected"
    "|ne .{1,30} plus|plus (?:de|du|jamais)|desormais|maintenant|dorenavant|demenage\\w*|arrete\\w*"
    "|ya no|ahora|dej[oa] de|cambi[oa] (?:de|a)|se mudo|mudad[oa]|nicht mehr|jetzt|nunmehr|umgezogen"
    "|non .{1,30} piu|adesso|trasferit[oa]|nao .{1,30} mais|ja nao|agora|mudou|niet meer|voortaan|verhuisd"
    "|больше не|теперь|отныне|переехал\\w*|бросил\\w*"
    "|もう|今は|これからは|引っ越|やめ|変更|不再|现在|現在|改为|改成|搬到|搬家|더 이상|이제|이사"
)
_SHORT = 200  # characters
_MONTHS = (
    "january|janvier|enero|janeiro|januar|gennaio|januari|января|январе|январь|jan",
    "february|fevrier|febrero|fevereiro|februar|febbraio|februari|февраля|феврале|февраль|feb",
    "march|mars|marzo|marco|marz|maart|марта|марте|март",
    "april|avril|abril|aprile|апреля|апреле|апрель|apr",
    "may|mai|mayo|maio|maggio|mei|мая|мае|май",
    "june|juin|junio|junho|juni|giugno|июня|июне|июнь",
    "july|juillet|julio|julho|juli|luglio|июля|июле|июль",
    "august|aout|agosto|augustus|августа|августе|август|aug",
    "september|septembre|septiembre|setembro|settembre|сентября|сентябре|сентябрь|sept",
    "october|octobre|octubre|outubro|oktober|ottobre|октября|октябре|октябрь|oct",
    "november|novembre|noviembre|novembro|ноября|ноябре|ноябрь|nov",
    "december|decembre|diciembre|dezembro|dezember|dicembre|декабря|декабре|декабрь|dec",
)
_WEEKDAYS = (
    "monday|lundi|lunes|segunda-feira|montag|lunedi|maandag|понедельник|月曜日?|星期一|周一",
    "tuesday|mardi|martes|terca-feira|dienstag|martedi|dinsdag|вторник|火曜日?|星期二|周二",
    "wednesday|mercredi|miercoles|quarta-feira|mittwoch|mercoledi|woensdag|сред[ау]|水曜日?|星期三|周三",
    "thursday|jeudi|jueves|quinta-feira|donnerstag|giovedi|donderdag|четверг|木曜日?|星期四|周四",
    "friday|vendredi|viernes|sexta-feira|freitag|venerdi|vrijdag|пятниц[ау]|金曜日?|星期五|周五",
    "saturday|samedi|sabado|samstag|sonnabend|sabato|zaterdag|суббот[ау]|土曜日?|星期六|周六",
    "sunday|dimanche|domingo|sonntag|domenica|zondag|воскресенье|日曜日?|星期[日天]|周[日天]",
)
_LAST = (
    "last|past|this past|dernier|derniere|passe|passee|pasad[oa]|ultim[oa]|passad[oa]|letzten?|letztes|vorigen?"
    "|vergangenen?|scors[oa]|vorige|afgelopen|прошл(?:ый|ую|ой|ое|ом)|先|上个?|前の"
)
_DAYS_AGO = {
    0: "today|aujourd'hui|hoy|hoje|heute|oggi|vandaag|сегодня|今日|今天|오늘",
    1: "yesterday|hier(?! (?:ist|sind|in|im|und))|ayer|ontem|gestern|ieri|gisteren|вчера|昨日|昨天|어제",
    2: "(?:the )?day before yesterday|avant-hier|anteayer|antes de ayer|anteontem|vorgestern|l'altro ieri|eergisteren"
    "|позавчера|一昨日|おととい|前天|그저께",
}
_THIS = {
    "week": "this week|cette semaine|esta semana|diese woche|questa settimana|deze week"
    "|на этой неделе|今週|这周|本周|이번 주",
    "month": "this month|ce mois(?:-ci)?|este mes|diesen monat|questo mese|deze maand"
    "|в этом месяце|今月|这个月|本月|이번 달",
    "year": "this year|cette annee|este ano|dieses jahr|quest'anno|dit jaar|в этом году|今年|올해",
}
_PAST = {
    "week": "(?:last|past) week|la semaine (?:derniere|passee)|la semana pasada|semana passada|letzte woche"
    "|vorige woche"
    "|settimana scorsa|afgelopen week|на прошлой неделе|先週|上周|上星期|지난주",
    "month": "(?:last|past) month|le mois (?:dernier|passe)|el mes pasado|mes passado|letzten monat|mese scorso"
    "|vorige maand|в прошлом месяце|先月|上个月|上個月|지난달",
    "year": "(?:last|past) year|l'an(?:nee)? (?:dernier|derniere|passee?)|el ano pasado|ano passado|letztes jahr"
    "|anno scorso|vorig jaar|в прошлом году|去年|작년",
}
_AGO = {
    1: "days?|jours?|dias?|tage?n?|giorni|giorno|dagen|дн(?:я|ей)|日|天|일",
    7: "weeks?|semaines?|semanas?|wochen?|settiman[ae]|weken|недел[июь]|週間|周|주",
    30: "months?|mois|mes(?:es)?|monate?n?|mesi|mese|maanden|месяц[ае]?в?|か月|ヶ月|个月|달",
    365: "years?|ans?|anos?|jahre?n?|anni|anno|jaar|года?|лет|年",
}
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10,
    "un": 1, "une": 1, "deux": 2, "trois": 3, "quatre": 4, "una": 1, "dos": 2, "tres": 3, "ein": 1, "einer": 1,
    "einem": 1, "zwei": 2, "drei": 3, "due": 2, "tre": 3, "um": 1, "uma": 1, "dois": 2, "duas": 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Days:
    """The days from `first` up to, not including, `end`, in the owner's time zone, as the question calls them."""

    first: datetime
    end: datetime
    said: str


def is_about_last_time(question: str) -> bool:
    """Whether it asks for what was or is usual, without naming it: nothing that a meaning could be found by."""
    return _as_before().search(analysis.plain(question)) is not None


def without_last_time(question: str) -> str:
    """The question without the words that say so: what is left is about something, or nothing."""
    return _as_before().sub(" ", analysis.plain(question))


def days_named(question: str, now: datetime, zone: tzinfo) -> Days | None:
    """The days that the question names, the first such if it names several; None if none. Time is linear.

    A month or weekday without a year is the last one before `now`, or the present one.
    """
    text = analysis.plain(question[:2_000])  # who pastes pages names no day in them
    today = now.astimezone(zone).date()
    for pattern, meaning in _namings():
        found = pattern.search(text)
        if found is not None:
            try:
                first, end = meaning(found, today)
                return Days(_midnight(first, zone), _midnight(end, zone), found[0].strip())
            except (ValueError, OverflowError):  # 31 February; the year 9999
                continue
    return None


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)


@lru_cache(maxsize=4096)  # the best hits of one question are among those of the next
def says_it_changed(text: str) -> bool:
    """Whether a short note says that something is not as it was. Long texts say so of many things."""
    return len(text) <= _SHORT and _changed().search(analysis.plain(text)) is not None


@lru_cache
def _changed() -> re.Pattern[str]:
    return re.compile(_apart(_CHANGED))


@lru_cache
def _as_before() -> re.Pattern[str]:
    return re.compile(_apart("|".join(_AS_BEFORE.values())))


def _month(year: int, number: int) -> tuple[date, date]:
    return date(year, number, 1), date(year + number // 12, number % 12 + 1, 1)


def _day(year: int, month: int, day: int) -> tuple[date, date]:
    first = date(year, month, day)
    return first, first + timedelta(days=1)


def _number(pattern: str, among: tuple[str, ...]) -> int:
    """Which of the names this is, from 1."""
    return next(number for number, names in enumerate(among, 1) if re.fullmatch(names, pattern))


def _in_month(found: re.Match[str], today: date) -> tuple[date, date]:
    """With a day, that day; without a year, the last such month that has begun."""
    held = {name: value for name, value in found.groupdict().items() if value}
    number = int(held["number"]) if "number" in held else _number(held["month"], _MONTHS)
    day = int(held.get("day", 1))
    year = int(held["year"]) if "year" in held else today.year - (date(today.year, number, day) > today)
    return _day(year, number, day) if "day" in held else _month(year, number)


def _on_weekday(found: re.Match[str], today: date) -> tuple[date, date]:
    name = next(value for value in found.groups() if value)
    back = (today.weekday() - _number(name, _WEEKDAYS) + 1) % 7 or 7
    return today - timedelta(days=back), today - timedelta(days=back - 1)


def _ago(found: re.Match[str], today: date) -> tuple[date, date]:
    """So long ago, as roughly as people mean it: a week is give or take three days, a month two weeks."""
    count, unit = next((n, u) for n, u in zip(found.groups()[::2], found.groups()[1::2], strict=True) if n)
    days = next(days for days, names in _AGO.items() if re.fullmatch(names, unit))
    middle = today - timedelta(days=days * (_NUMBERS.get(count) or int(count)))
    give = 0 if days == 1 else days // 2
    return middle - timedelta(days=give), middle + timedelta(days=give + 1)


def _period(unit: str, back: int, today: date) -> tuple[date, date]:
    if unit == "week":
        first = today - timedelta(days=today.weekday() + 7 * back)
        return first, first + timedelta(days=7)
    if unit == "month":
        months = today.year * 12 + today.month - 1 - back
        return _month(months // 12, months % 12 + 1)
    return date(today.year - back, 1, 1), date(today.year - back + 1, 1, 1)


def _in_year(found: re.Match[str], _: date) -> tuple[date, date]:
    year = int(found[1] or found[2])
    return date(year, 1, 1), date(year + 1, 1, 1)


@lru_cache
def _namings() -> list[tuple[re.Pattern[str], Callable[[re.Match[str], date], tuple[date, date]]]]:
    """What names days, the most precise first, with what it means."""
    month = f"(?P<month>{'|'.join(_MONTHS)})"
    year = "(?:,? (?:de |del |of )?(?P<year>(?:19|20)[0-9]{2}))"
    day = "(?P<day>[0-9]{1,2})"
    names = "|".join(_WEEKDAYS)
    count, unit = f"([0-9]{{1,3}}|{'|'.join(_NUMBERS)})", f"({'|'.join(_AGO.values())})"
    ago = (
        f"{count} ?{unit} (?:ago|fa|geleden|atras|назад|전)|(?:il y a|hace|ha|vor) {count} {unit}"
        f"|{count} ?{unit}(?:以?前|전)"
    )

    def at(days: int) -> Callable[[re.Match[str], date], tuple[date, date]]:
        return lambda _, today: (today - timedelta(days=days), today - timedelta(days=days - 1))

    def of(unit: str, back: int) -> Callable[[re.Match[str], date], tuple[date, date]]:
        return lambda _, today: _period(unit, back, today)

    listed: list[tuple[str, Callable[[re.Match[str], date], tuple[date, date]]]] = [
        ("(?P<year>(?:19|20)[0-9]{2})[-/](?P<number>[01]?[0-9])[-/](?P<day>[0-3]?[0-9])", _in_month),
        (f"{day}(?:st|nd|rd|th|er|[.])? (?:of |de |d')?{month}{year}?", _in_month),
        (f"{month} {day}(?:st|nd|rd|th)?{year}?", _in_month),
        ("(?:(?P<year>[0-9]{4})[年년] ?)?(?P<number>[0-9]{1,2})[月월] ?(?:(?P<day>[0-9]{1,2})[日号일])?", _in_month),
        *((phrases, at(days)) for days, phrases in sorted(_DAYS_AGO.items(), reverse=True)),
        (f"(?:{_LAST}) ?({names})|({names}) ?(?:{_LAST})", _on_weekday),
        (ago, _ago),
        *((phrases, of(unit, 0)) for unit, phrases in _THIS.items()),
        *((phrases, of(unit, 1)) for unit, phrases in _PAST.items()),
        (f"{month}{year}", _in_month),
        # "may" and "march" are verbs too, so a month alone wants a word before it.
        (f"(?:in|during|since|last|en|au mois d[e']|durante|em|im|nel|di|в) {month}", _in_month),
        ("(?:in|during|en|em|im jahr|im|nel|в) ((?:19|20)[0-9]{2})|((?:19|20)[0-9]{2})年", _in_year),
    ]
    return [(re.compile(_apart(pattern)), meaning) for pattern, meaning in listed]


def _apart(pattern: str) -> str:
    """Standing alone, as far as the script has spaces: neither "may" in "maybe" nor 昨日 kept from 昨日何を."""
    letter = "[^\\W\u3040-\u9fff\uac00-\ud7a3]"
    return f"(?<!{letter})(?:{pattern})(?!{letter})"
