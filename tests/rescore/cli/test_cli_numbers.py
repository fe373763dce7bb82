"""Numbers of options: `nan` is in no range, and an infinity is no number; values of settings."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from asr.cli.main import cli as asr
from rescore.cli.main import cli as rescore
from rescore.cli.numbers import POSITIVE, Number
from rescore.cli.settings import parse_settings
from tests.rescore.cli.test_cli_json import leaves


@pytest.mark.parametrize("group", [rescore, asr], ids=["rescore", "asr"])
def test_every_real_number_is_a_finite_one(group: click.Group) -> None:
    for name, command in leaves(group):
        for option in command.params:
            kinds = option.type.types if isinstance(option.type, click.Tuple) else [option.type]
            for kind in kinds:
                bare = isinstance(kind, (click.FloatRange, type(click.FLOAT))) and not isinstance(kind, Number)
                assert not bare, (name, option.opts)


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "1e999"])
def test_what_is_not_finite_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"found '{text}', expected a finite number"):
        Number().convert(text, None, None)


def test_ranges_are_click_s() -> None:
    assert POSITIVE.convert("1e-3", None, None) == 0.001 and Number(0, 1).convert("0", None, None) == 0.0
    assert "x<=" not in CliRunner().invoke(rescore, ["lattice", "best-path", "--help"]).output
    with pytest.raises(click.BadParameter, match=r"0\.0 is not in the range x>0"):
        POSITIVE.convert("0", None, None)


@pytest.mark.parametrize("words", ["tune --seed -1", "run --seed -1", "compare --seed -1", "compare --samples 0"])
def test_seeds_and_counts_have_ranges(words: str) -> None:
    result = CliRunner().invoke(rescore, words.split())
    assert result.exit_code == 2 and "is not in the range" in result.output


def test_settings_are_true_or_false_as_in_json_or_in_python() -> None:
    given = parse_settings(("carry=True", "tied=False", "join=true", "wandb=Truth", "dim=512", "blocks=1-2"))
    expected = {"carry": True, "tied": False, "join": True, "wandb": "Truth", "dim": 512, "blocks": "1-2"}
    assert given == expected
