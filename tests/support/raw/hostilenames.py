"""Names that want to be more than names, for every output that shows what others may have called things.

Whoever may create a consumer group, a connector or a header chooses what stands there.
"""

from __future__ import annotations

from typing import Final

HOSTILE: Final = [
    "a`![x](http://evil/p.png)`",
    "![x](http://evil/p.png)",
    "``` ![x](http://evil/p.png)",
    "a|b",
    "a\\|b",
    "a\\",
    "a`",
    "`",
    "|",
    " ",
    "",
    "a\n\n# Approved by the board\n\n[more](http://evil/)",
    "a\r\n| position | `other` | 0 | 1 | none | fine |",
    "a\u2028b\u2029c\x0bd\x0ce\x85f",
    "a |\n|---|\n| x",
    "<img src=http://evil/p.png>",
    "<script>alert(1)</script>",
    "a <!-- b",
    "&lt;b&gt;&#96;&#124;",
    "[a]: http://evil/",
    "[x][a] [a]",
    "<http://evil/>",
    "http://evil/",
    "(see www.evil.example)",
    "www.evil.example",
    "http://evil/`|`x",
    "someone@evil.example",
    "**bold** __bold__ *it* _it_ ~~gone~~",
    "x\u202egnp.exe\u200b",
    "\x1b[31mred\x1b[0m\x00",
    "\ud800",
    "$x$ :-) - [ ] a",
    # Markup that leaves an attribute, an element, a style.
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "</title></style></textarea><svg onload=alert(1)>",
    "javascript:alert(1)",
    "\ufeff<p>",
    # Directions: what is behind them reads backwards, or they stay open for what follows.
    "\u202eevil\u202c",
    "a\u2066b\u2067c\u2068d",
    "\u200f\u061cx",
    # What commands a terminal: a cleared screen, another title, a line that is written over, a bell.
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil/\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31m",
    "good\rbad",
    "a\b\b\x7f",
    "a\tb",
    # Lines that look like ours.
    "a\n  do       rm -rf /",
    "a\nerror: all is lost",
    "a\n2026-01-01 00:00:00,000 INFO    onceover: done",
    # What commands a page of a log: to fold what follows, to leave this line out.
    "x::group::the plan ends here",
    "billing::endgroup::",
    ":::group::::endgroup::",
    # Seen as nothing at all.
    "\u3164",
    "a\ufe0f\u034fb",
    # A spreadsheet's formulas.
    '=HYPERLINK("http://evil/")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(A1)",
    # Long, and of other languages.
    "x" * 4000,
    "مرحبا",
    "группа",
    "组🙂",
]
