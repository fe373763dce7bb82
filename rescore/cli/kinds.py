"""The argument KIND of `rescore train-lm`, and what its settings are, for the help."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import click

_FIELD = re.compile(r"^ +(\w+): [^=]+=.*?  # (.*)$", re.MULTILINE)


class NeuralKind(click.ParamType):
    """A kind of neural LM; an unknown one is refused before anything else is looked at."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from lm_zoo.registry import neural_class

        neural_class(value)
        return str(value)


class TrainingCommand(click.Command):
    """A command whose help has the settings of the training, and those of a kind that is named beside `-h`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if {"-h", "--help"} & {*args}:
            ctx.meta["arguments"] = list(args)  # before the help option is found, which ends it all
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from lm_zoo.registry import KINDS, neural_class
        from lm_zoo.training.config import TrainConfig

        super().format_options(ctx, formatter)
        kinds = {name: text for name, (_, _, text) in KINDS.items() if name != "ngram"}
        given = next((word for word in ctx.meta.get("arguments", ()) if word in kinds), None)
        with formatter.section("KIND is one of"):
            formatter.write_dl(list(kinds.items()))
        if given is None:
            with formatter.section("Settings of a kind, --set NAME=VALUE"):
                formatter.write_dl([(f"{ctx.command_path} KIND -h", "shows them")])
        else:
            with formatter.section(f"Settings of a {given}, --set NAME=VALUE"):
                formatter.write_dl(settings_of_class(neural_class(given).Config))
        with formatter.section("Settings of the training, --train NAME=VALUE"):
            formatter.write_dl(settings_of_class(TrainConfig))


def settings_of_class(cls: type[Any]) -> list[tuple[str, str]]:
    """`name=default (type)` and what it is, of the fields of a dataclass; that is the comment behind each."""
    said: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        said |= dict(_FIELD.findall(inspect.getsource(base)))
    return [
        (f"{field.name}={_shown(field.default)} ({field.type})", said.get(field.name, ""))
        for field in dataclasses.fields(cls)
    ]


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
