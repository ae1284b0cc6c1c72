#!/usr/bin/env bash
# Makes what a release consists of, under target/dist: the broker as one static binary, packed as an archive, as a Debian package and as an image
# for containers; a list of all that it is made of (CycloneDX); and the checksums of these. Each is unpacked again and tried.
#
#   scripts/dist.sh
#
# WHIMBREL_BIN names a binary that is built already, which is packed instead, whatever it is linked with. PACKAGE_OUT names another directory.
# Without cargo-cyclonedx it is installed; where WHIMBREL_BIN names the binary, the list is left out then.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packaging.sh

readonly target=${CARGO_TARGET_DIR:-target}
readonly out=${PACKAGE_OUT:-$target/dist}
readonly triple=$(uname -m)-unknown-linux-musl
readonly cyclonedx=0.5.9

scripts/require.sh strip=binutils readelf=binutils xz=xz-utils python3
binary=${WHIMBREL_BIN:-}
if [[ -z $binary ]]; then
    scripts/require.sh cc=build-essential musl-gcc=musl-tools
    if ! rustup target list --installed 2>/dev/null | grep -qx "$triple"; then
        rustup target add "$triple" || {
            echo "the standard library for $triple is missing: rustup target add $triple" >&2
            exit 1
        }
    fi
    env "CC_${triple//-/_}=musl-gcc" cargo build --locked --release --package whimbrel --target "$triple"
    binary=$target/$triple/release/whimbrel
    headers=$(readelf --program-headers "$binary")
    if [[ $headers == *INTERP* ]]; then
        echo "$binary is not static: it asks for a loader" >&2
        exit 1
    fi
fi
binary=$(realpath "$binary")
readonly version=$upstream

# Of an earlier release nothing is left; what else lies there is none of its.
mkdir -p "$out"
rm -f "$out"/whimbrel[-_]* "$out/SHA256SUMS"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The archive: the binary, and what else a machine without packages wants of them.
readonly name=whimbrel-$version-linux-$(uname -m)
readonly tree=$work/$name
put() { install -D -m "$1" "$2" "$tree/$3"; }
put 755 "$binary" whimbrel
strip --strip-unneeded "$tree/whimbrel"
put 644 LICENSE LICENSE
put 644 CHANGELOG.md CHANGELOG.md
put 644 packaging/debian/whimbrel.toml whimbrel.toml
put 644 packaging/systemd/whimbrel.service systemd/whimbrel.service
put 644 packaging/systemd/whimbrel.sysusers systemd/whimbrel.sysusers
for shell in bash zsh fish; do
    "$tree/whimbrel" completions $shell >"$work/completions"
    put 644 "$work/completions" "completions/whimbrel.$shell"
done
python3 packaging/manual.py "$tree/whimbrel" >"$work/manual"
put 644 "$work/manual" whimbrel.1
pack 0 --mode=u+rwX,go+rX,go-w --directory "$work" --create "$name" | xz -6 >"$out/$name.tar.xz"
mkdir "$work/again"
tar --extract --file "$out/$name.tar.xz" --directory "$work/again"
"$work/again/$name/whimbrel" --version | grep -q "^whimbrel $version "
"$work/again/$name/whimbrel" help >/dev/null
echo "$out/$name.tar.xz: $(du -h "$out/$name.tar.xz" | cut -f1), the binary in it $(du -h "$tree/whimbrel" | cut -f1)"

WHIMBREL_BIN=$binary PACKAGE_OUT=$out scripts/package-deb.sh --check
WHIMBREL_BIN=$binary PACKAGE_OUT=$out scripts/package-oci.sh --check

# What it is made of: the crates as Cargo resolves them, and the files of others in the console.
if ! cargo cyclonedx --version >/dev/null 2>&1 && [[ -z ${WHIMBREL_BIN:-} ]]; then
    echo "installing cargo-cyclonedx"
    cargo install cargo-cyclonedx --version "$cyclonedx" --locked
fi
if cargo cyclonedx --version >/dev/null 2>&1; then
    # It writes beside each Cargo.toml, so that it is given a copy of these.
    git ls-files -z -- 'Cargo.*' '*/Cargo.toml' 'crates/*/src/lib.rs' 'crates/*/src/main.rs' 'bench/*/src/main.rs' 'xtask/src/*.rs' \
        | xargs -0 cp --parents --target-directory "$work/again"
    cargo cyclonedx --quiet --manifest-path "$work/again/crates/whimbrel/Cargo.toml" --format json --spec-version 1.5 \
        --target "$triple" --override-filename sbom
    python3 packaging/sbom.py "$work/again/crates/whimbrel/sbom.json" console/vendor/README.md >"$out/whimbrel-$version.cdx.json"
    echo "$out/whimbrel-$version.cdx.json: $(grep -c '"purl"' "$out/whimbrel-$version.cdx.json") components"
else
    echo "cargo-cyclonedx: not here, the list of components left out"
fi

(cd "$out" && sha256sum -- whimbrel[-_]* >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" . && sha256sum --check --quiet SHA256SUMS)
echo "$out/SHA256SUMS:"
cat "$out/SHA256SUMS"
