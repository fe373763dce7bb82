"""Normalisers: what each makes of written English, and that a second time changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lm_zoo.errors import TextError
from lm_zoo.text.normalise import NORMALISERS, normalise
from lm_zoo.text.spoken import spoken, spoken_word

WRITTEN = [
    "Mr.",
    "St.",
    "$5",
    "£1.01",
    "million",
    "1,920",
    "1920s",
    "'90s",
    "21st",
    "10:05",
    "3pm",
    "10",
    "am",
    "$5m",
    "No.1",
    "3½",
    "1/2",
    "No.",
    "5%",
    "--",
]
WRITTEN += [
    "U.S.-made",
    "o\u2019clock",
    "“Boys'”",
    "<unk>",
    "[NOISE]",
    "-5",
    "ŉ",
    "İ",
    "ß",
    "한",
    "1.2.3",
    "0",
    "e\u0301",
]
texts = st.lists(st.sampled_from(WRITTEN) | st.text(max_size=8), max_size=8).map(" ".join)


@pytest.mark.parametrize("name", ["none", "basic", "librispeech"])
@settings(deadline=None)
@given(text=texts)
@example(text="3½\u0301 5\u2044\u0300'a' ''b A\u030a")
def test_a_second_time_changes_nothing(name: str, text: str) -> None:
    once = normalise(name)(text)
    assert normalise(name)(once) == once


@settings(deadline=None)
@given(texts)
def test_each_word_of_a_sentence_has_what_is_read_for_it(text: str) -> None:
    words = text.split()
    read = spoken(words)
    assert len(read) == len(words)
    assert " ".join(part for parts in read for part in parts) == normalise("librispeech")(text)
    assert all(part and part.split() == [part] for parts in read for part in parts)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Mr. Hale met Mrs. Dr. St. John's", "MISTER HALE MET MISSUS DOCTOR SAINT JOHN'S"),
        ("Gen. Lee, Col. X; the rev of Gen", "GENERAL LEE COLONEL X THE REV OF GEN"),
        ("in 1920, 1,920 men", "IN NINETEEN TWENTY ONE THOUSAND NINE HUNDRED AND TWENTY MEN"),
        ("1900 1905 2019 1066", "NINETEEN HUNDRED NINETEEN O FIVE TWENTY NINETEEN TEN SIXTY SIX"),
        ("2005 1,000,000", "TWO THOUSAND AND FIVE ONE MILLION"),
        ("the 21st, 3rd, 12th-century", "THE TWENTY FIRST THIRD TWELFTH CENTURY"),
        ("the 1920s and '90s", "THE NINETEEN TWENTIES AND NINETIES"),
        ("$1 $5 $1.50", "ONE DOLLAR FIVE DOLLARS ONE DOLLAR AND FIFTY CENTS"),
        ("£1.01 £5.02 $0.05", "ONE POUND AND ONE PENNY FIVE POUNDS AND TWO PENCE FIVE CENTS"),
        ("“$20 million,” he said", "TWENTY MILLION DOLLARS HE SAID"),
        ("5% 3.14 -5 007", "FIVE PER CENT THREE POINT ONE FOUR MINUS FIVE ZERO ZERO SEVEN"),
        ("1914-1918 B52", "NINETEEN FOURTEEN NINETEEN EIGHTEEN B FIFTY TWO"),
        ("10:30 a.m. 10:05 5:00", "TEN THIRTY A M TEN O FIVE FIVE O'CLOCK"),
        ("10:00am 9:00 p.m. at 5:00 Am 7:00, a man", "TEN A M NINE P M AT FIVE A M SEVEN O'CLOCK A MAN"),
        ("3 p.m. 3pm 3 PM, 3:30pm (11 am) I am", "THREE P M THREE P M THREE P M THREE THIRTY P M ELEVEN A M I AM"),
        ("$5m £1.5bn $2MIX", "FIVE MILLION DOLLARS ONE POINT FIVE BILLION POUNDS TWO DOLLARS MIX"),
        ("-$5, a $3-million-a-year job", "MINUS FIVE DOLLARS A THREE MILLION DOLLARS A YEAR JOB"),
        ("$1990 in 1990, -$1990 million", (
            "ONE THOUSAND NINE HUNDRED AND NINETY DOLLARS IN NINETEEN NINETY "
            "MINUS ONE THOUSAND NINE HUNDRED AND NINETY MILLION DOLLARS"
        )),
        ("10.30am (10.30 p.m.) 10.00 am 10.30", "TEN THIRTY A M TEN THIRTY P M TEN A M TEN POINT THREE ZERO"),
        ("1 1/2 cups, 3 ½ (2 3/4).", "ONE AND ONE HALF CUPS THREE AND ONE HALF TWO AND THREE QUARTERS"),
        ("5, 1/2 2 24/7", "FIVE ONE HALF TWO TWENTY FOUR SEVEN"),
        ("9/11, 2 9/11 8/11 9/10", "NINE ELEVEN TWO NINE ELEVEN EIGHT ELEVENTHS NINE TENTHS"),
        ("1¢ 21¢ 1.1¢ 1°C", "ONE CENT TWENTY ONE CENTS ONE POINT ONE CENTS ONE DEGREE C"),
        ("1/2 3½ 2/3 24/7", "ONE HALF THREE AND ONE HALF TWO THIRDS TWENTY FOUR SEVEN"),
        ("No. 5? No. No.1 Nos.1-3", "NUMBER FIVE NO NUMBER ONE NUMBERS ONE THREE"),
        ("Café o\u2019clock boys\u2019 \u2018well-known\u2019 U.S.", "CAFE O'CLOCK BOYS WELL KNOWN U S"),
        ("<unk> — …", "<unk>"),
        ("he \u2047 said \u2047?", "HE \u2047 SAID"),
        ("9" * 17, "NINE " * 16 + "NINE"),
    ],
)  # fmt: skip
def test_librispeech(written: str, said: str) -> None:
    assert normalise("librispeech")(written) == said


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("“Well-known” Mr. O\u2019Neil\u2019s boys'", "well known mr o'neil's boys"),
        ("ÉCOLE  STRAßE\tЁЖ हिन्दी 1,5 <unk>", "école straße ёж हिन्दी 1 5 <unk>"),
        ("He \u2047 said", "he \u2047 said"),
        ("co\u00adoperate snake_case", "cooperate snake case"),
    ],
)
def test_basic(written: str, plain: str) -> None:
    assert normalise("basic")(written) == plain


def test_whisper_is_that_of_the_package() -> None:
    english = pytest.importorskip("whisper_normalizer.english")
    written = "Mr. Park's colour won't cost twenty-one dollars, um, in 1920."
    assert normalise("whisper-en")(written) == english.EnglishTextNormalizer()(written).strip()
    assert normalise("whisper-en")(written) == "mister park is color will not cost $21 in 1920"


def test_none_changes_nothing_and_other_names_are_refused() -> None:
    assert normalise("none")(" A  b ") == " A  b "
    with pytest.raises(TextError, match=rf"no normaliser 'whisper'; there are: {', '.join(NORMALISERS)}"):
        normalise("whisper")


def test_a_word_alone_is_read_without_its_neighbours() -> None:
    assert (spoken_word("$5"), spoken_word("No."), spoken_word(",")) == (("FIVE", "DOLLARS"), ("NO",), ())
