"""Words to terms, for every script: what must meet meets, what must stay apart stays apart, in linear time."""

from __future__ import annotations

import subprocess
import sys
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from diarist import analysis
from diarist.analysis import estimate_tokens, fold, terms, windows

# Letters of many scripts, joints, marks, joiners, emoji: where the rules meet.
HARD = st.text(
    alphabet="aZé'ß-_.@:/+#,7３٣ łΣςάйЁя字花ーァひｶﾞก้김ㅎ\u1112\u1161مَأة\u200c\u200dहिन्"
    "\u0301\u0316\u0345👩🏽🇫✓€\n\x00\x1a\u2028。",
    max_size=40,
)
TEXTS = st.one_of(st.text(max_size=60), HARD)


def meet(question: str, note: str) -> bool:
    return bool(set(terms(question)) & set(terms(note)) - analysis.LIGHT)


# --- reports from users of other memories ---------------------------------------------------------------------------


def test_rw_011_a_nickname_leads_to_the_note_that_explains_it():
    alias, fact = "Bea is short for Beatriz Nunes", "Beatriz Nunes is allergic to peanuts"
    assert meet("what is Bea allergic to?", alias)
    assert meet("what is Bea allergic to?", fact)
    assert meet(alias, fact)
    assert "bea" not in terms("Beatriz")  # a spelling is not an alias


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("花生", "我对花生过敏，周五去看医生"),
        ("过敏医生", "我对花生过敏，周五去看医生"),
        ("京都", "来週は京都に出張します"),
        ("京", "来週は京都に出張します"),
        ("김치", "김치찌개를 좋아합니다"),
        ("물", "물을 마신다"),
    ],
)
def test_rw_012_words_without_spaces_are_found(query: str, note: str):
    assert meet(query, note)


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("sync-7b", "昨天重跑sync-7b任务，共修复12条记录"),
        ("任务", "昨天重跑sync-7b任务，共修复12条记录"),
        ("12", "昨天重跑sync-7b任务，共修复12条记录"),
        ("backlog", "On a vidé le backlog de l'équipe"),
        ("equipe", "On a vidé le backlog de l'équipe"),
        ("deploy", "شغلت deployالجديد أمس"),
        ("جديد", "شغلت deployالجديد أمس"),
    ],
)
def test_rw_013_a_change_of_script_is_a_border(query: str, note: str):
    assert meet(query, note)


@pytest.mark.parametrize(("query", "note"), [("ines", "Ines 4pm"), ("4", "Ines 4pm"), ("tea?", "tea"), ("7", "7")])
def test_rw_018_the_shortest_notes_are_found(query: str, note: str):
    assert meet(query, note)


# --- one example or more for every rule ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("昨天重跑sync-7b", "昨天 天重 重跑 昨 天 重 跑 sync-7b sync 7b 7 b"),
        ("猫", "猫"),
        ("時々行く", "時々 々行 時 々 行 く"),
        ("コーヒー", "コー ーヒ ヒー"),
        ("ｺｰﾋｰ", "コー ーヒ ヒー"),
        ("らーめん", "らー ーめ めん"),
        ("ดีครับ", "ดีค ครั รับ"),
        ("ລາວ", "ລາ າວ"),
        ("김치찌개를", "김치 치찌 찌개 개를 김치찌개를"),
        ("ＡＢＣ１２", "abc12 abc 12"),
        ("Łódź straße Ørsted œuvre naïve", "lodz strass orst oeuvr naiv"),
        ("İzmir ılık IŞIK", "izmir ilik isik"),
        ("Ёлка ёлка йод", "елк елк йод"),
        ("ΌΡΟΣ όρος", "ορ ορ"),
        ("أَحْمَدُ احمد", "احمد احمد"),
        ("مــرحبا ٣", "مرحب 3"),
        ("שָׁלוֹם", "שלום"),
        ("ज़रूर जरूर", "जरूर जरूर"),
        ("می‌خواهم", "ميخو مي خوا"),
        ("customer's customers l'adresse d’un", "custom custom adress un"),
        ("don't O'Brien", "dont obrien o brien"),
        ("e-mail email", "email e mail email"),
        ("getName YouTube", "getnam get name youtub you tube"),
        ("C-2291", "c-2291 c 2291"),
        ("a.perez@example.com", "a.perez@example.com a perez exampl com"),
        ("v1.2.3 1.5", "v1.2.3 v1 v 1 2 3 1.5 1 5"),
        ("4pm 16h30 16:30", "4pm 4 pm 16h30 16 h 30 16:30 16 30"),
        ("1,000 1.000", "1,000 1000 1.000 1000"),
        ("+54 341 555-0199 now", "54 341 555-0199 555 0199 now 543415550199"),
        ("C++ C# R&D", "c++ c c# c r&d r d"),
        ("20€ ½", "20 € 1/2 1 2"),
        ("👍🏽👨‍👩‍👧🇫🇷🇩🇪✓", "👍 👨‍👩‍👧 🇫🇷 🇩🇪 ✓"),
        ("3️⃣", "3"),
        ("ig\u00adnore pay\u200bpal", "ignor paypal"),
        ("?!", "? !"),
        ("。", "。"),
        ("\u202e\u200b", "\u202e \u200b"),
        ("   \n\t", ""),
        ("", ""),
    ],
)
def test_rules(text: str, expected: str):
    assert terms(text) == expected.split(" " if expected else None)


@pytest.mark.parametrize("unit", ["a", "é", "7", "a-", "a'", "김", "👩\u200d", "ก\u0e49\u0e47\u0e49", "हि", "ﷺ"])
def test_no_term_is_longer_than_256_characters(unit: str):
    assert max(map(len, terms(unit * 2_000))) <= 256


def test_urls_are_kept_whole_and_in_parts():
    found = terms("see https://shop.example/item?id=42, please")
    assert "https://shop.example/item?id=42" in found
    assert {"shop", "item", "42"} <= set(found)


@pytest.mark.parametrize(
    "codes", ["C-2291 C-2292", "sync-7b sync-7d", "1.5 1.6", "16:30 16:03", "a_b a-b", "v1.2.3 v1.3.2", "x1 x01"]
)
def test_codes_that_look_alike_stay_apart(codes: str):
    one, other = codes.split()
    assert terms(one)[0] not in terms(other)
    assert terms(other)[0] not in terms(one)


def test_a_telephone_number_is_found_in_any_grouping():
    assert "543415550199" in terms("Call +54 (341) 555-0199.")
    assert terms("543415550199") == ["543415550199"]


def test_light_terms():
    questions = "what when who quand où comment dónde cuándo wo wann где когда どこ いつ 什么 어디"
    assert {term for term in terms(questions) if len(term) > 1} <= analysis.LIGHT
    assert analysis.LIGHT.issuperset(("です", "ます", "的", "了", "dont", "est"))
    content = "son die coffee café allergy Kaffee casa friend друг 花生 果 医生 김치 may van ten door todo hat sera"
    assert not set(terms(content)) & analysis.LIGHT
    with pytest.raises(AttributeError):
        analysis.HEAVY  # noqa: B018


def test_nothing_heavy_is_loaded_before_the_first_term():
    code = "import sys, diarist.analysis; print([m for m in ('snowballstemmer', 'numpy', 'LIGHT') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_threads_do_not_mix_their_words_up():
    words = [f"{a}{b}ations" for a in "bcdfgklmnprst" for b in ("al", "en", "ir", "or", "ul", "ant")] * 3
    analysis._chunk.cache_clear()
    analysis._stem.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(terms, words))
    analysis._chunk.cache_clear()
    analysis._stem.cache_clear()
    assert together == [terms(word) for word in words]


# --- what holds for every text -------------------------------------------------------------------------------------


@given(TEXTS)
@settings(max_examples=200, deadline=None)
@example("\ud83d")
@example("\u0345\u0301\u0316")
def test_terms_of_any_text(text: str):
    found = terms(text)
    assert found == terms(text)
    assert bool(found) == bool(text.strip())
    assert all(term.split() == [term] and len(term) <= 256 for term in found)


@given(TEXTS)
@settings(max_examples=200, deadline=None)
@example("aÉ")
def test_the_way_a_character_is_composed_does_not_matter(text: str):
    nfc, nfd = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert fold(nfc) == fold(nfd)
    assert terms(nfc) == terms(nfd)


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_case_does_not_matter(text: str):
    assume(fold(text.upper()) == fold(text.lower()))
    assert terms(text.upper()) == terms(text.lower())


@given(TEXTS)
@settings(max_examples=200, deadline=None)
@example("ΰ")
def test_fold_of_a_folded_text_is_itself(text: str):
    assert fold(fold(text)) == fold(text)
    assert fold(f"  {text}\n") == fold(text)


@given(st.lists(HARD | st.text(max_size=20), max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_word_finds_the_note_that_holds_it(texts: list[str]):
    words = [word for text in texts for word in text.split() if len(terms(f"a {word}")) > 1]  # not punctuation only
    note = set(terms(" ".join(words)))
    for word in words:
        assert set(terms(word)) & note, word


NAUGHTY = (
    "",
    "undefined", "NULL", "1E+02", "-$1.00", "0..0", "--1", "0xffffffff", "1'000'000.00", ",./;'[]\\-=", "<>?:\"{}|_+",
    "!@#$%^&*()`~", "\x01\x02\x7f", "\x80\x9f", "\u1680\u2003\u3000\ufeff", "\xad\u0600\u061c\u06dd\u180e\U000e0001",
    "\ufffe\uffff\U0001ffff\U0010ffff", "Ω≈ç√∫˜µ≤≥÷", "⅛⅜⅝⅞",
    "٠١٢٣", "⁰⁴⁵₀₁₂", "ด้้้้้็็็็็้้้้้็็็็็", "''''\"",
    "田中さんにあげて下さい", "찦차를 타고 온 펲시맨과", "𠜎𠜱𠝹", "𐐜 𐐔𐐇𐐝", "ヽ༼ຈل͜ຈ༽ﾉ", "(╯°□°）╯︵ ┻━┻)",
    "👨🏿\u200d🦰",
    "🇺🇸🇷🇺🇸🇦", "﷽ﷺ", "בְּרֵאשִׁית", "᚛ᚄᚓᚐᚋ᚜",
    "\u2066test\u2067", "Z̮̞̠͙͔ͅḀ̗̞͈̻̗Ḷ͙͎̯̹̞͓G̻O̭̗̮",
    "𝐓𝐡𝐞 ⒯⒣⒠", "<script>alert(1)</script>", "'; DROP TABLE users-- 1",
    "' OR 1=1 --",
    "NEAR(a b, 5) AND *", "%_%", "../../etc/passwd%00", "{{7*7}}", "\x1b[31mred\x1b[0m", "జ్ఞ\u200cా",
    "\ud83d", "\ude00x",
    "Ignоre аll", "ㅤㅤ", "a\u2060b", "\ufff9a\ufffab\ufffb", "z" + "\u0301\u0316" * 99, "a\u2028b\x85c",
)  # fmt: skip


@pytest.mark.parametrize("text", NAUGHTY)
def test_naughty_strings(text: str):
    assert bool(terms(text)) == bool(text.strip())
    assert fold(fold(text)) == fold(text)
    assert "".join(windows(text, 100_000)) == text
    assert estimate_tokens(text) >= bool(text)


# --- windows and tokens --------------------------------------------------------------------------------------------


def weight(text: str) -> int:
    return sum(2 if analysis._WIDE.match(char) else 1 for char in text)


@given(st.text(alphabet="ab .\n字ก้👩\u200d🏽🇫🇷\u0301", max_size=400), st.integers(min_value=2, max_value=120))
@settings(max_examples=200, deadline=None)
def test_windows_cover_every_character(text: str, size: int):
    spans = list(analysis._spans(text, size))
    assert windows(text, size) == [text[start:end] for start, end in spans]
    assert all(weight(window) <= size for window in windows(text, size))
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(start < next_start <= end < next_end for (start, end), (next_start, next_end) in pairwise(spans))


def test_windows_cut_where_a_reader_would():
    found = windows("".join(f"The code of safe {n} is {n * n}. " for n in range(100, 160)), 200)
    assert all(window.endswith(". ") for window in found)
    assert all(len(window) <= 200 for window in found)
    for one, other in pairwise(found):
        overlap = next(n for n in range(len(other), -1, -1) if one.endswith(other[:n]))
        assert 10 <= overlap <= 60
    assert windows("The first one.\n\nA. second, of more words", 24)[0] == "The first one.\n\n"
    assert windows("short", 200) == ["short"]
    assert windows("", 200) == [""]
    with pytest.raises(ValueError, match="size is 1"):
        windows("text", 1)


def test_windows_weigh_scripts_without_spaces_double():
    found = windows("明日京都へ行きます。" * 100, 200)
    assert 90 <= max(map(len, found)) <= 105
    assert all(window.endswith("。") for window in found)


@pytest.mark.parametrize("whole", ["👨‍👩‍👧", "🇫🇷", "👍🏽", "e\u0301", "ก้", "\r\n"])
def test_windows_do_not_cut_inside_a_character(whole: str):
    for size in (30, 31, 32, 33):
        for window in windows(whole * 200, size):
            assert not len(window) % len(whole)
            assert window.startswith(whole)


def test_all_three_facts_of_a_long_note_are_in_some_window():
    facts = ("The safe code is 4471.", "Ines is coming at 4pm.", "The cat is called Bo.")
    text = ("Nothing to see here. " * 700).join(facts)
    found = windows(text, 1500)
    assert all(any(fact in window for window in found) for fact in facts)
    assert len(found) < len(text) / 1000


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcde", 2), ("字", 1), ("花生ab", 3), ("é" * 4, 2), ("김치", 2), ("コーヒー", 4)],
)
def test_estimated_tokens(text: str, tokens: int):
    assert estimate_tokens(text) == tokens


# --- time ----------------------------------------------------------------------------------------------------------

GENERATORS = (
    "a", "-", ".", "@", "_", " ", "7", "\u0301", "\u0301\u0316\u0300\u0323", "\u200d", "a.", "\"'“”", "1-", "1,", "1 ",
    "aB", "aя任あ김ก1", "김", "👩\u200d", "👩", "🇫", "ก\u0e49\u0e47", "\uff9e\u0301", "a'", "://", "a/?", "\n ", "。」",
    ".'", "م\u200c", "C#",
)  # fmt: skip


@pytest.mark.parametrize("unit", GENERATORS, ids=ascii)
def test_time_is_linear(unit: str):
    for work in (terms, fold, estimate_tokens, lambda text: windows(text, 1500)):
        large = seconds(work, (unit * 64_000)[:64_000])
        if large > 0.1:  # below, the clock says little
            large = min(large, *(seconds(work, (unit * 64_000)[:64_000]) for _ in range(3)))
            small = min(seconds(work, (unit * 4_000)[:4_000]) for _ in range(5))
            assert large <= max(20 * small, 0.3), (small, large)
        assert large <= 0.25


def seconds(work, text: str) -> float:
    start = time.process_time()
    work(text)
    return time.process_time() - start


# --- one stemmer a script: what it joins, and what it must not -----------------------------------------------------

FORMS = """
en: customer customers / order orders ordered ordering / allergy allergies allergic / peanut peanuts / box boxes
/ child children / baby babies / like likes liked liking / prefer prefers preferred preferring / travel travels
travelled traveling / buy buys buying bought / coffee coffees / flight flights / deliver delivers delivered
delivery / city cities / friend friends / run runs running / study studies studied studying / knife knives /
grind grinds grinding ground / meet meets meeting meetings / work works worked working / daughter daughters /
invoice invoices invoiced / dish dishes / big bigger biggest / easy easily / move moves moved moving / cancel
cancelled cancels cancellation / pay pays paid payment / vegetarian vegetarians / book books booked booking /
write writes writing wrote / house houses / address addresses / watch watches watched watching / happy happily /
cook cooks cooked cooking / live lives lived living / appointment appointments
fr: client clients cliente clientes / commande commandes commander commandé commandait / allergie allergies
allergique allergiques / cheval chevaux / ami amis amie amies / acheter achète acheté achetait achetez / aimer
aime aimes aimait aimé aimons / maison maisons / ville villes / enfant enfants / livrer livre livré livraison
livraisons / préférer préfère préféré préférait / nouveau nouveaux nouvelle nouvelles / petit petite petits
petites / grand grande grands grandes / végétarien végétarienne végétariens / facture factures facturé facturer
/ voyage voyages voyager voyagé / habiter habite habité habitait habitent / travailler travaille travaillé
travail / manger mange mangé mangeait / vert verte verts vertes / blanc blanche blancs / anniversaire
anniversaires / fille filles / médecin médecins / chien chiens chienne / chat chats chatte / vendre vend vendu
vendait / finir finit fini finissait / boire boit bu / sucré sucrée sucrés / cadeau cadeaux / journal journaux /
adresse adresses / payer paye payé paiement / choisir choisi choisit / heureux heureuse / numéro numéros /
couleur couleurs / cuisiner cuisine cuisiné
es: cliente clientes clienta / pedido pedidos pedir pide / alergia alergias alérgico alérgica / amigo amigos
amiga amigas / ciudad ciudades / comprar compra compró compraba comprado / casa casas / hijo hijos hija hijas /
niño niños niña niñas / preferir prefiere prefirió / vivir vive vivía vivió vivido / trabajar trabaja trabajó
trabajo / comer come comía comió comido / rojo roja rojos rojas / blanco blanca blancos blancas / flor flores /
luz luces / pez peces / reunión reuniones / canción canciones / viaje viajes viajar viajó / hablar habla hablaba
habló hablando / factura facturas / vegetariano vegetariana vegetarianos / médico médica médicos / gato gatos
gata / perro perros perra / dirección direcciones / número números / pagar paga pagó pagado pago / envío envíos
enviar envía / nuevo nueva nuevos nuevas / pequeño pequeña pequeños / grande grandes / gustar gusta gustan
gustaba / beber bebe bebía bebió / reloj relojes / zapato zapatos / regalo regalos regalar / cocinar cocina
cocinó
pt: cliente clientes / pedido pedidos pedir pede / alergia alergias alérgico alérgica / amigo amigos amiga
amigas / cidade cidades / comprar compra comprou comprava comprado / casa casas / filho filhos filha filhas /
preferir prefere preferiu / viver vive vivia viveu / trabalhar trabalha trabalhou trabalho / comer come comia
comeu / vermelho vermelha vermelhos / branco branca brancos / flor flores / luz luzes / reunião reuniões /
canção canções / pão pães / animal animais / hotel hotéis / viagem viagens viajar / falar fala falava falou
falando / fatura faturas / vegetariano vegetariana vegetarianos / médico médica médicos / gato gatos gata /
cachorro cachorros / aniversário aniversários / endereço endereços / número números / pagar paga pagou pago /
envio envios enviar / novo nova novos novas / pequeno pequena pequenos / grande grandes / gostar gosta gostam
gostava / beber bebe bebia bebeu / sapato sapatos / presente presentes / cozinhar cozinha cozinhou / irmão
irmãos irmã
it: cliente clienti / ordine ordini ordinare ordinato / allergia allergie allergico allergica / amico amici
amica amiche / comprare compra comprato comprava / casa case / figlio figli figlia figlie / bambino bambini
bambina bambine / preferire preferisce preferito / vivere vive viveva vissuto / lavorare lavora lavorato lavoro
/ mangiare mangia mangiato mangiava / rosso rossa rossi rosse / bianco bianca bianchi bianche / fiore fiori /
riunione riunioni / canzone canzoni / viaggio viaggi viaggiare viaggiato / parlare parla parlava parlato
parlando / fattura fatture / vegetariano vegetariana vegetariani / medico medici / gatto gatti gatta / cane cani
/ compleanno compleanni / indirizzo indirizzi / numero numeri / pagare paga pagato pagamento / nuovo nuova nuovi
nuove / piccolo piccola piccoli / grande grandi / bere beve beveva / libro libri / scarpa scarpe / regalo regali
regalare / cucinare cucina cucinato / fratello fratelli / sorella sorelle / orologio orologi
de: Kunde Kunden Kundin Kundinnen / Bestellung Bestellungen bestellen bestellt bestellte / Allergie Allergien
allergisch allergische / Freund Freunde Freundin Freunden / Stadt Städte Städten / kaufen kauft kaufte gekauft /
Haus Häuser Häusern / Kind Kinder Kindern / Tochter Töchter / Sohn Söhne / wohnen wohnt wohnte gewohnt /
arbeiten arbeitet arbeitete Arbeit / essen isst gegessen / rot rote roter rotes roten / weiß weiße weißer /
Blume Blumen / Termin Termine Terminen / Lied Lieder / Reise Reisen reisen reist / sprechen spricht gesprochen /
Rechnung Rechnungen / Vegetarier Vegetarierin / Arzt Ärzte Ärztin / Katze Katzen / Hund Hunde Hunden /
Geburtstag Geburtstage / Adresse Adressen / Nummer Nummern / zahlen zahlt zahlte bezahlt / neu neue neuer neues
neuen / klein kleine kleiner kleines / groß große großer / mögen mag mochte / trinken trinkt trank getrunken /
Schuh Schuhe Schuhen / Geschenk Geschenke / kochen kocht kochte gekocht / Bruder Brüder / Buch Bücher Büchern /
liefern liefert geliefert Lieferung / spielen spielt spielte gespielt
nl: klant klanten / bestelling bestellingen bestellen besteld / allergie allergieën allergisch / vriend vrienden
vriendin / stad steden / kopen koopt kocht gekocht / huis huizen / kind kinderen / dochter dochters / zoon zonen
/ wonen woont woonde gewoond / werken werkt werkte gewerkt / eten eet at gegeten / rood rode / wit witte / bloem
bloemen / afspraak afspraken / lied liederen / reis reizen / spreken spreekt gesproken / rekening rekeningen /
vegetariër vegetariërs / dokter dokters / kat katten / hond honden / verjaardag verjaardagen / adres adressen /
nummer nummers / betalen betaalt betaald / nieuw nieuwe / klein kleine / groot grote / drinken drinkt dronk /
schoen schoenen / cadeau cadeaus / koken kookt gekookt / broer broers / boek boeken / leveren levert geleverd
levering / spelen speelt speelde / fiets fietsen
pl: klient klienci klienta klientka klientów / zamówienie zamówienia zamówień zamówić / alergia alergie alergii
/ przyjaciel przyjaciele przyjaciela / miasto miasta mieście / kupić kupił kupiła kupuje / dom domu domy /
dziecko dzieci / córka córki córkę / syn syna synowie / mieszkać mieszka mieszkał mieszkała / pracować pracuje
pracował praca / jeść je jadł / czerwony czerwona czerwone czerwonego / biały biała białe / kwiat kwiaty kwiatów
/ spotkanie spotkania spotkań / podróż podróże podróży / rozmowa rozmowy rozmawiać / faktura faktury fakturę /
lekarz lekarza lekarze / kot koty kota / pies psy psa / urodziny urodzin / adres adresy adresu / numer numery
numeru / płacić płaci zapłacił / nowy nowa nowe nowego / mały mała małe / duży duża duże / pić pije pił / but
buty butów / prezent prezenty prezentu / gotować gotuje gotował / brat brata bracia / książka książki książkę
książek / orzech orzechy orzechów / kawa kawy kawę / herbata herbaty herbatę / lubić lubi lubił
tr: müşteri müşteriler müşterinin / sipariş siparişler siparişi / alerji alerjisi alerjik / arkadaş arkadaşlar
arkadaşım arkadaşı / şehir şehirler şehirde / almak aldı alıyor / ev evler evde evin / çocuk çocuklar çocuğu /
kız kızlar kızım / oğul oğlu oğlum / oturmak oturuyor oturdu / çalışmak çalışıyor çalıştı / yemek yiyor yedi /
çiçek çiçekler çiçeği / toplantı toplantılar toplantıda / yolculuk yolculuğu / konuşmak konuşuyor konuştu /
fatura faturalar faturası / doktor doktorlar doktoru / kedi kediler kedisi / köpek köpekler köpeği / adres
adresi adresler / numara numarası numaralar / ödemek ödedi ödüyor / yeni yeniler / içmek içti içiyor / ayakkabı
ayakkabılar / hediye hediyeler hediyesi / pişirmek pişirdi / kardeş kardeşler kardeşi / kitap kitaplar kitabı /
kahve kahvesi kahveyi / çay çayı çaylar / fıstık fıstığı fıstıklar / sevmek seviyor sevdi
ru: клиент клиенты клиента клиентов / заказ заказы заказа заказал заказать / аллергия аллергии аллергию / друг
друга друзья / город города городе / купить купил купила купит / дом дома доме / ребёнок ребёнка / дочь дочери /
сын сына сыновья / жить живёт жил жила / работать работает работал работа / есть ест ел / красный красная
красные красного / белый белая белые / цветок цветка цветы / встреча встречи встречу / песня песни песню /
поездка поездки поездку / говорить говорит говорил говорила / счёт счета / врач врача врачи / кошка кошки кошку
кошек / собака собаки собаку собак / адрес адреса адресу / номер номера номеру / платить платит платил / новый
новая новое новые / маленький маленькая маленькие / большой большая большие / пить пьёт пил / туфля туфли /
подарок подарка подарки / готовить готовит готовил / брат брата братья / книга книги книгу / орех орехи орехов /
чай чая чаю / любить любит любил любила
el: πελάτης πελάτες πελάτη / παραγγελία παραγγελίες / αλλεργία αλλεργίες αλλεργικός / φίλος φίλοι φίλη / πόλη
πόλεις / σπίτι σπίτια / παιδί παιδιά / κόρη κόρες / γιος γιοι / μένω μένει έμενε / δουλεύω δουλεύει δουλειά /
τρώω τρώει / κόκκινος κόκκινη κόκκινο / λουλούδι λουλούδια / ταξίδι ταξίδια / γιατρός γιατροί / γάτα γάτες /
σκύλος σκύλοι σκύλο / διεύθυνση διευθύνσεις / αριθμός αριθμοί / νέος νέα νέο / βιβλίο βιβλία / καφές καφέδες
καφέ / δώρο δώρα / αγοράζω αγοράζει αγόρασε
ar: زبون زبائن الزبون / طلب الطلب طلبات الطلبات / حساسية الحساسية / صديق الصديق صديقي صديقة / مدينة المدينة مدن
/ بيت البيت بيوت / كتاب الكتاب كتب / قهوة القهوة والقهوة بالقهوة / طبيب الطبيب طبيبة / عنوان العنوان عنواني /
رقم الرقم رقمي / موعد الموعد مواعيد / سيارة السيارة سيارات سيارتي / مدرسة المدرسة مدرستي / مستشفى المستشفى /
يشرب تشرب يشربون / يعمل تعمل يعملون / جديد الجديد جديدة / فاتورة الفاتورة فواتير / هدية الهدية هدايا
hi: ग्राहक ग्राहकों / लड़का लड़के लड़कों / लड़की लड़कियां लड़कियों / किताब किताबें किताबों / दोस्त दोस्तों / शहर
शहरों / बच्चा बच्चे बच्चों / कमरा कमरे / अच्छा अच्छी अच्छे / नया नई नए / पीना पीता पीती पीते / खाना खाता खाती
खाते / रहना रहता रहती / दवा दवाएं दवाई / मूंगफली मूंगफलियां / डॉक्टर डॉक्टरों / कुत्ता कुत्ते / बिल्ली बिल्लियां
"""
HELD_OUT = """
en: neighbour neighbours / reserve reserved reserving reservation / wife wives / sister sisters / plan plans
planned planning / teach teaches teacher / story stories / walk walks walked walking / swim swimming swims /
medicine medicines / dance dances dancing dancer / size sizes
fr: voisin voisins voisine / réserver réserve réservé réservation / femme femmes / soeur soeurs / marcher marche
marché marchait / nager nage nageait / médicament médicaments / danser danse dansait / taille tailles / gentil
gentille gentils / étudier étudie étudiait / important importante importants / rouge rouges
es: vecino vecina vecinos / reservar reserva reservó reservado / mujer mujeres / hermano hermana hermanos /
caminar camina caminaba / nadar nada nadaba / medicina medicinas / bailar baila bailaba / talla tallas /
simpático simpática / estudiar estudia estudiaba / importante importantes / maestro maestra maestros
pt: vizinho vizinha vizinhos / reservar reserva reservou reservado / mulher mulheres / caminhar caminha
caminhava / nadar nada nadava / remédio remédios / dançar dança dançava / tamanho tamanhos / simpático simpática
/ estudar estuda estudava / importante importantes / professor professora professores
it: vicino vicina vicini / prenotare prenota prenotato / moglie mogli / camminare cammina camminava / nuotare
nuota nuotava / medicina medicine / ballare balla ballava / taglia taglie / simpatico simpatica / studiare
studia studiava / importante importanti / maestro maestra maestri
de: Nachbar Nachbarn Nachbarin / reservieren reserviert reservierte / Frau Frauen / Schwester Schwestern /
wandern wandert wanderte / schwimmen schwimmt / Medikament Medikamente / tanzen tanzt tanzte / Größe Größen /
freundlich freundliche / wichtig wichtige wichtiger / Lehrer Lehrerin Lehrern
nl: buurman buurmannen / reserveren reserveert gereserveerd / vrouw vrouwen / zus zussen / wandelen wandelt
wandelde / zwemmen zwemt / medicijn medicijnen / dansen danst danste / maat maten / vriendelijk vriendelijke /
belangrijk belangrijke / leraar leraren
pl: sąsiad sąsiada sąsiedzi / rezerwować rezerwuje / żona żony żonę / siostra siostry siostrę / spacer spacery
spaceru / pływać pływa pływał / lekarstwo lekarstwa / tańczyć tańczy tańczył / rozmiar rozmiary / ważny ważna
ważne / nauczyciel nauczyciele nauczyciela
tr: komşu komşular komşusu / rezervasyon rezervasyonu rezervasyonlar / kadın kadınlar / yürümek yürüyor yürüdü /
yüzmek yüzüyor / ilaç ilaçlar ilacı / öğretmen öğretmenler öğretmeni / beden bedeni / bilet biletler bileti /
otel oteller oteli
"""
OTHERS = """
en: universe university / new news / general generous / organ organization / police policy / import important /
comment comments community / past pasta / desert dessert / one ones once / animal animate / wander wonder /
marine marina / station state / paper pepper / mother month / friday fried / party part / cat cater / car care /
bus busy / plan plane / rat rate / hat hate / win wine / pin pine / planet plant / market mark / letter let /
corner corn / anna ann / maria mary / paris parish / tea team / bean bear / ring rings spring / matter mat /
number numb
fr: poisson poison / livre lire / chat chant / mur mûre / vert vers / port porte / cour cours course / rose rosé
/ gare garage / peur peu / pomme pompe / jour journal / banque banquier bancal / marche marché / mari marie /
pâte pâté / sale salle / gras grave / menthe menteur / pain peindre / robe robot
es: puerto puerta / caso casa / libro libra / mano mango / plato plata / punto punta / cuento cuenta / gata
gasto / peso pesado / barco barca / pollo polla / cara caro carta / hora horno / moto motor / té tela / nuez
nuevo / banco banca / mora moral / general género / color colorado
pt: porto porta / caso casa / prato prata / ponto ponta / conto conta / barco barca / pelo pele / avô avó /
gosto gasto / mora moral / banco banca / forno forma / saco saca / carro cara / queijo queixa / sal sala
it: porto porta / caso casa / pesca pesce / mela melo / foglio foglia / tavolo tavola / banco banca / punto
punta / cane canna / pena penna / sale sala / collo colla / modo moda / posto posta / pollo polo / pasto pasta /
costo costa / gamba gambero / nonno nono / fino fine
de: Kirche Kirsche / Hose Hase / Tag Tage Tagung / Wein Weinen / Mutter Mut / Vater Vase / Bank Bankett / Reis
Reise / Kuchen Küche / Nuss nass / Wand Wunde / Hand Handel / Bett Bettler / Kopf Kopfhörer / Feder Feld / Kamm
Kammer / Butter Butt / Leben leber / Sommer Summe / Fliege fliegen
nl: boom boot / kaas kas / been beer / vis visum / tand tante / hart hard / man maan / week weken wekker / brood
broeder / kop koper / bank banket / beker bek / rok roken / zon zoon / pan paan / bord borduur
pl: kot kotlet / dom domino / brat bratek / ser serce / list lista / kawa kawał / pan pani / lek lekarz lekcja /
kolej kolejka / pies pieśń / sok sokół / mak makaron / chleb chlew / miasto mistrz / bank banknot / róża
różaniec
tr: kar kara / at ata / kız kızak / baş başka / el elma / su suç / dil dilek / ay ayak / kol kolay / para parça
/ kara karar / bal balık / yaş yaşlı yasak / anne ana / masa masal / hal halı
ru: рыба рыбак / банк банка / рис риск / лук лука / пол поле / стол столица / мел мель / кот котлета / сыр сырок
/ чай чайка / план планета / дома домино / мать матч / нос носок / вода водка / почта почти / карта карты картон
/ мир мирра / порт портрет
el: πόλη πόλεμος / φίλος φύλλο / νέος νερό / πόδι πουλί / γάλα γάτα / θέση θέα / χέρι χώρα
ar: كتاب كلب / بيت بنت / قهوة قوة / مدرسة مدينة / رقم رسم / طلب طبيب
hi: लड़का लड्डू / किताब किसान / दवा दवात / कमरा कमर / पीना पीला / दिन दिल
"""


def groups(table: str) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    for word in table.split():
        if word.endswith(":"):
            current = found[word[:-1]] = [[]]
        elif word == "/":
            current.append([])
        else:
            current[-1].append(word)
    return found


def joined(table: str, language: str) -> float:
    """The share of pairs of one group that have the same first term."""
    pairs = [pair for group in groups(table)[language] for pair in combinations(group, 2)]
    return sum(terms(one)[0] == terms(other)[0] for one, other in pairs) / len(pairs)


@pytest.mark.parametrize(
    ("language", "fitted", "held_out"),
    [
        ("en", 0.84, 0.88), ("fr", 0.57, 0.70), ("es", 0.40, 0.80), ("pt", 0.44, 0.78), ("it", 0.51, 0.72),
        ("de", 0.31, 0.41), ("nl", 0.18, 0.27), ("pl", 0.33, 0.43), ("tr", 0.11, 0.37),
        ("ru", 0.76, 0), ("el", 0.70, 0), ("ar", 0.36, 0), ("hi", 0.86, 0),
    ],
)  # fmt: skip
def test_inflected_forms_meet(language: str, fitted: float, held_out: float):
    assert joined(FORMS, language) >= fitted
    assert not held_out or joined(HELD_OUT, language) >= held_out


def test_words_that_only_look_alike_stay_apart():
    pairs = [pair for found in groups(OTHERS).values() for group in found for pair in combinations(group, 2)]
    merged = [pair for pair in pairs if terms(pair[0])[0] == terms(pair[1])[0] and fold(pair[0]) != fold(pair[1])]
    assert len(merged) <= 0.12 * len(pairs), merged
    both = [(language, found) for table in (FORMS, HELD_OUT) for language, found in groups(table).items()]
    collisions = [
        language
        for language, found in both
        for one, other in combinations(found, 2)
        if {terms(word)[0] for word in one} & {terms(word)[0] for word in other}
    ]
    assert collisions == ["hi"]  # लड़का boy, लड़की girl


def test_words_of_gives_a_term_s_word_for_people():
    assert analysis.words_of("Has she moved house? ¿Compra café? 花生过敏") == {
        "has": "has", "she": "she", "move": "moved", "hous": "house", "compr": "compra", "cafe": "cafe",
    }  # fmt: skip
