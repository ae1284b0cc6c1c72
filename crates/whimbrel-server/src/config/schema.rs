//! The one table of settings. Flags, variables, keys of `whimbrel.toml`, help texts and
//! `docs/configuration.md` follow from it.

use super::location::{LATITUDE_MAX, LONGITUDE_MAX};
use super::value::Kind;

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// The table of `whimbrel.toml` that it is in; empty for the top level.
    pub section: &'static str,
    /// Its name in the table.
    pub name: &'static str,
    /// Its flag without the leading dashes and its variable; `None` if it can only be set in the
    /// file.
    pub flag: Option<(&'static str, &'static str)>,
    /// Placeholder of the value in help texts.
    pub placeholder: &'static str,
    /// Values that it takes.
    pub kind: Kind,
    /// The value if none is given, in the same notation; empty for none.
    pub default: &'static str,
    /// Help text: one sentence.
    pub help: &'static str,
}

impl Key {
    /// The setting's path in messages and look-ups, such as `limits.max_packet_size`.
    pub fn path(&self) -> String {
        if self.section.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.section, self.name) }
    }

    /// Whether the setting is only reserved for a later version.
    pub fn is_later(&self) -> bool {
        matches!(self.kind, Kind::Later)
    }
}

/// Tables of `whimbrel.toml` that hold settings.
pub const SECTIONS: &[&str] = &["engine", "identity", "journal", "limits", "log", "overlay", "place", "telemetry"];

/// The list of tables that are fences.
pub const FENCE: &str = "fence";

/// The list of tables that are partitions of the cache.
pub const PARTITION: &str = "partition";

/// The list of tables that are topic profiles.
pub const TOPIC: &str = "topic";

/// The list of tables that are access rules.
pub const RULE: &str = "rule";

/// The list of tables that are quotas.
pub const QUOTA: &str = "quota";

/// The list of tables, in `[identity]`, that are keys of tokens.
pub const KEY: &str = "key";

/// The table of the broker's own interest, for the cache.
pub const BUFFER: &str = "buffer";

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
/// 365.25 days, as in durations.
const YEAR: u64 = 8766 * HOUR;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

macro_rules! keys {
    ($($section:literal $name:literal $flag:expr, $placeholder:literal, $kind:expr, $default:literal, $help:literal;)*) => {
        /// All settings, in the order in which help and documentation show them.
        // tidy: table
        pub const KEYS: &[Key] = &[$(Key {
            section: $section, name: $name, flag: $flag, placeholder: $placeholder, kind: $kind, default: $default,
            help: $help,
        },)*];
    };
}

const fn flag(flag: &'static str, variable: &'static str) -> Option<(&'static str, &'static str)> {
    Some((flag, variable))
}

keys! {
    "" "name" flag("name", "WHIMBREL_NAME"), "NAME", Kind::Text, "whimbrel",
        "The broker's name, shown in logs, metrics and the ready line";
    "" "deployment" flag("deployment", "WHIMBREL_DEPLOYMENT"), "NAME", Kind::Text, "whimbrel",
        "The deployment that checkpoint tokens are bound to: the same for all brokers that a client may come back to";
    "" "data" flag("data", "WHIMBREL_DATA"), "DIR", Kind::Text, "",
        "Where the broker keeps its journal; without it everything lives as long as the process";
    "" "control" flag("control", "WHIMBREL_CONTROL"), "PATH", Kind::Text, "",
        "Unix socket for `whimbrel sessions`, `streams` and `backup`, which only its owner can open; control.sock in the data directory if none is named, `off` for none";
    "" "accept_clock" flag("accept-clock", "WHIMBREL_ACCEPT_CLOCK"), "BOOL", Kind::Switch, "false",
        "Start although the system's clock is more than a day ahead of what the journal has seen";
    "" "dev" flag("dev", "WHIMBREL_DEV"), "BOOL", Kind::Switch, "false",
        "Run without authentication, for development: on loopback, or on private addresses that a listener names";
    "" "discover" flag("discover", "WHIMBREL_DISCOVER"), "BOOL", Kind::Switch, "",
        "Announce the broker in the local network by multicast DNS, and dial others of its deployment that are found there; only with --dev, and there on where listen_mqtt or listen_overlay is a private address, off where both are loopback";
    "" "listen_mqtt" flag("listen-mqtt", "WHIMBREL_LISTEN_MQTT"), "ADDR:PORT", Kind::Listen, "127.0.0.1:1883",
        "Where MQTT clients connect over TCP";
    "" "listen_tls" flag("listen-tls", "WHIMBREL_LISTEN_TLS"), "ADDR:PORT", Kind::Listen, "127.0.0.1:8883",
        "Where MQTT clients connect over TLS";
    "" "listen_ws" flag("listen-ws", "WHIMBREL_LISTEN_WS"), "ADDR:PORT", Kind::Listen, "127.0.0.1:8083",
        "Where MQTT clients connect over WebSocket, path /mqtt";
    "" "listen_wss" flag("listen-wss", "WHIMBREL_LISTEN_WSS"), "ADDR:PORT", Kind::Listen, "127.0.0.1:8084",
        "Where MQTT clients connect over WebSocket with TLS, path /mqtt";
    "" "listen_http" flag("listen-http", "WHIMBREL_LISTEN_HTTP"), "ADDR:PORT", Kind::Listen, "127.0.0.1:8080",
        "Where the API, the console, /metrics, /healthz, /readyz and MQTT over WebSocket (path /mqtt) are served: over TLS if there is a certificate from files";
    "" "http_plain" flag("http-plain", "WHIMBREL_HTTP_PLAIN"), "BOOL", Kind::Switch, "",
        "Serve listen_http without TLS although there is a certificate; false: over TLS also with the certificate that --dev makes; without it, plain only where no certificate is loaded from files";
    "" "listen_overlay" flag("listen-overlay", "WHIMBREL_LISTEN_OVERLAY"), "ADDR:PORT", Kind::Listen, "127.0.0.1:7117",
        "Where other brokers connect over QUIC (UDP)";
    "" "proxy_listeners" flag("proxy-listeners", "WHIMBREL_PROXY_LISTENERS"), "LIST", Kind::Words(&["mqtt", "tls", "ws", "wss", "http"]), "",
        "Listeners whose connections must begin with a header of the PROXY protocol (version 1 or 2), which tells the client's address";
    "" "proxy_from" flag("proxy-from", "WHIMBREL_PROXY_FROM"), "NETWORKS", Kind::Networks, "",
        "Where the proxies are that send it; connections to these listeners from elsewhere are refused";
    "" "tls_cert" flag("tls-cert", "WHIMBREL_TLS_CERT"), "FILE", Kind::Text, "",
        "Certificate chain in PEM, the server's own first; with --dev one is made if none is given; read again when it changes";
    "" "tls_key" flag("tls-key", "WHIMBREL_TLS_KEY"), "FILE", Kind::Text, "",
        "Private key of the certificate, in PEM; read again with it";
    "" "tls_ca" flag("tls-ca", "WHIMBREL_TLS_CA"), "FILE", Kind::Text, "",
        "Authorities whose certificates identify brokers and clients, in PEM; needs a certificate and key made by `whimbrel cert broker`; read again when it changes";
    "" "tls_crl" flag("tls-crl", "WHIMBREL_TLS_CRL"), "FILE", Kind::Text, "",
        "Certificates of those authorities that are not believed any more (CRL, in PEM), each list signed by one of them; read again when it changes";
    "" "workers" flag("workers", "WHIMBREL_WORKERS"), "N", Kind::Count(0, 256), "0",
        "Threads that serve connections; 0 means one per CPU that the process may use";
    "" "drain_timeout" flag("drain-timeout", "WHIMBREL_DRAIN_TIMEOUT"), "DURATION", Kind::Duration(0, HOUR), "5s",
        "How long a shutdown waits for clients to read what was sent to them";
    "" "denied" None, "ACTION", Kind::Choice(&["drop", "disconnect"]), "drop",
        "What becomes of a message whose client may not publish it: it is dropped, and MQTT 5 says so; or its client is disconnected";
    "log" "format" flag("log-format", "WHIMBREL_LOG_FORMAT"), "FORMAT", Kind::Choice(&["text", "json"]), "text",
        "How log lines are written to standard error";
    "log" "level" flag("log-level", "WHIMBREL_LOG_LEVEL"), "LEVEL",
        Kind::Choice(&["off", "error", "warn", "info", "debug", "trace"]), "info",
        "The least severe log lines that are written";

    "identity" "passwords" None, "FILE", Kind::Text, "",
        "Users and the argon2id hashes of their passwords, `user:hash` a line; `whimbrel passwd` writes it";
    "identity" "token_issuer" None, "TEXT", Kind::Text, "",
        "What tokens must have as their issuer (`iss`); any if none is named";
    "identity" "token_audience" None, "TEXT", Kind::Text, "",
        "What tokens must have among their audience (`aud`); any if none is named";
    "identity" "audit" None, "FILE", Kind::Text, "",
        "Where it is noted what was refused, signed in, changed and read again, one JSON object a line; `-` is the log";
    "identity" "origins" None, "LIST", Kind::Texts, "",
        "Origins of web pages that may open WebSockets, such as \"https://console.example.org\", beside pages of the broker's own host";

    "overlay" "peers" flag("peer", "WHIMBREL_PEER"), "HOST:PORT", Kind::Peers, "",
        "Other brokers that are dialled for as long as this one runs; the option is given once for each";
    "overlay" "advertise" flag("overlay-advertise", "WHIMBREL_OVERLAY_ADVERTISE"), "HOST:PORT", Kind::Peers, "",
        "Where other brokers are told to dial this one, at most 4, best first; the address of listen_overlay if none is named and it is one (0.0.0.0 is none)";
    "overlay" "links" flag("overlay-links", "WHIMBREL_OVERLAY_LINKS"), "N", Kind::Count(0, 256), "4",
        "With fewer links than this, brokers that others tell of are dialled too; 0 means only peers are";
    "overlay" "interest_max" None, "N", Kind::Count(32, 65_536), "256",
        "Entries of the interest that the broker tells others; beyond it, similar ones are merged and others send more than is wanted";
    "overlay" "routing" None, "ROUTING", Kind::Choice(&["direct", "best", "reactive"]), "reactive",
        "The paths of events between brokers: only the link to a neighbour itself (`direct`), the paths of least delay and loss (`best`), or these and reactions to links that fail (`reactive`)";
    "overlay" "preset" None, "PRESET", Kind::Choice(&["default", "paper"]), "default",
        "How fast links are measured and followed, best the same at all brokers: probes every 0.5 s, and another path is taken at once if it is 10 % better (`default`); or every 5 s, told every 10 s, followed every 30 s if it is 20 % better (`paper`, for comparisons)";
    "overlay" "dscp" None, "DSCP", Kind::Text, "off",
        "How the packets of all links are marked for the network (DSCP): a name such as `ef` or `af41`, a number from 0 to 63, or `off`";
    "overlay" "compression" None, "WHEN", Kind::Choice(&["auto", "off"]), "auto",
        "Whether events are compressed on the way to a neighbour: where they wait for a slow link and become smaller (`auto`), or never (`off`)";
    "overlay" "domains" flag("overlay-domains", "WHIMBREL_OVERLAY_DOMAINS"), "NAMES", Kind::Domains, "",
        "The domains that the broker is in: it carries events of topics whose `domains` have one of them, and others send it no event of other topics with domains";

    "place" "lat" flag("place-lat", "WHIMBREL_PLACE_LAT"), "DEGREES", Kind::Degrees(LATITUDE_MAX), "",
        "The latitude of where the broker is (WGS 84, positive northwards), for the map of the console";
    "place" "lon" flag("place-lon", "WHIMBREL_PLACE_LON"), "DEGREES", Kind::Degrees(LONGITUDE_MAX), "",
        "The longitude of it, positive eastwards";

    "telemetry" "otlp_endpoint" None, "URL", Kind::Endpoint, "",
        "The OpenTelemetry collector that gets traces, by OTLP over HTTP; /v1/traces is added to it; none if it is not given";
    "telemetry" "sample" None, "RATIO", Kind::Ratio(0, 1_000_000), "0.01",
        "The share of events that are traced although their publishers do not ask for it; give all brokers the same";

    "journal" "max_log" None, "SIZE", Kind::Size(6 * MIB, 1024 * GIB), "64 GiB",
        "Bytes that the journal's files may take; above it publishes that must be logged are refused until subscribers acknowledge";
    "journal" "segment" None, "SIZE", Kind::Size(MIB, GIB), "32 MiB",
        "Bytes of each file of a new journal, at least six of which must fit into max_log; the longest event that can be logged is about a sixteenth of it, 1.9 MiB at most";
    "journal" "max_retain" None, "DURATION", Kind::Duration(0, 10 * YEAR), "0s",
        "How long events are kept for durable subscriptions that have not acknowledged them; what is older is a gap to those who come later; 0s means as long as it takes";

    "engine" "servers" flag("engine", "WHIMBREL_ENGINE"), "URLS", Kind::Texts, "",
        "Servers of NATS JetStream that keep the journal, too, such as nats://10.0.0.1:4222, with commas between them: a broker of this name starts from it on any machine";
    "engine" "ack" flag("engine-ack", "WHIMBREL_ENGINE_ACK"), "WHO", Kind::Choice(&["local", "engine", "both"]), "both",
        "Who must have what is logged before it is acknowledged: the broker's disk, the engine, or both";
    "engine" "patience" flag("engine-patience", "WHIMBREL_ENGINE_PATIENCE"), "DURATION", Kind::Duration(SECOND, HOUR), "15s",
        "How long the engine may take for a commit before publishes that must be logged are refused, until it answers; choosing a leader takes it 4 to 9 seconds";
    "engine" "monitor" flag("engine-monitor", "WHIMBREL_ENGINE_MONITOR"), "URLS", Kind::Texts, "",
        "Monitoring addresses of these servers, by which it is checked that they sync what they acknowledge; port 8222 of each server if none is named";
    "engine" "credentials" flag("engine-credentials", "WHIMBREL_ENGINE_CREDENTIALS"), "FILE", Kind::Text, "",
        "The broker's credentials for the engine (a .creds file, or the seed of an NKey), which should allow it nothing but its own stream";
    "engine" "ca" flag("engine-ca", "WHIMBREL_ENGINE_CA"), "FILE", Kind::Text, "",
        "Authorities whose certificates identify the engine's servers, in PEM; connections to it are encrypted then";

    "limits" "max_connections" None, "N", Kind::Count(0, 10_000_000), "0",
        "Client connections at once; 0 means as many as the file limit of the process allows";
    "limits" "handshake_timeout" None, "DURATION", Kind::Duration(100, 60 * SECOND), "10s",
        "How long a TLS handshake and a WebSocket upgrade may take together, and before them a header of the PROXY protocol";
    "limits" "connect_timeout" None, "DURATION", Kind::Duration(100, 60 * SECOND), "10s",
        "How long a client may take from its connection to its complete CONNECT packet";
    "limits" "max_keep_alive" None, "DURATION", Kind::Duration(0, 65_535 * SECOND), "0s",
        "The longest keep-alive; an MQTT 5 client that asks for more, or for none, is told this one; 0s means any";
    "limits" "max_packet_size" None, "SIZE", Kind::Size(KIB, 256 * MIB), "16 MiB",
        "The largest MQTT packet taken from a client";
    "limits" "receive_maximum" None, "N", Kind::Count(1, 65_535), "1024",
        "QoS 2 messages that a client may have sent and not released, told to it as Receive Maximum";
    "limits" "topic_alias_maximum" None, "N", Kind::Count(0, 65_535), "256",
        "Topic aliases that a client may set";
    "limits" "topic_alias_out_maximum" None, "N", Kind::Count(0, 65_535), "256",
        "Topic aliases that the broker sets towards a client, even if it offers more";
    "limits" "max_inflight" None, "N", Kind::Count(1, 65_535), "1024",
        "QoS 1 and 2 messages sent to a client without its acknowledgement, even if it offers more";
    "limits" "max_sessions" None, "N", Kind::Count(1, 100_000_000), "1000000",
        "Sessions, connected or not";
    "limits" "max_session" None, "DURATION", Kind::Duration(0, 10 * YEAR), "7days",
        "How long a session outlives its connection at most";
    "limits" "max_subscriptions" None, "N", Kind::Count(1, 10_000_000), "10000",
        "Subscriptions in one session";
    "limits" "max_selectors" None, "SIZE", Kind::Size(KIB, 1024 * GIB), "1 MiB",
        "Selectors of one session, all together";
    "limits" "session_queue" None, "SIZE", Kind::Size(KIB, 1024 * GIB), "64 MiB",
        "QoS 1 and 2 messages that wait for one session";
    "limits" "best_effort_queue" None, "SIZE", Kind::Size(KIB, 1024 * GIB), "1 MiB",
        "QoS 0 messages that wait for one session; 16 times that for the first second in which its client does not take all at once";
    "limits" "total_queue" None, "SIZE", Kind::Size(KIB, 1024 * GIB), "1 GiB",
        "Messages that wait for all sessions together; a message counts once per session";
    "limits" "tracked_queue" None, "SIZE", Kind::Size(KIB, GIB), "256 KiB",
        "Messages that wait for one session's subscriptions that are semi-durable or have notices; what is more is read from the cache later";
    "limits" "max_retained" None, "N", Kind::Count(0, 100_000_000), "1000000",
        "Retained messages, without those of the broker itself";
    "limits" "retained_size" None, "SIZE", Kind::Size(0, 1024 * GIB), "1 GiB",
        "Bytes of retained messages together";
    "limits" "sys_interval" None, "DURATION", Kind::Duration(0, HOUR), "10s",
        "How often the $SYS topics are published; 0s means never";
    "limits" "silence_after" None, "DURATION", Kind::Duration(SECOND, 24 * HOUR), "30s",
        "How often a subscription with notices is told how far it has come";

    "" "listen_quic" flag("listen-quic", "WHIMBREL_LISTEN_QUIC"), "ADDR:PORT", Kind::Later, "",
        "Where MQTT clients connect over QUIC";
}

/// The setting with this name in this table.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.section == section && key.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_flag_has_its_key_and_variable() {
        for key in KEYS {
            let Some((flag, variable)) = key.flag else { continue };
            // A flag that may be given several times is named in the singular.
            let dashed = match &*key.path() {
                "overlay.peers" => "peer".to_owned(),
                "engine.servers" => "engine".to_owned(),
                path => path.replace(['_', '.'], "-"),
            };
            assert_eq!(flag, dashed, "the flag of {}", key.path());
            assert_eq!(variable, format!("WHIMBREL_{}", dashed.to_uppercase().replace('-', "_")));
        }
    }

    #[test]
    fn names_are_unique_and_sections_known() {
        let paths: BTreeSet<String> = KEYS.iter().map(Key::path).collect();
        assert_eq!(paths.len(), KEYS.len());
        assert!(KEYS.iter().all(|key| key.section.is_empty() || SECTIONS.contains(&key.section)));
    }

    #[test]
    fn defaults_are_values() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(key.kind.read_text(key.default).is_ok(), "the default of {}", key.path());
        }
    }
}
