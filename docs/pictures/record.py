#!/usr/bin/env python3
"""Runs commands in a terminal of 100 columns and writes what is seen as an SVG picture.

usage: record.py OUT.svg LINES COMMAND…

Each command is shown behind a prompt, then what it prints, with its colours, at most LINES lines of it. Python's
standard library is enough. The pictures of the README are made so; docs/pictures/README.md has the commands.
"""
import html
import os
import pty
import re
import subprocess
import sys

COLUMNS = 100
WIDTH, HEIGHT = 8.4, 19
# A space that no viewer drops.
NO_BREAK = "\u00a0"
# The colours of SGR 30 to 37 and 90 to 97 on a dark ground.
COLOURS = ["#8b949e", "#ff7b72", "#56c271", "#e3b341", "#6ea8ff", "#c493ff", "#39c5cf", "#e4e8ed"]


def seen(command):
    """What the command prints on a terminal."""
    parent, child = pty.openpty()
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", "60"], stdin=child, check=True)
    environment = dict(os.environ, TERM="xterm-256color", COLUMNS=str(COLUMNS))
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(["bash", "-c", command], stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    text = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    process.wait()
    return text.decode(errors="replace").replace("\r\n", "\n")


def spans(line):
    """The parts of a line, each with its style."""
    style, out = {}, []
    # What a progress line wrote and took back is not seen.
    line = re.sub(r"\x1b\[[0-9;]*[A-HJKfsu]|\x1b\[\?[0-9]+[hl]", "", line.split("\r")[-1])
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not code:
            if part:
                out.append((part, dict(style)))
            continue
        for number in [int(n or 0) for n in code[1].split(";")]:
            if number == 0:
                style = {}
            elif number == 1:
                style["font-weight"] = "bold"
            elif number == 2:
                style["fill"] = "#98a3b0"
            elif 30 <= number <= 37 or 90 <= number <= 97:
                style["fill"] = COLOURS[number % 10]
            elif number in (22, 39):
                style = {}
    return out


def main():
    target, most, commands = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    lines = []
    for command in commands:
        lines.append([("$ ", {"fill": "#56c271"}), (command, {"font-weight": "bold"})])
        printed = seen(command).rstrip("\n").split("\n")
        lines += [spans(line) for line in printed[:most]]
        if len(printed) > most:
            lines.append([("…", {"fill": "#98a3b0"})])
        lines.append([])
    width, height = COLUMNS * WIDTH + 32, len(lines) * HEIGHT + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="{html.escape("; ".join(commands))}">',
        '<rect width="100%" height="100%" rx="8" fill="#0e1116"/>',
        '<g font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
        'fill="#e4e8ed">',
    ]
    for at, line in enumerate(lines):
        column, y = 0, 26 + at * HEIGHT
        for text, style in line:
            marks = "".join(f' {name}="{value}"' for name, value in style.items())
            length = len(text) * WIDTH
            out.append(
                f'<text x="{16 + column * WIDTH:.1f}" y="{y}" textLength="{length:.1f}" '
                f'lengthAdjust="spacingAndGlyphs"{marks}>{html.escape(text).replace(" ", NO_BREAK)}</text>'
            )
            column += len(text)
    out.append("</g></svg>")
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


main()
