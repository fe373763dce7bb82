"""The Python entries of recipes: a command of `rescore` or `asr` with the defaults of a YAML file.

A whole `train.py` of a recipe is

    from asr.cli.train import command
    from rescore.cli.recipe import main

    if __name__ == "__main__":
        main(command, "conf/train.yaml")
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lm_zoo.reading import DAMAGED, read_text
from rescore.cli.door import watched
from rescore.errors import UsageError

DEEPEST = 20  # levels of lists and mappings in a YAML file of options


def main(command: click.Command, conf: str) -> None:
    """Runs the command with the defaults of `conf`, a YAML file beside the script, or of `--conf FILE`.

    Errors are those of every command (`rescore.cli.door`).
    """
    script = Path(sys.argv[0])
    watched(script.name, lambda: _run(command, script, script.parent / conf, sys.argv[1:]))


def _run(command: click.Command, script: Path, path: Path, arguments: list[str]) -> None:
    if arguments[:1] == ["--conf"]:
        if len(arguments) < 2:
            raise UsageError("--conf needs a YAML file")
        path, arguments = Path(arguments[1]), arguments[2:]
    defaults, given = read_defaults(path, command)
    if {"-h", "--help"} & set(arguments):
        click.echo(f"Defaults: {path}; take another file by --conf FILE, as the first option.\n")
    command.main(given + arguments, prog_name=script.name, default_map=defaults, help_option_names=["-h", "--help"])


def read_defaults(path: Path, command: click.Command) -> tuple[dict[str, Any], list[str]]:
    """Option values from YAML `option-name: value`; names as on the command line, without the dashes before them.

    An option that may be repeated has a list, or, where it takes NAME=VALUE, a mapping.  `base: FILE` takes what the
    file does not say from another one, whose path is from this file's folder.

    Returns:
      the defaults, and the arguments of mappings: put before those of the command line, they hold for every NAME that
      is not given there again.
    Raises:
      UsageError: no such file, not YAML, or a name that the command has not.
    """
    names = {name.lstrip("-"): item for item in command.params for name in item.opts}
    defaults: dict[str, Any] = {}
    given: list[str] = []
    for name, value in _read(path).items():
        if name not in names:
            known = ", ".join(sorted(names))
            raise UsageError(f"{path}: there is no option '{name}'; there are: {known}")
        item = names[name]
        if isinstance(value, dict):
            given += [part for key, each in value.items() for part in (f"--{name}", f"{key}={_text(each)}")]
            continue
        if isinstance(item, click.Option) and item.multiple and not isinstance(value, list):
            value = [value]
        defaults[item.name or name] = value
    return defaults, given


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a YAML file and of those that it is based on; a mapping adds to that of the base.

    Args:
      above: the files that are based on this one.
    """
    values = read_yaml(path)
    if "base" not in values:
        return values
    base = values.pop("base")
    if not isinstance(base, str) or path.resolve() in above:
        raise UsageError(f"{path}: its base is {base!r}, expected the name of another file that is not based on this")
    merged = _read(path.parent / base, (*above, path.resolve()))
    for name, value in values.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if both else value
    return merged


def read_yaml(path: Path, what: str = "options", values_of: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """The values of one YAML file of `what`; aliases are refused, as a few of them make a mapping of any size.

    So is a name that a mapping has twice, of which PyYAML takes the last.

    Args:
      values_of: makes the values of the file's node (None: an empty file), each node once; aliases are taken then.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, for ESPnet's long lists of words
    try:
        text = read_text(path)
        depth = 0
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) and values_of is None:
                raise ValueError("an alias (*NAME), which is not read; write the value out")
            if depth > DEEPEST:
                raise ValueError("nested too deeply")
        root = yaml.compose(text, loader)
        _check_named_once(root, set())
        if values_of is None:
            values = yaml.load(text, loader) or {}
            repr(values)  # a ValueError where a number has thousands of digits
        else:
            values = values_of(root)
    except (OSError, ValueError, OverflowError, *DAMAGED, yaml.YAMLError) as error:
        raise UsageError(f"{path}: expected a YAML file of {what} ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: found a {type(values).__name__}, expected lines such as 'max-duration: 200'")
    return values


def _check_named_once(node: Any, seen: set[int]) -> None:
    """Raises ValueError where a node of YAML (None: an empty file) is or has a mapping with a name twice."""
    if node is None or node.id == "scalar" or id(node) in seen:
        return
    seen.add(id(node))
    names = [str(name.value) for name, _ in node.value] if node.id == "mapping" else []
    if len(set(names)) < len(names):
        raise ValueError(f"'{Counter(names).most_common(1)[0][0]}' is given more than once")
    for item in node.value:
        _check_named_once(item[1] if names else item, seen)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
