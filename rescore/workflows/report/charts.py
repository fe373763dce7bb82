"""Small charts as SVG: lines and bars, told apart by colour, dash and label; the page's style has the colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 260
MOST_TICKS = 6  # steps between them
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 44
DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Series:
    """A line: points by x; `style` chooses colour and dash."""

    name: str
    points: Sequence[tuple[float, float]]
    style: int


def line_chart(series: Sequence[Series], x_name: str, y_name: str, mark: float | None = None, log: bool = False) -> str:
    """Lines over x; a vertical line at `mark`; `log` for an x axis of powers."""
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    place = math.log if log else float
    x_low, x_high = place(min(xs)), place(max(xs))
    y_ticks = ticks(min(ys), max(ys))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (place(x) - x_low) / ((x_high - x_low) or 1)
        up = (y - y_ticks[0]) / ((y_ticks[-1] - y_ticks[0]) or 1)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    x_ticks = (
        [x for x, _ in series[0].points] if log else [x for x in ticks(min(xs), max(xs)) if min(xs) <= x <= max(xs)]
    )
    parts = [_grid(at(min(xs), y)[1], f"{y:g}") for y in y_ticks]
    parts += [_tick(at(x, y_ticks[0])[0], f"{x:g}") for x in x_ticks]
    if mark is not None:
        x = at(mark, 0)[0]
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    for each in series:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in each.points))
        parts.append(
            f'<polyline class="line c{each.style}" points="{path}" stroke-dasharray="{DASHES[each.style % 4]}"/>'
        )
    return _svg(parts, x_name, y_name, [(each.name, each.style) for each in series])


def bar_chart(groups: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], x_name: str, y_name: str) -> str:
    """Bars of each series side by side, a group a label."""
    y_ticks = ticks(0.0, max(max(values) for _, values in groups))
    wide = (WIDTH - LEFT - RIGHT) / len(groups)
    parts = [_grid(_up(y, y_ticks[-1]), f"{y:g}") for y in y_ticks]
    for k, (name, values) in enumerate(groups):
        parts.append(_tick(LEFT + (k + 0.5) * wide, name))
        bar = 0.8 * wide / len(values)
        for s, value in enumerate(values):
            x, y = LEFT + (k + 0.1) * wide + s * bar, _up(value, y_ticks[-1])
            said = f"<title>{escape(f'{names[s]}, {name}: {value:.2f}')}</title>"
            size = f'x="{x:.1f}" y="{y:.1f}" width="{bar - 1:.1f}" height="{HEIGHT - BOTTOM - y:.1f}"'
            parts.append(f'<rect class="bar c{s}" {size}>{said}</rect>')
    return _svg(parts, x_name, y_name, [(name, s) for s, name in enumerate(names)], _SWATCH)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` or below to `high` or above."""
    span = (high - low) or max(abs(high), 1.0)
    step = 10 ** math.floor(math.log10(span / MOST_TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= MOST_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]


def _up(value: float, highest: float) -> float:
    return HEIGHT - BOTTOM - value / (highest or 1) * (HEIGHT - TOP - BOTTOM)


def _grid(y: float, text: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _tick(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(text)}</text>'


_STROKE = '<line class="line c{0}" x1="0" x2="26" y1="6" y2="6" stroke-dasharray="{1}"/>'
_SWATCH = '<rect class="bar c{0}" x="6" y="0" width="12" height="12"/>'


def _svg(parts: Sequence[str], x_name: str, y_name: str, names: Sequence[tuple[str, int]], key: str = _STROKE) -> str:
    axes = (
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_name)}</text>'
        f'<text transform="translate(13 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>'
    )
    keys = "".join(
        f'<li><svg width="26" height="12" aria-hidden="true">{key.format(style, DASHES[style % 4])}</svg>'
        f"{escape(name)}</li>"
        for name, style in names
    )
    said = escape(f"{y_name} against {x_name}: {', '.join(name for name, _ in names)}")
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">{"".join(parts)}{axes}</svg>'
    return f'{drawn}<ul class="keys">{keys}</ul>'
