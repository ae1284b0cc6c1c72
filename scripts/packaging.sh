# What the scripts that make packages share; they source it in the project's root. The binary to
# pack is $binary.
# shellcheck shell=bash

# The version of the workspace, which is that of what is packed.
upstream=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
# The same sources make the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# wants_check ARGUMENTS...: whether the script was called with --check; ends it for anything else.
wants_check() {
    case "$*" in
    "") return 1 ;;
    --check) return 0 ;;
    *)
        echo "usage: $0 [--check]" >&2
        exit 2
        ;;
    esac
}

# expect_binary TARGET: ends the script if there is no binary, which `make TARGET` builds, or one of
# another version.
expect_binary() {
    if [[ ! -x $binary ]]; then
        echo "there is no $binary: build it (make $1), or name it (WHIMBREL_BIN)" >&2
        exit 1
    fi
    if [[ $("$binary" --version) != "whimbrel $upstream "* ]]; then
        echo "$binary is $("$binary" --version), and Cargo.toml about $upstream" >&2
        exit 1
    fi
}

# pack ID ARGUMENTS...: a tar of files that belong to the user ID, equal each time.
pack() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --format=gnu --numeric-owner --owner="$1" --group="$1" "${@:2}"
}

# begin_broker WORK COMMAND...: starts a broker for development by COMMAND, and waits until it is
# ready. It is $broker from then on; its ready line is $line, its log lies in WORK.
begin_broker() {
    local work=$1 listener
    local listen=()
    shift
    mkfifo "$work/ready"
    for listener in mqtt tls ws wss http overlay; do
        listen+=("--listen-$listener" 127.0.0.1:0)
    done
    "$@" serve --dev "${listen[@]}" >"$work/ready" 2>"$work/log" &
    broker=$!
    if ! read -r -t 30 line <"$work/ready" || [[ $line != '{"ready":true'* ]]; then
        cat "$work/log" >&2
        exit 1
    fi
}

# end_broker: ends it, and fails if it does not end well.
end_broker() {
    kill "$broker"
    wait "$broker"
    broker=
}
