"""Text from transcripts of corpora: every mark of the transcribers, bad lines, `rescore transcripts`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rescore.cli.main import cli
from rescore.errors import FormatError, UsageError
from rescore.workflows.transcripts import KINDS, chat_words, fisher_words, read_transcripts, stm_words, swbd_words


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[laughter-so] uh-huh [noise] [silence]", "so uh-huh"),
        ("[it'n/isn't] them_1 them_1's", "it'n them them's"),
        ("ab[solute]- ab[solute] -[an]y [an]y", "ab- ab- -y -y"),
        ("[lem[guini]-/linguini] {yuppiedom} <b_aside> hey <e_aside>", "lem- yuppiedom hey"),
        ("ammu[n]it- -[re]mem[ber]- ex[specially]-/especially] w[ould]-[laughter]", "ammu-it- -mem- ex- w-"),
        ("{b[lank]-} [laughter]- [silence] -[40]1k th[ey]-_1 [laughter-[hu[geous]-/humongous]]", "b- -1k th- hu-"),
    ],
)
def test_words_of_switchboard(text: str, words: str) -> None:
    assert " ".join(swbd_words(text)) == words


def test_words_of_the_others() -> None:
    fisher = "(( i mean )) *mandatory, [laughter] a._b._c. what? th- [[skip]] <german (( ja )) > -- so"
    assert " ".join(fisher_words(fisher)) == "i mean mandatory a b c what th- so"
    stm = "{ YEAH / YES / @ } (%HESITATION) (I-) <B_ASIDE> KNOW"
    assert " ".join(stm_words(stm)) == "YEAH uh I- KNOW"
    assert " ".join(stm_words("a discovery(2) {NOISE} <sil> { um } {smack} ago(13) (2)")) == "a discovery um ago 2"
    assert " ".join(fisher_words("(( the d._v._d.'s )) t._v.")) == "the d v d's t v"
    assert " ".join(fisher_words("c._d.s and d._v._d.s t._v.'ll pass mr.")) == "c d's and d v d's t v'll pass mr"
    chat = "&-uh &uh &w (be)cause <the boy> [//] the cookie+jar [* s:r] (.) xxx &=laughs 0is o_clock no: so@q +..."
    chat += " \x1512_40\x15 yyy@u 1200_2300"
    assert " ".join(chat_words(chat)) == "uh uh because the boy the cookie jar o clock no so"


FILES = {
    "swb/20/2001/sw2001A-ms98-a-trans.text": """sw2001A-ms98-a-0001 0.0 0.9 [silence]
sw2001A-ms98-a-0002 0.9 2 hi [laughter-there]
""",
    "fsh/data/trans/000/fe_03_00001.txt": """# fe_03_00001.sph

3.76 5.54 B: and (( so ))
6 7 A: [noise]
""",
    "fsh/data/other/fe_03_00002.txt": "no transcript\n",
    "eval/hub5.stm": """;; comment
sw_1 A sw_1_A 1.5 2 <O,en> WE KNOW
sw_1 A x 2 3 <O> IGNORE_TIME_SEGMENT_IN_SCORING
""",
    "pitt/Control/cookie/001-0.cha": """@UTF8
*PAR:\tthe boy is on
\tthe stool .
%mor:\tdet n
*INV:\tokay .
""",
}


def corpus(folder: Path) -> Path:
    """One small file of each kind, of our own words."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("kind", "sources", "text"),
    [
        ("swbd", ["swb"], "hi there\n"),
        ("fisher", ["fsh"], "and so\n"),
        ("stm", ["eval/hub5.stm"], "we know\n"),
        ("chat", ["pitt", "pitt"], "the boy is on the stool\nokay\n" * 2),
    ],
)
def test_a_folder_becomes_text(tmp_path: Path, kind: str, sources: list[str], text: str) -> None:
    corpus(tmp_path)
    paths = [tmp_path / source for source in sources]
    result = run("transcripts", kind, *paths, "--case", "lower", "--out", tmp_path / "out.txt")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out.txt").read_text() == text
    assert f"{text.count(chr(10))} utterances, {len(text.split())} words" in result.output


def test_messages(tmp_path: Path) -> None:
    corpus(tmp_path)
    with pytest.raises(UsageError, match="no kind of transcript is called 'ctm'; there are: swbd, fisher, stm, chat"):
        list(read_transcripts("ctm", tmp_path))
    with pytest.raises(
        UsageError, match=r"swb: no file '\*.cha' in this folder, expected transcripts of the kind chat"
    ):
        list(read_transcripts("chat", tmp_path / "swb"))
    with pytest.raises(FormatError, match=r"fe_03_00002.txt:1: found 'no transcript', expected 'BEGIN END A: TEXT'"):
        list(read_transcripts("fisher", tmp_path / "fsh", "fe_03_*.txt"))
    patterns = [("/data/*.stm", "Non-relative")]
    if sys.version_info < (3, 13):  # to which it is a pattern
        patterns.append(("***", "Invalid pattern"))
    for pattern, found in patterns:
        with pytest.raises(UsageError, match=rf"--files '.*': {found}.*; expected a pattern of names"):
            list(read_transcripts("stm", tmp_path, pattern))
    (tmp_path / "eval/a.stm").mkdir()
    assert list(read_transcripts("stm", tmp_path)) == [["WE", "KNOW"]], "a folder is none of the files"
    out = tmp_path / "out.txt"
    assert isinstance(run("transcripts", "stm", tmp_path / "swb/20", "--out", out).exception, UsageError)
    assert not out.exists()


@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.text(alphabet="ab *&[]{}()<>/@%+-_.:0123\t\x15A#", max_size=30), max_size=5),
)
def test_any_lines_give_words_or_one_error(kind: str, lines: list[str]) -> None:
    rules = KINDS[kind]
    try:
        words = [word for text in rules.utterances(lines) for word in rules.words(text)]
    except ValueError as error:
        assert "expected" in str(error)
    else:
        assert all(word and not word.isspace() and len(word.split()) == 1 for word in words)
