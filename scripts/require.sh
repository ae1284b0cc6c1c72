#!/usr/bin/env bash
# Makes sure that programs are there, and installs what is missing.
#
#   scripts/require.sh cc=build-essential node=nodejs python:venv=python3-venv cargo:clippy
#
# Each argument is a program and the Debian package that brings it (left out where they are called the same). `python:MODULE` asks for
# a module of python3, `cargo:NAME` for a component of the Rust toolchain. Missing packages are installed with apt-get when that is
# possible without asking for a password; otherwise the script says what is missing and which command installs it, and fails.
set -euo pipefail

packages=()
components=()
for need in "$@"; do
    name=${need%%=*}
    package=${need#*=}
    case $name in
    cargo:*)
        component=${name#cargo:}
        cargo "$component" --version >/dev/null 2>&1 || components+=("$([[ $component == fmt ]] && echo rustfmt || echo "$component")")
        ;;
    python:*) python3 -c "import ${name#python:}" 2>/dev/null || packages+=("$package") ;;
    *) command -v "$name" >/dev/null || packages+=("$package") ;;
    esac
done

if [[ ${#components[@]} -gt 0 ]]; then
    echo "installing toolchain components: ${components[*]}"
    rustup component add "${components[@]}" || {
        echo "missing: ${components[*]}; run: rustup component add ${components[*]}" >&2
        exit 1
    }
fi
[[ ${#packages[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    as_root=(sudo -n)
fi
install=(apt-get install -y -qq --no-install-recommends "${packages[@]}")
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    echo "missing: ${packages[*]} (names of Debian packages); as root, run: ${install[*]}" >&2
    exit 1
fi
echo "installing: ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
{ "${as_root[@]}" apt-get update -qq && "${as_root[@]}" "${install[@]}"; } </dev/null >/dev/null || {
    echo "could not install: ${packages[*]}; as root, run: ${install[*]}" >&2
    exit 1
}
