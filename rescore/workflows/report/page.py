"""The HTML of a report: one file that needs nothing else, with everything that comes from the data escaped."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rescore import __version__
from rescore.console import remark
from rescore.errors import FormatError
from rescore.files import read_kaldi_text
from rescore.weights import FIRST, MAP, MBR, decision_of
from rescore.workflows.compare import p_text
from rescore.workflows.report.analyses import (
    by_frequency,
    by_length,
    by_n,
    cautions,
    confusions,
    over_scale,
    verdict,
)
from rescore.workflows.report.charts import Series, bar_chart, line_chart
from rescore.workflows.report.gather import Gathered, identities
from rescore.workflows.run import REPORT_STEP

CHUNK = 100  # utterances whose lists are packed together
CONFUSIONS = 15  # of each kind
NO_WORD = "\u2013"
DECIDED = {
    MAP: "best total first",
    MBR: "fewest expected errors first (minimum Bayes risk)",
    FIRST: "as they came, which is what the weights keep,",
}
# Of `--audio`, what a page cannot play.
NOT_PLAYED = {r"\|$": "a pipe", r":\d+(\[.*\])?$": "a place in an archive", r"^\w+://": "an address"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; media-src 'self' file: data:"


def page(run: Gathered, lists: Iterable[dict[str, Any]], audio: Mapping[str, str]) -> str:
    """The whole page.

    Args:
      lists: one an utterance of `run.found`, see `rescore.workflows.report.gather.shown_lists`.
      audio: utterance id -> where its audio is, from the page.
    """
    title = f"rescore report: {run.folder.name}"
    assets = files("rescore.workflows.report")
    body = [
        _headline(run),
        _scales(run),
        _groups(run),
        _words(run),
        _utterances(run),
        _how(run),
        _json_script("data", _data(run, audio)),
        *_chunks(lists),
        f"<script>{(assets / 'page.js').read_text(encoding='utf-8')}</script>",
    ]
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{(assets / 'page.css').read_text(encoding='utf-8')}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><button id="theme" type="button">light / dark</button></header><main>'
    )
    return f"{head}{''.join(body)}</main></body></html>\n"


# -- sections ------------------------------------------------------------------------------------------------


def _headline(run: Gathered) -> str:
    rows = {row["name"]: row for row in run.table["rows"]}
    base = rows[run.baseline]
    heads = ["system", f"{run.rate} %", "95 % interval", f"p against {run.baseline}", "oracle %", "what it means"]
    lines = []
    for name, row in rows.items():
        said = verdict(row, base) if name != run.systems[0] else "the lists as they came"
        low, high = row["ci"]
        oracle = "" if row["oracle_wer"] is None else f"{row['oracle_wer']:.2f}"
        cells = [
            name,
            f"{row['wer']:.2f}",
            f"{low:.2f} to {high:.2f}",
            p_text(row["p_values"][base["name"]]),
            oracle,
            said,
        ]
        kind = "helps" if said.startswith("helps") else "hurts" if said.startswith("hurts") else ""
        chosen = ' class="chosen"' if name == run.made["chosen"] else ""
        texts = [f"<td{_class(place, kind)}>{escape(cell)}</td>" for place, cell in enumerate(cells)]
        lines.append(f"<tr{chosen}>{''.join(texts)}</tr>")
    how, chosen = run.table["how"], rows[run.chosen]
    lead = f"{run.chosen}: {verdict(chosen, base)}." if run.chosen != run.baseline else "No LM was tried."
    notes = "".join(f"<li>{escape(note)}</li>" for note in cautions(run.table, run.baseline, _contents(run)))
    heads_html = "".join(f"<th{_class(place, '')}>{escape(head)}</th>" for place, head in enumerate(heads))
    return (
        f'<p class="lead">{escape(lead)}</p><p class="soft">{how["utterances"]} utterances, {how["words"]} {run.unit}s '
        f"of test. In bold: decided for on dev, where alone scales were tuned. Intervals: {escape(how['interval'])}. "
        f"p: {escape(how['p_value'].partition(';')[0])}. <code>{escape(how['signature'])}</code></p>"
        f'<div class="scroll"><table id="systems"><thead><tr>{heads_html}</tr></thead><tbody>'
        f"{''.join(lines)}</tbody></table></div><ul>{notes}</ul>"
    )


def _class(place: int, kind: str) -> str:
    """Of the cell at a place of the table of systems: numbers to the right, the last one coloured."""
    return ' class="n"' if 1 <= place <= 4 else f' class="{kind}"' if place == 5 and kind else ""


def _contents(run: Gathered) -> dict[str, dict[str, Any]]:
    return {name: {"scales": weights.scales, "info": weights.info} for name, weights in run.weights.items()}


def _scales(run: Gathered) -> str:
    weights = run.weights[run.chosen]
    figures = []
    for name, at in weights.scales.items():
        if not at and name != "words":
            continue
        series = [
            Series("dev (tuned on)", over_scale(run.dev_table, weights, name), 1),
            Series("test (not looked at)", over_scale(run.test_table, weights, name), 2),
        ]
        chart = line_chart(series, f"scale of {name}", f"{run.rate} %", mark=at)
        figures.append(_figure(f"{name} = {at:g}", chart, ["scale", "dev %", "test %"], _joined(series)))
    return (
        f"<h2>{run.rate} against each scale</h2><p>Of {escape(run.chosen)}, the other scales held; the dotted line is "
        "the tuned value. Where the two lines have their valleys at one place, what was tuned on dev suits test.</p>"
        f'<div class="charts">{"".join(figures)}</div>'
    )


def _joined(series: Sequence[Series]) -> list[list[str]]:
    return [
        [f"{points[0][0]:.4g}", *(f"{rate:.2f}" for _, rate in points)]
        for points in zip(*(each.points for each in series), strict=True)
    ]


def _groups(run: Gathered) -> str:
    shown = list(dict.fromkeys([run.systems[0], run.baseline, run.chosen]))
    places, counted = [run.systems.index(name) for name in shown], f"{run.unit}s"
    figures = []
    for title, unit, rows in (
        ("by length of the reference", "utterances", by_length(run.found, len(run.systems))),
        (f"by frequency of the {run.unit}", counted, by_frequency(run.found, len(run.systems), run.word_counts())),
    ):
        groups = [(name, [rates[place] for place in places]) for name, _, rates in rows]
        what = f"{run.rate} %" if unit == "utterances" else f"reference {counted} wrong, %"
        x_name = f"reference {counted}" if unit == "utterances" else "occurrences in all references"
        cells = [[name, str(count), *(f"{rates[place]:.2f}" for place in places)] for name, count, rates in rows]
        figures.append(
            _figure(f"{run.rate} {title}", bar_chart(groups, shown, x_name, what), [x_name, unit, *shown], cells)
        )
    points = by_n(run.test_table, run.weights[run.chosen])
    series = [
        Series(run.chosen, [(n, rate) for n, rate, _ in points], 2),
        Series("oracle", [(n, rate) for n, _, rate in points], 3),
    ]
    cells = [[str(n), f"{rate:.2f}", f"{oracle:.2f}"] for n, rate, oracle in points]
    chart = line_chart(series, "N, the first of each list as it came", f"{run.rate} %", log=True)
    figures.append(_figure(f"{run.rate} by N", chart, ["N", run.chosen, "oracle"], cells))
    return f'<h2>Where the errors are</h2><div class="charts">{"".join(figures)}</div>'


def _figure(title: str, chart: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{chart}"
        f"<details><summary>numbers</summary>{_table(heads, rows)}</details></figure>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _words(run: Gathered) -> str:
    rows = confusions(run.found, run.systems.index(run.baseline), run.systems.index(run.chosen))
    fixed = [row for row in rows if row[3] < row[2]][:CONFUSIONS]
    broken = [row for row in rows[::-1] if row[3] > row[2]][:CONFUSIONS]
    heads = ["reference", "recognised", run.baseline, run.chosen]
    tables = []
    for title, part in (("most fixed", fixed), ("most broken", broken)):
        cells = [[one or NO_WORD, other or NO_WORD, str(b), str(a)] for one, other, b, a in part]
        tables.append(f"<div><h3>{title}</h3>{_table(heads, cells)}</div>")
    return (
        f"<h2>{run.unit.capitalize()}s fixed and broken</h2><p>How often each error occurs with "
        f"{escape(run.baseline)} and with {escape(run.chosen)}; {NO_WORD} on the left is an inserted "
        f"{run.unit}, on the right a deleted one.</p>"
        f'<div class="charts">{"".join(tables)}</div>'
    )


def _utterances(run: Gathered) -> str:
    def options(chosen: str) -> str:
        return "".join(
            f'<option value="{place}"{" selected" if name == chosen else ""}>{escape(name)}</option>'
            for place, name in enumerate(run.systems)
        )

    orders = {
        "fixed": "most fixed first",
        "broken": "most broken first",
        "before": "most errors before",
        "after": "most errors after",
        "longest": "longest first",
        "id": "by id",
    }
    kinds = {"changed": "changed", "fixed": "fixed", "broken": "broken", "all": "all"}
    sort, kind = (
        "".join(f'<option value="{value}">{text}</option>' for value, text in table.items())
        for table in (orders, kinds)
    )
    return (
        '<h2 id="utterances">Utterances</h2><p class="soft">Keys: / searches, j and k go down and up, Enter opens the '
        f"list, n and p turn pages. Underlined: substituted; dotted: inserted; {NO_WORD}: deleted; shaded green: fixed."
        "</p>"
        '<div class="controls"><label>search <input id="search" type="search" placeholder="id or words"></label>'
        f'<label>before <select id="before">{options(run.baseline)}</select></label>'
        f'<label>after <select id="after">{options(run.chosen)}</select></label>'
        f'<label>show <select id="kind">{kind}</select></label><label>sort <select id="sort">{sort}</select></label>'
        '<span id="count" role="status"></span></div><ol id="list"></ol>'
        '<div class="pages"><button id="previous" type="button">previous</button><span id="page"></span>'
        '<button id="next" type="button">next</button></div>'
    )


def _how(run: Gathered) -> str:
    steps = [step["command"] for name, step in run.made["steps"].items() if name != REPORT_STEP]
    commands = "".join(f"<li><code>{escape(command)}</code></li>" for command in steps)
    hashes = _table(
        ["file", "sha256"], [[each["file"], each["sha256"]] for each in identities(run.folder, run.systems)]
    )
    scales = [
        [
            name,
            ", ".join(f"{column} {scale:g}" for column, scale in weights.scales.items()),
            str(weights.info.get("seed", "")),
        ]
        for name, weights in run.weights.items()
    ]
    normalised = f"normalised by {run.made['normalise']}" if run.made["normalise"] != "none" else "as it is"
    return (
        f"<h2>How it was made</h2><p>rescore {escape(run.made['version'])}, this page by {__version__}; dev "
        f"{escape(run.made['dev'])}, test {escape(run.made['test'])}; text {escape(normalised)}.</p><ol>{commands}</ol>"
        f"<h3>Scales</h3>{_table(['system', 'scales', 'seed'], scales)}"
        f'<h3>Files</h3><div class="hash">{hashes}</div>'
    )


# -- data ----------------------------------------------------------------------------------------------------


def _data(run: Gathered, audio: Mapping[str, str]) -> dict[str, Any]:
    utts = [
        [
            each.utt_id,
            " ".join(each.ref),
            [
                [" ".join(words), ops, counts.errors]
                for words, ops, counts in zip(each.texts, each.ops, each.counts, strict=True)
            ],
            each.which,
            audio.get(each.utt_id),
        ]
        for each in run.found
    ]
    columns = run.test_table.names
    order = DECIDED[decision_of(run.weights[run.chosen])[0]]
    about = {"systems": run.systems, "chosen": run.chosen, "order": order, "columns": columns, "unit": run.unit}
    return {**about, "chunk": CHUNK, "utts": utts}


def _json_script(name: str, value: Any) -> str:
    """JSON inside a page: `<` is written as an escape, so that no text in it ends the script."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f'<script type="application/json" id="{name}">{_inert(text)}</script>'


def _inert(text: str) -> str:
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _chunks(lists: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The lists, packed, so many at a time; a browser unpacks those that are asked for."""
    stream, number = iter(lists), 0
    while part := list(islice(stream, CHUNK)):
        packed = zlib.compress(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode(), 6)
        yield f'<script type="text/plain" id="chunk-{number}">{base64.b64encode(packed).decode()}</script>'
        number += 1


def audio_links(path: Path, page_folder: Path) -> dict[str, str]:
    """Utterance id -> link from the page's folder, of a file of lines `utt-id FILE`.

    Raises:
      FormatError: a pipe or a place in an archive, as in Kaldi's wav.scp, or an address, none of which the page plays;
        else as `read_kaldi_text`.
    """
    links = {utt_id: " ".join(words) for utt_id, words in read_kaldi_text(path).items()}
    for utt_id, file in links.items():
        if found := next((what for form, what in NOT_PLAYED.items() if re.search(form, file)), None):
            raise FormatError(path, f"utterance '{utt_id}' has {found}, expected a file that a browser can play")
    if missing := [file for file in links.values() if not os.path.exists(file)]:
        what = f"{len(missing)} of {len(links)} files are not there, such as {missing[0]}"
        remark(f"{path}: {what}; the page plays the others")
    return {utt_id: quote(os.path.relpath(file, page_folder)) for utt_id, file in links.items()}
