"""HyperPyYAML, the YAML of SpeechBrain: its tags (`!new:CLASS`, `!ref <NAME>`) are read, and none of them is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rescore.cli.recipe import read_yaml


def read_hyperparams(path: Path, what: str = "options") -> dict[str, Any]:
    """The values of a YAML file of `what` by name, `Tagged` where they have a tag.

    Aliases, of which SpeechBrain's own copies are full, are one object each.

    Raises:
      UsageError: no such file, not YAML, or not of names and values.
    """
    return read_yaml(path, what, _values)


def _values(root: Any) -> Any:
    import yaml

    from lm_zoo.icefall.speechbrain_lm import Tagged

    scalars, made = yaml.constructor.SafeConstructor(), dict[int, Any]()

    def value(node: Any) -> Any:
        if id(node) in made:
            return made[id(node)]
        is_tagged = node.tag.startswith("!")
        inside: Any = {} if node.id == "mapping" else []
        if node.id == "scalar":
            inside = node.value if is_tagged else scalars.construct_object(node)
        made[id(node)] = Tagged(node.tag, inside) if is_tagged else inside
        if node.id == "mapping":
            inside.update((str(name.value), value(item)) for name, item in node.value)
        elif node.id == "sequence":
            inside.extend(map(value, node.value))
        return made[id(node)]

    return {} if root is None else value(root)
