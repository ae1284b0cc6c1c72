#!/usr/bin/env bash
# Makes a Debian package of the broker that is built already.
#
#   scripts/package-deb.sh             makes target/deb/whimbrel_VERSION_ARCHITECTURE.deb
#   scripts/package-deb.sh --check     and tries it: lintian, if there is one; installs it into a directory, runs what was installed, and
#                                      removes it again
#
# WHIMBREL_BIN names the binary; without it, that of a release build is taken. PACKAGE_OUT names another directory for the package, and
# DEBFULLNAME and DEBEMAIL another maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packaging.sh

readonly binary=${WHIMBREL_BIN:-${CARGO_TARGET_DIR:-target}/release/whimbrel}
readonly out=${PACKAGE_OUT:-${CARGO_TARGET_DIR:-target}/deb}
readonly maintainer="${DEBFULLNAME:-Whimbrel developers} <${DEBEMAIL:-developers@whimbrel.example.org}>"

check=no
if wants_check "$@"; then check=yes; fi

scripts/require.sh dpkg-deb=dpkg dpkg-shlibdeps=dpkg-dev strip=binutils python3
expect_binary deb

work=$(mktemp -d)
broker=
finish() {
    [[ -z $broker ]] || kill "$broker" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Revisions of the packaging are counted in its changelog; what is packaged has the version of the workspace.
version=$(sed -n '1s/^whimbrel (\(.*\)) .*/\1/p' packaging/debian/changelog)
if [[ ${version%-*} != "$upstream" ]]; then
    echo "packaging/debian/changelog is about $version, and Cargo.toml about $upstream" >&2
    exit 1
fi
architecture=$(dpkg --print-architecture)

readonly tree=$work/whimbrel
put() { install -D -m "$1" "$2" "$tree/$3"; }
packed() { gzip -9n <"$1" >"$work/packed" && put 644 "$work/packed" "$2"; }

put 755 "$binary" usr/bin/whimbrel
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree/usr/bin/whimbrel"
put 644 packaging/systemd/whimbrel.service lib/systemd/system/whimbrel.service
put 644 packaging/systemd/whimbrel.sysusers usr/lib/sysusers.d/whimbrel.conf
put 644 packaging/debian/whimbrel.toml etc/whimbrel/whimbrel.toml

"$tree/usr/bin/whimbrel" completions bash >"$work/completions" && put 644 "$work/completions" usr/share/bash-completion/completions/whimbrel
"$tree/usr/bin/whimbrel" completions zsh >"$work/completions" && put 644 "$work/completions" usr/share/zsh/vendor-completions/_whimbrel
"$tree/usr/bin/whimbrel" completions fish >"$work/completions" && put 644 "$work/completions" usr/share/fish/vendor_completions.d/whimbrel.fish
python3 packaging/manual.py "$tree/usr/bin/whimbrel" >"$work/manual" && packed "$work/manual" usr/share/man/man1/whimbrel.1.gz

readonly documents=usr/share/doc/whimbrel
for document in docs/*.md; do
    put 644 "$document" "$documents/$(basename "$document")"
done
for figure in docs/img/*; do
    put 644 "$figure" "$documents/img/$(basename "$figure")"
done
put 644 packaging/grafana/whimbrel.json "$documents/examples/grafana/whimbrel.json"
put 644 packaging/prometheus/alerts.yml "$documents/examples/prometheus/alerts.yml"
put 644 packaging/debian/copyright "$documents/copyright"
packed packaging/debian/changelog "$documents/changelog.Debian.gz"
packed CHANGELOG.md "$documents/changelog.gz"

# Which libraries it needs. dpkg-shlibdeps wants to stand in a source package.
mkdir -p "$work/debian"
printf 'Source: whimbrel\n\nPackage: whimbrel\nArchitecture: any\nDescription: broker\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e"$tree/usr/bin/whimbrel" 2>/dev/null | sed 's/^shlibs:Depends=//')
# A static binary needs none.
depends=${depends:+$depends, }

mkdir -p "$tree/DEBIAN"
size=$(du -k -s --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@MAINTAINER@/$maintainer/" -e "s/@SIZE@/$size/" \
    -e "s/@DEPENDS@/$depends/" packaging/debian/control.in >"$tree/DEBIAN/control"
install -m 644 packaging/debian/conffiles "$tree/DEBIAN/conffiles"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$tree/DEBIAN/"
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
find "$tree" -type d -exec chmod 755 {} +

mkdir -p "$out"
readonly package=$out/whimbrel_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
echo "$package: $(du -h "$package" | cut -f1)"
[[ $check == yes ]] || exit 0

# --- trying it

if command -v lintian >/dev/null; then
    # The changelog closes no report of Debian's, its mail address is made up, and the binary of a release is static.
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,statically-linked-binary,shared-library-lacks-prerequisites "$package"
    echo "lintian: nothing to say"
else
    echo "lintian: not here, left out"
fi

# Into a directory, with a database of its own, and without the packages that this one depends on.
readonly target=$work/root
mkdir -p "$target/var/lib/dpkg/updates" "$target/var/lib/dpkg/info" "$target/var/log" "$target/etc"
touch "$target/var/lib/dpkg/status" "$target/etc/passwd" "$target/etc/group"
to_target() {
    dpkg --root="$target" --log="$work/dpkg.log" --force-script-chrootless --force-depends --force-not-root --force-bad-path "$@" \
        >"$work/dpkg.out" 2>&1 || { cat "$work/dpkg.out" >&2 && return 1; }
}
to_target --install "$package"
grep -q '^whimbrel:' "$target/etc/passwd" || { echo "the user was not made" >&2 && exit 1; }
readonly installed=$target/usr/bin/whimbrel
"$installed" --version

# As it comes it says who is missing, and does not start.
status=0
"$installed" serve --config "$target/etc/whimbrel/whimbrel.toml" 2>"$work/refusal" || status=$?
if [[ $status -ne 2 ]] || ! grep -q 'without --dev or a source of identity' "$work/refusal"; then
    echo "with the configuration as it comes the broker ended with $status:" >&2
    cat "$work/refusal" >&2
    exit 1
fi
echo "serve: refuses to start with the configuration as it comes"

# Ready, and gone again.
begin_broker "$work" env "WHIMBREL_DATA=$work/data" "$installed"
echo "serve --dev: $line"
end_broker

# What an administrator has changed stays, and what the broker has kept is not removed with it.
mkdir -p "$target/var/lib/whimbrel/journal"
echo '# changed' >>"$target/etc/whimbrel/whimbrel.toml"
to_target --force-confold --install "$package"
grep -q '^# changed' "$target/etc/whimbrel/whimbrel.toml"
to_target --remove whimbrel
[[ ! -e $installed && -e $target/etc/whimbrel/whimbrel.toml ]]
to_target --purge whimbrel
[[ ! -e $target/etc/whimbrel/whimbrel.toml && -d $target/var/lib/whimbrel/journal ]]
echo "installed, installed again, removed and purged, in a directory of its own: $package"
