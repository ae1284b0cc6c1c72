#!/usr/bin/env bash
# Makes an image of the broker that is built already, as a file in the format of the Open Container Initiative. No container engine is needed.
#
#   scripts/package-oci.sh             makes target/oci/whimbrel-VERSION-oci-ARCHITECTURE.tar
#   scripts/package-oci.sh --check     and tries it: unpacks it, and runs the broker in what was unpacked, as the image's user
#
# WHIMBREL_BIN names the binary; without it, that of a release build is taken. PACKAGE_OUT names another directory for the image. What an
# image of packaging/container/Containerfile is told, this one is told too; tests/packaging/run compares them.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly binary=${WHIMBREL_BIN:-${CARGO_TARGET_DIR:-target}/release/whimbrel}
readonly out=${PACKAGE_OUT:-${CARGO_TARGET_DIR:-target}/oci}
readonly user=65532

check=no
case ${1:-} in
"") ;;
--check) check=yes ;;
*)
    echo "usage: scripts/package-oci.sh [--check]" >&2
    exit 2
    ;;
esac

scripts/require.sh umoci skopeo strip=binutils
if [[ ! -x $binary ]]; then
    echo "there is no $binary: build it (make dist), or name it (WHIMBREL_BIN)" >&2
    exit 1
fi

work=$(mktemp -d)
broker=
finish() {
    [[ -z $broker ]] || kill "$broker" 2>/dev/null || true
    chmod -R u+rwX "$work"
    rm -rf "$work"
}
trap finish EXIT

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
if [[ $("$binary" --version) != "whimbrel $version "* ]]; then
    echo "$binary is $("$binary" --version), and Cargo.toml about $version" >&2
    exit 1
fi
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac
# The same sources make the same image.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

# The files: the binary, the libraries that it is linked with, if any, under the paths by which it asks for them, and its user.
readonly tree=$work/tree
install -D -m 755 "$binary" "$tree/usr/bin/whimbrel"
strip --strip-unneeded "$tree/usr/bin/whimbrel"
{ ldd "$tree/usr/bin/whimbrel" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
    [[ $library == "$tree"* ]] || install -D -m 755 "$library" "$tree$library"
done
install -d -m 755 "$tree/etc/whimbrel"
echo "whimbrel:x:$user:$user:Whimbrel broker:/var/lib/whimbrel:/nonexistent" >"$tree/etc/passwd"
echo "whimbrel:x:$user:" >"$tree/etc/group"
echo 'hosts: files dns' >"$tree/etc/nsswitch.conf"
install -d -m 755 "$tree/var/lib"
mkdir -p "$work/own/var/lib/whimbrel"
# pack FILE ID ARGUMENTS...: a tar of files that belong to ID, whoever packs them, and whenever.
pack() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --format=gnu --numeric-owner --owner="$2" --group="$2" --file "$1" "${@:3}"; }
pack "$work/layer.tar" 0 --create --mode=u+rwX,go+rX,go-w --directory "$tree" .
pack "$work/layer.tar" $user --append --mode=700 --directory "$work/own" ./var/lib/whimbrel

readonly image=$work/image:$version
umoci init --layout "$work/image"
umoci new --image "$image"
of_history=(--history.author whimbrel --history.created "$created")
umoci raw add-layer --image "$image" "${of_history[@]}" --history.created_by "the broker" "$work/layer.tar"
umoci config --image "$image" "${of_history[@]}" --history.created_by "how it is run" \
    --created "$created" --os linux --architecture "$architecture" \
    --config.user "$user:$user" --config.workingdir /var/lib/whimbrel --config.volume /var/lib/whimbrel \
    --config.env WHIMBREL_DATA=/var/lib/whimbrel --config.stopsignal SIGTERM \
    --config.entrypoint /usr/bin/whimbrel --config.cmd serve \
    --config.exposedports 1883/tcp --config.exposedports 8883/tcp --config.exposedports 8083/tcp \
    --config.exposedports 8084/tcp --config.exposedports 8080/tcp --config.exposedports 7117/udp \
    --config.label org.opencontainers.image.title=whimbrel \
    --config.label "org.opencontainers.image.description=Publish/subscribe broker for wide areas that speaks MQTT" \
    --config.label org.opencontainers.image.licenses=Apache-2.0 \
    --config.label "org.opencontainers.image.version=$version"
umoci gc --layout "$work/image" >/dev/null

mkdir -p "$out"
readonly archive=$out/whimbrel-$version-oci-$architecture.tar
skopeo copy --quiet "oci:$image" "oci:$work/named:whimbrel:$version"
pack "$archive" 0 --create --directory "$work/named" .
echo "$archive: $(du -h "$archive" | cut -f1)"
[[ $check == yes ]] || exit 0

# --- trying it: what an engine would do, with what it would be told

rootless=(--rootless)
namespaces=(--user --map-root-user --mount)
whose=()
if [[ $(id -u) -eq 0 ]]; then
    rootless=()
    namespaces=(--mount)
    whose=("--userspec=$user:$user")
fi
skopeo copy --quiet "oci-archive:$archive" "oci:$work/again:$version"
umoci unpack "${rootless[@]}" --image "$work/again:$version" "$work/bundle"
readonly root=$work/bundle/rootfs
mkdir -p "$root/dev"
in_image() {
    # shellcheck disable=SC2016 # the inner shell's
    exec env -i WHIMBREL_DATA=/var/lib/whimbrel unshare "${namespaces[@]}" /bin/sh -c \
        'mount --rbind /dev "$0/dev" && exec chroot "$@"' "$root" "${whose[@]}" "$root" "$@"
}
(in_image /usr/bin/whimbrel --version)

mkfifo "$work/ready"
listen=()
for listener in mqtt tls ws wss http overlay; do
    listen+=("--listen-$listener" 127.0.0.1:0)
done
in_image /usr/bin/whimbrel serve --dev "${listen[@]}" >"$work/ready" 2>"$work/log" &
broker=$!
if ! read -r -t 30 line <"$work/ready" || [[ $line != '{"ready":true'* ]]; then
    cat "$work/log" >&2
    exit 1
fi
echo "serve --dev in the image: $line"
(in_image /usr/bin/whimbrel status --own --json) >"$work/status" || { cat "$work/status" >&2 && exit 1; }
kill "$broker"
wait "$broker"
broker=
echo "unpacked, served, asked for its health, and ended: $archive"
