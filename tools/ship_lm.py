"""Makes the folder that is shipped of a training run: float16 weights, word perplexity measured with those weights.

Example: python tools/ship_lm.py exp/transfornn lm_zoo/pretrained/transfornn --text books/test.txt.xz --name books/test
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lm_zoo.inference.perplexity import score_text
from lm_zoo.model_folder import CONFIG
from lm_zoo.registry import load, read_config, save_folder
from lm_zoo.text.sentences import read_sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", required=True, help="Test text.")
    parser.add_argument("--name", required=True, help="What the test text is called.")
    parser.add_argument("--licence", default="Apache-2.0")
    parser.add_argument("--data", action="append", default=[], help="Name of a training text; may be repeated.")
    args = parser.parse_args()

    config = read_config(args.run)
    kept = {name: config[name] for name in ("data", "training", "trained", "started_from") if name in config}
    kept["data"] = args.data or kept.get("data", [])
    lm = load(str(args.run))
    save_folder(args.out, lm, config["kind"], kept, half=True)
    shipped = load(str(args.out))
    result = score_text([shipped], read_sentences(args.text), args.name).perplexity(0)
    kept |= {"word_ppl": round(result.per_word, 2), "word_ppl_text": args.name, "licence": args.licence}
    save_folder(args.out, lm, config["kind"], kept, half=True)
    print(json.dumps(json.loads((args.out / CONFIG).read_text()), indent=2))


if __name__ == "__main__":
    main()
