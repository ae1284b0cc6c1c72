#!/usr/bin/env python3
"""manual.py BINARY: prints the manual page, made of what the binary says about itself."""

import re
import subprocess
import sys

binary = sys.argv[1]


def asked(*words):
    shown = subprocess.run([binary, *words, "--help"], check=True, capture_output=True, text=True, env={"COLUMNS": "100"})
    return shown.stdout


def roff(line):
    line = line.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + line if line.startswith((".", "\\(aq")) else line


def as_it_is(text):
    return [".nf", *(roff(line.rstrip()) for line in text.strip("\n").splitlines()), ".fi"]


def commands(text):
    """The commands that a help text lists, in its order."""
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    names = re.findall(r"^  ([a-z]+)(?: |$)", listed.group(1), re.MULTILINE) if listed else []
    return [name for name in names if name != "help"]


def sections(path):
    text = asked(*path)
    yield path, text
    for name in commands(text):
        yield from sections([*path, name])


version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
top = asked()
about, rest = top.split("\n\n", 1)
page = [f'.TH WHIMBREL 1 "" "whimbrel {version}" "User Commands"', ".SH NAME", f"whimbrel \\- {roff(about.strip())}", ".SH SYNOPSIS"]
page += [".B whimbrel", ".I COMMAND", "[options]", ".SH DESCRIPTION", *as_it_is(rest)]
for path, text in sections([]):
    if path:
        page += [f".SH {' '.join(path).upper()}", *as_it_is(text)]
page += [".SH SEE ALSO", "The documentation in /usr/share/doc/whimbrel, first README.md there."]
print("\n".join(page))
