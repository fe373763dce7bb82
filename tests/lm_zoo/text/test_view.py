"""What LMs of several kinds of text see of written words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_zoo.base import LanguageModel
from lm_zoo.errors import ModelError, VocabError
from lm_zoo.inference.viewed import view_of
from lm_zoo.reading import DECODED_UNK
from lm_zoo.registry import load, load_folder, pretrained, read_config, save_folder
from lm_zoo.text.coverage import check_case
from lm_zoo.text.normalise import normalise
from lm_zoo.text.tokenizer import build_pieces, build_words, count_words
from lm_zoo.text.view import View, form_of
from lm_zoo.text.vocabulary import PieceVocabulary, TextForm, Vocabulary, WordVocabulary, encode
from tests.lm_zoo import hugging_face
from tests.lm_zoo.zoo import neural

SPOKEN = ["THE FIVE MEN AND MISTER HALE'S TWENTY DOLLARS", "THE SAINT JOHN OF THE MILLION"]
WRITTEN = [
    "Mr.",
    "Hale",
    "$5",
    "million",
    "St.",
    "well-known",
    "--",
    ",",
    "“The",
    "1920.",
    "<unk>",
    "[NOISE]",
    "HALE'S",
]


def english(case: str = "upper", pieces: bool = False) -> Vocabulary:
    sentences = [(line.lower() if case == "lower" else line).split() for line in SPOKEN]
    counts = count_words(sentences * 20)
    return build_pieces(counts, 60, "bpe") if pieces else build_words(counts)


@pytest.mark.parametrize("pieces", [False, True])
@settings(deadline=None)
@given(words=st.lists(st.sampled_from(WRITTEN) | st.text("aé.5$'", min_size=1, max_size=5)))
def test_an_lm_of_librispeech_sees_what_that_normaliser_gives(pieces: bool, words: list[str]) -> None:
    view = View(english(pieces=pieces))
    assert view.form == TextForm(punctuation=False, numbers="spelled")
    speech = " ".join(word for word in words if word != "[NOISE]")  # a normaliser keeps it
    assert " ".join(view.words(words)) == normalise("librispeech")(speech)
    assert [part for parts in view.parts(words) for part in parts] == list(view.words(words))
    once = view.words(words)
    assert view.words(once) == once


@pytest.mark.parametrize("pieces", [False, True])
def test_what_is_no_speech_is_seen_by_lms_that_know_it_alone(pieces: bool) -> None:
    view = View(english(pieces=pieces))
    words = ("[noise]", "IT", "<UNK>", "{laugh}", "<v-noise>", "!SIL", "<unk>")
    assert view.words(words) == ("IT", "<unk>", "<unk>")
    assert view.fold(words, [-1.0, -2.0, -3.0, -4.0]) == [0.0, -1.0, -2.0, 0.0, 0.0, 0.0, -3.0, -4.0]
    view.count(words)
    assert "1 without tags such as [noise]" in view.said()
    knows = build_words(count_words([["IT", "[noise]", "!SIL"]]))
    assert View(knows).words(words) == ("[noise]", "IT", "<unk>", "!SIL", "<unk>")
    assert View(None).words(words) == words


@pytest.mark.parametrize("sign", [DECODED_UNK, "[unk]", "[UNK]"])
@pytest.mark.parametrize("pieces", [False, True])
def test_other_signs_of_unknown_words(pieces: bool, sign: str) -> None:
    """Lists of ESPnet, NeMo, icefall and Vosk have them; without them LMs preferred hypotheses of unknown words."""
    vocab = english(pieces=pieces)
    if isinstance(vocab, PieceVocabulary):
        assert vocab.processor.decode([vocab.unk]).strip() == DECODED_UNK
    view = View(vocab)
    assert view.words(("IT", sign, "IS")) == ("IT", "<unk>", "IS")
    view.count(("IT", sign))
    assert ": 1 with <unk> for what is written otherwise;" in view.said()
    assert encode(vocab, [sign]) == [vocab.unk]
    assert sign not in build_words(count_words([["IT", sign]])).ids


@pytest.mark.parametrize("pieces", [False, True])
def test_tags_in_another_case_say_nothing_of_the_case_of_a_text(pieces: bool) -> None:
    """As TED-LIUM's [BREATH] and Kaldi's !SIL among words in lower case."""
    counts = count_words([[*line.lower().split(), "[BREATH]", "!SIL", "<NOISE>"] for line in SPOKEN] * 20)
    vocab = build_pieces(counts, 60, "bpe") if pieces else build_words(counts)
    assert vocab.case == "lower"
    shown = View(vocab).words(["Mr.", "HALE'S", "[BREATH]", "!SIL", "$5"])
    assert shown == ("mister", "hale's", "[BREATH]", "!SIL", "five", "dollars")
    check_case(vocab, shown, "line 1")
    with pytest.raises(VocabError, match="found 'BREATH', but the LM was trained on lower-case text"):
        check_case(vocab, ["[BREATH]", "BREATH"], "line 1")


def test_what_is_no_speech_parts_no_neighbours() -> None:
    words = ["$5", "[NOISE]", "million", "at", "3", "[NOISE]", "pm"]
    assert " ".join(View(english()).words(words)) == "FIVE MILLION DOLLARS AT THREE P M"
    assert [len(parts) for parts in View(english()).parts(words)] == [1, 0, 2, 1, 1, 0, 2]


def test_a_vocabulary_is_gone_through_once() -> None:
    class Counted(list[str]):
        passes = 0

        def __iter__(self) -> Iterator[str]:
            self.passes += 1
            return super().__iter__()

    lm = LanguageModel()
    lm.vocab = vocab = WordVocabulary(["<sos/eos>", "<unk>", "THE", "CAT"], "upper")
    vocab.words = words = Counted(vocab.words)
    for _ in range(3):
        assert view_of(lm).words(["the", "CAT"]) == ("THE", "CAT")
    assert words.passes == 1


@pytest.mark.parametrize("kind", ["pieces", "hf"])
def test_tokens_of_ever_new_words_are_not_all_kept(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["the", "cat", "sat", "mat", "dog", "saw", "the"]
    if kind == "hf":
        pytest.importorskip("transformers")
        vocab: Any = load(f"hf:{hugging_face.gpt2(tmp_path / 'gpt2')}").vocab
    else:
        vocab = build_pieces(Counter(words), 15)
    wanted = [vocab.encode_word(word) for word in words]
    vocab._cache.clear()
    monkeypatch.setattr("lm_zoo.text.vocabulary.KEPT", 3)
    assert [vocab.encode_word(word) for word in words] == wanted and len(vocab._cache) == 1


def test_words_in_the_form_of_the_lm_stay() -> None:
    """Also titles, and apostrophes at the ends of words, which the normaliser changes."""
    words = ("THE", "MR", "ST", "AN'", "'TIS", "UNKNOWN")
    assert View(english()).words(words) == words


def test_lower_case() -> None:
    view = View(english("lower"))
    assert view.words(["Mr.", "HALE", "paid", "$5"]) == ("mister", "hale", "paid", "five", "dollars")


def test_pieces_of_another_language_keep_digits_and_accents() -> None:
    view = View(build_words(count_words([["DER", "MÜDE", "HUND"]])))
    assert view.form == TextForm(punctuation=False, numbers="digits")
    assert view.words(["Der", "müde,", "alte", "Hund:", "5"]) == ("DER", "MÜDE", "ALTE", "HUND", "5")


def test_words_with_a_dot_that_the_lm_has() -> None:
    """As in the Penn Treebank."""
    view = View(build_words(count_words([["the", "u.s.", "mr.", "of"]])))
    assert view.words(["The", "U.S.", "Mr.", "Hale,", "said."]) == ("the", "u.s.", "mr.", "hale", "said")


def test_punctuation_that_the_lm_has_stays() -> None:
    view = View(build_words(count_words([["the", ",", ".", "of"]])))
    assert view.form == TextForm(punctuation=True, numbers="spelled")
    assert view.words(("The", "5", ",", "Mr.")) == ("the", "5", ",", "mr.")


def test_text_of_mixed_case_is_seen_as_it_is() -> None:
    view = View(build_words(count_words([["The", "cat"]])))
    assert view.words(("The", "Cat,", "$5")) == ("The", "Cat,", "$5") and not view.said()


def test_scores_are_summed_to_written_words() -> None:
    view = View(english())
    words = ("Mr.", ",", "$5", "million")
    assert view.parts(words) == [("MISTER",), (), ("FIVE",), ("MILLION", "DOLLARS")]
    assert view.fold(words, [1.0, 2.0, 4.0, 8.0, 16.0]) == [1.0, 0.0, 2.0, 12.0, 16.0]
    assert view.fold(("THE",), [1.0, 2.0]) == [1.0, 2.0]


def test_what_was_changed_is_counted() -> None:
    view = View(english())
    for text in ("THE MEN", "The men", "the men,", "Mr. Hale", "5 men"):
        view.count(text.split())
    assert view.said().startswith(
        "4 of 5 hypotheses shown to the LM in the form of its own text: 4 changed in case, 1 without punctuation, "
        "1 with numbers or signs in words, 1 with words spelled out; what is written stays as it is"
    )


def test_the_configuration_says_it_and_is_believed(tmp_path: Path) -> None:
    save_folder(tmp_path, neural("lstm"), "lstm", {})
    config = read_config(tmp_path)
    assert (config["case"], config["punctuation"], config["numbers"]) == ("upper", False, "digits")
    (tmp_path / "config.json").write_text(json.dumps({**config, "punctuation": True}))
    lm = load_folder(tmp_path)
    assert form_of(lm.vocab) == TextForm(punctuation=True, numbers="digits")
    assert view_of(lm).words(("a,", "b")) == ("A,", "B")
    assert view_of(lm, exact=True).words(("a,", "b")) == ("a,", "b")
    del config["punctuation"]  # as folders were written before
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert form_of(load_folder(tmp_path).vocab) == TextForm(punctuation=False, numbers="digits")
    (tmp_path / "config.json").write_text(json.dumps({**config, "punctuation": True, "numbers": "roman"}))
    with pytest.raises(ModelError, match="punctuation True and numbers 'roman', expected true or false, and 'spelled'"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", pretrained())
def test_lms_that_ship_say_what_their_vocabularies_show(name: str) -> None:
    config = read_config(pretrained()[name])
    assert (config["case"], config["punctuation"], config["numbers"]) == ("upper", False, "spelled")
    if config["kind"] != "ngram":
        vocab = load_folder(pretrained()[name]).vocab
        vocab.form = None
        assert form_of(vocab) == TextForm(punctuation=False, numbers="spelled")


def test_hugging_face_sees_the_text_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from lm_zoo.registry import load

    view = view_of(load(f"hf:{hugging_face.gpt2(tmp_path)}"))
    assert view.words(("The", "Cat,", "$5")) == ("The", "Cat,", "$5") and not view.said()
