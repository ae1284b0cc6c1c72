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
source scripts/packaging.sh

readonly binary=${WHIMBREL_BIN:-${CARGO_TARGET_DIR:-target}/release/whimbrel}
readonly out=${PACKAGE_OUT:-${CARGO_TARGET_DIR:-target}/oci}
readonly user=65532

check=no
if wants_check "$@"; then check=yes; fi

scripts/require.sh umoci skopeo strip=binutils
expect_binary dist

work=$(mktemp -d)
broker=
finish() {
    [[ -z $broker ]] || kill "$broker" 2>/dev/null || true
    chmod -R u+rwX "$work"
    rm -rf "$work"
}
trap finish EXIT

readonly version=$upstream
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac
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
pack 0 --file "$work/layer.tar" --create --mode=u+rwX,go+rX,go-w --directory "$tree" .
pack $user --file "$work/layer.tar" --append --mode=700 --directory "$work/own" ./var/lib/whimbrel

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
pack 0 --file "$archive" --create --directory "$work/named" .
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

begin_broker "$work" in_image /usr/bin/whimbrel
echo "serve --dev in the image: $line"
(in_image /usr/bin/whimbrel status --own --json) >"$work/status" || { cat "$work/status" >&2 && exit 1; }
end_broker
echo "unpacked, served, asked for its health, and ended: $archive"
