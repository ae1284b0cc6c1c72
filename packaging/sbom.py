#!/usr/bin/env python3
"""Adds the files of others in the console to a CycloneDX list of crates, and takes out of it what differs from machine to machine.

    packaging/sbom.py CRATES.json console/vendor/README.md
"""

import datetime
import json
import os
import pathlib
import re
import sys

# `file`, ... | `package` version, ... | LICENCE, ...
ROW = re.compile(r"^\| (?P<files>(?:`[^`]+`(?:, )?)+) \| `(?P<name>[^`]+)` (?P<version>[0-9][0-9.]*)\b[^|]* \| (?P<licence>[^|]*) \|$")
FILE = re.compile(r"`([^`]+)`")
LICENCE = re.compile(r"\b(MIT|ISC|BSD-3-Clause)\b")


def vendored(readme):
    """A component for each row of the table of vendored files, all of which are in it."""
    named = set()
    for line in readme.read_text().splitlines():
        row = ROW.match(line)
        if row is None:
            continue
        named.update(FILE.findall(row["files"]))
        yield {
            "type": "library",
            "bom-ref": f"pkg:npm/{row['name']}@{row['version']}",
            "name": row["name"],
            "version": row["version"],
            "licenses": [{"license": {"id": name}} for name in sorted(set(LICENCE.findall(row["licence"])))],
            "purl": f"pkg:npm/{row['name']}@{row['version']}",
        }
    there = {file.name for file in readme.parent.iterdir() if file.name != readme.name and not file.name.startswith("LICENSE")}
    if named != there:
        sys.exit(f"{readme} and the files beside it differ: {sorted(named ^ there)}")


def main():
    bom = json.loads(pathlib.Path(sys.argv[1]).read_text())
    # A path of the machine that made it stands in the references of the workspace's own crates.
    text = json.dumps(bom)
    for reference in sorted(set(re.findall(r"path\+file://[^\"#]*/", text)), key=len, reverse=True):
        text = text.replace(reference, "path+file:///whimbrel/")
    text = re.sub(r"\?download_url=file://[^\"#]*", "", text)
    bom = json.loads(text)
    bom.pop("serialNumber", None)
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    bom["metadata"]["timestamp"] = made.strftime("%Y-%m-%dT%H:%M:%SZ")
    components = list(vendored(pathlib.Path(sys.argv[2])))
    assert components and all(component["licenses"] for component in components)
    bom["components"] += components
    whole = bom["metadata"]["component"]["bom-ref"]
    for needs in bom["dependencies"]:
        if needs["ref"] == whole:
            needs.setdefault("dependsOn", []).extend(component["bom-ref"] for component in components)
    json.dump(bom, sys.stdout, indent=1)
    print()


main()
