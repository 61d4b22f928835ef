"""The look of the audit's report: one style sheet, nothing loaded from elsewhere."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { --ink: #1d2733; --muted: #6b7885; --line: #e4e8ec; --paper: #ffffff; --ground: #f4f6f8;
  --pass: #14804a; --fail: #b3261e; --unverifiable: #94650a; --before: #0f5f38; --done: #35a56d;
  --pending: #cfe0f5; --bad: #c8372d; --mono: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  --fail-ink: var(--fail); --unverifiable-ink: var(--unverifiable); --pass-ink: var(--pass); --link: #2f6db5;
  --fail-ground: #fbe4e2; --unverifiable-ground: #f9edd0; --pass-ground: #dcf3e6; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --muted: #9dabb8; --line: #2d3741;
  --paper: #182028; --ground: #0f151b; --pending: #33475e; --link: #7fb2ec; --fail-ink: #ff9b92;
  --unverifiable-ink: #f0c56c; --pass-ink: #7fdcac; --fail-ground: #4a1d1a; --unverifiable-ground: #45350d;
  --pass-ground: #123b27; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", Helvetica, Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 0 24px 48px; }
header { color: #fff; padding: 40px 0 64px; }
header > div { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header.PASS { background: linear-gradient(120deg, #0d5c35, var(--pass) 60%, #2a9d65); }
header.FAIL { background: linear-gradient(120deg, #7d1711, var(--fail) 60%, #d4493f); }
header.UNVERIFIABLE { background: linear-gradient(120deg, #67470a, var(--unverifiable) 60%, #bb861f); }
.about { font-size: 14px; opacity: .88; display: flex; justify-content: space-between; flex-wrap: wrap;
  gap: 4px 24px; }
.answer { display: flex; align-items: center; gap: 22px; margin-top: 18px; }
.answer svg { width: 76px; height: 76px; flex: none; }
h1 { font-size: 44px; line-height: 1.1; margin: 0; letter-spacing: .5px; }
.answer p { margin: 6px 0 0; font-size: 18px; max-width: 800px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 14px;
  margin-top: -36px; }
.tile, section { background: var(--paper); border-radius: 12px; box-shadow: 0 1px 3px #1d273322; }
.tile { padding: 16px 18px; }
.tile b { display: block; font-size: 26px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--muted); font-size: 13px; }
section { padding: 22px 24px; margin-top: 18px; }
h2 { font-size: 18px; margin: 0 0 4px; }
section > p { margin: 0 0 14px; color: var(--muted); font-size: 14px; }
section svg { width: 100%; height: auto; display: block; }
/* Plots are drawn in ink on white. */
@media (prefers-color-scheme: dark) { section svg { background: #fff; border-radius: 8px; } }
.strip { display: grid; grid-template-columns: minmax(120px, 220px) 1fr 190px; gap: 14px; align-items: center;
  padding: 4px 0; font-size: 13px; }
.strip .name { font-family: var(--mono); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.strip .note { color: var(--muted); text-align: right; font-variant-numeric: tabular-nums; }
.strip .note.FAIL { color: var(--fail-ink); font-weight: 600; }
.strip .note.UNVERIFIABLE { color: var(--unverifiable-ink); font-weight: 600; }
.bar { position: relative; height: 18px; border-radius: 5px; overflow: hidden; background: var(--pending); }
.bar i { position: absolute; top: 0; bottom: 0; }
.bar .done { background: var(--done); } .bar .before { background: var(--before); }
.bar .open { background: repeating-linear-gradient(135deg, #e9cf96 0 5px, #f7ebcf 5px 10px); }
.bar .bad { background: var(--bad); width: 3px; margin-left: -1px; box-shadow: 0 0 0 1px #fff; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 20px; font-size: 13px; color: var(--muted);
  margin-bottom: 10px; }
.legend i { display: inline-block; width: 22px; height: 12px; border-radius: 3px; margin-right: 6px;
  vertical-align: -1px; }
.legend .done { background: var(--done); } .legend .before { background: var(--before); }
.legend .pending { background: var(--pending); } .legend .bad { background: var(--bad); width: 4px; }
.legend .open { background: repeating-linear-gradient(135deg, #e9cf96 0 5px, #f7ebcf 5px 10px); }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--muted); font-weight: 600; }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.code, td .code { font-family: var(--mono); font-size: 12.5px; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; padding-right: 22px; }
.pill { display: inline-block; border-radius: 99px; padding: 1px 10px; font-size: 12px; font-weight: 600;
  background: var(--fail-ground); color: var(--fail-ink); }
.pill.UNVERIFIABLE { background: var(--unverifiable-ground); color: var(--unverifiable-ink); }
.pill.PASS { background: var(--pass-ground); color: var(--pass-ink); }
.suites { columns: 2 380px; column-gap: 36px; } .suites > div { break-inside: avoid; padding-bottom: 8px; }
.suites h3 { font-size: 12px; letter-spacing: .6px; text-transform: uppercase; color: var(--muted);
  margin: 0 0 4px; }
.rule { display: flex; gap: 10px; padding: 3px 0; font-size: 14px; }
.rule > b { width: 20px; height: 20px; flex: none; border-radius: 50%; color: #fff; font-size: 12px;
  line-height: 20px; text-align: center; margin-top: 1px; }
.rule > b.PASS { background: var(--pass); } .rule > b.FAIL { background: var(--fail); }
.rule > b.UNVERIFIABLE { background: var(--unverifiable); }
.rule small { color: var(--muted); }
details { font-size: 12.5px; } summary { cursor: pointer; color: var(--muted); }
details li { font-family: var(--mono); overflow-wrap: anywhere; }
footer { color: var(--muted); font-size: 13px; margin-top: 22px; }
footer code { font-family: var(--mono); }
a { color: var(--link); }
header.plain { padding: 32px 0 30px; } header.plain h1 { font-size: 34px; } main.plain { padding-top: 6px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin-top: 16px; font-size: 14px; }
.wide { overflow-x: auto; } table.numbers td, table.numbers th { font-family: var(--mono); font-size: 12.5px;
  white-space: nowrap; padding-right: 20px; }
@media (max-width: 720px) { .strip { grid-template-columns: 110px 1fr; } .strip .note { display: none; }
  h1 { font-size: 32px; } }
@media print { body { background: #fff; } .tile, section { box-shadow: none; border: 1px solid var(--line); }
  section { break-inside: avoid; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

_RING: Final = '<circle cx="38" cy="38" r="34" fill="none" stroke="#fff" stroke-width="5" opacity=".55"/>'
_LINE: Final = 'fill="none" stroke="#fff" stroke-width="7" stroke-linecap="round" stroke-linejoin="round"'
_PATHS: Final = {
    "PASS": "M22 39 L34 51 L55 27",
    "FAIL": "M26 26 L50 50 M50 26 L26 50",
    "UNVERIFIABLE": "M28 30 Q28 21 38 21 Q48 21 48 30 Q48 36 38 40 L38 43 M38 55 L38 55.1",
}


def sign(verdict: str) -> str:
    """Return the sign of a verdict as SVG."""
    return f'<svg viewBox="0 0 76 76" aria-hidden="true">{_RING}<path d="{_PATHS[verdict]}" {_LINE}/></svg>'
