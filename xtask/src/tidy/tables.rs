//! Everything allowed or forbidden by name. A row that no longer applies is itself a finding.

use super::Finding;
use super::rust::RustFile;

/// A crate of the workspace and its allowed dependencies.
pub struct Layer {
    /// Package name.
    pub name: &'static str,
    /// Whether it must be deterministic: no IO, clock, thread, ambient randomness or randomly
    /// seeded hashing.
    pub pure: bool,
    /// Workspace crates it may use.
    pub uses: &'static [&'static str],
    /// Workspace crates that only its tests and benchmarks may use.
    pub tests_use: &'static [&'static str],
}

/// The one table of allowed edges between the crates of the workspace. Dependencies point upwards
/// in it only.
pub const LAYERS: &[Layer] = &[
    Layer { name: "whimbrel-event", pure: true, uses: &[], tests_use: &[] },
    Layer { name: "whimbrel-selector", pure: true, uses: &["whimbrel-event"], tests_use: &[] },
    Layer { name: "whimbrel-access", pure: true, uses: &["whimbrel-event", "whimbrel-selector"], tests_use: &[] },
    Layer { name: "whimbrel-journal", pure: true, uses: &[], tests_use: &[] },
    Layer { name: "whimbrel-engine", pure: false, uses: &["whimbrel-journal"], tests_use: &[] },
    Layer { name: "whimbrel-wire", pure: true, uses: &["whimbrel-event"], tests_use: &[] },
    Layer {
        name: "whimbrel-net",
        pure: true,
        uses: &["whimbrel-event", "whimbrel-selector", "whimbrel-wire"],
        tests_use: &[],
    },
    Layer {
        name: "whimbrel-core",
        pure: true,
        uses: &["whimbrel-event", "whimbrel-selector", "whimbrel-wire", "whimbrel-net"],
        tests_use: &[],
    },
    Layer {
        name: "whimbrel-mqtt",
        pure: true,
        uses: &["whimbrel-event", "whimbrel-selector", "whimbrel-access", "whimbrel-core"],
        tests_use: &[],
    },
    Layer { name: "whimbrel-discovery", pure: false, uses: &[], tests_use: &[] },
    Layer {
        name: "whimbrel-client",
        pure: false,
        uses: &["whimbrel-event", "whimbrel-selector", "whimbrel-mqtt", "whimbrel-discovery"],
        tests_use: &["whimbrel-server"],
    },
    Layer {
        name: "whimbrel-server",
        pure: false,
        uses: &[
            "whimbrel-event",
            "whimbrel-selector",
            "whimbrel-access",
            "whimbrel-core",
            "whimbrel-engine",
            "whimbrel-journal",
            "whimbrel-mqtt",
            "whimbrel-discovery",
        ],
        tests_use: &["whimbrel-client", "whimbrel-server"],
    },
    Layer {
        name: "whimbrel-sim",
        pure: false,
        uses: &[
            "whimbrel-event",
            "whimbrel-selector",
            "whimbrel-journal",
            "whimbrel-engine",
            "whimbrel-core",
            "whimbrel-mqtt",
        ],
        tests_use: &["whimbrel-sim"],
    },
    Layer {
        name: "whimbrel-lab",
        pure: false,
        uses: &[
            "whimbrel-event",
            "whimbrel-selector",
            "whimbrel-core",
            "whimbrel-mqtt",
            "whimbrel-client",
            "whimbrel-sim",
            // The broker's logging is compared with the journal alone.
            "whimbrel-journal",
        ],
        tests_use: &[],
    },
    Layer {
        name: "whimbrel",
        pure: false,
        // Selector: a selector on the command line is checked before a connection is made, so that
        // the error can point into it.
        uses: &["whimbrel-selector", "whimbrel-server", "whimbrel-client", "whimbrel-sim", "whimbrel-lab"],
        // Wire: tests of untrusted input on the port of the links.
        // Engine: how long a start looks at a lease.
        tests_use: &["whimbrel-mqtt", "whimbrel-wire", "whimbrel-engine"],
    },
    Layer {
        name: "instructions",
        pure: false,
        uses: &["whimbrel-event", "whimbrel-core", "whimbrel-mqtt"],
        tests_use: &[],
    },
    Layer { name: "xtask", pure: false, uses: &[], tests_use: &[] },
];

/// The packages from outside the workspace that a crate itself may use, for the crates that have a
/// list; their tests may use others.
pub const OUTSIDE_PACKAGES: &[(&str, &[&str])] = &[("whimbrel-net", &["hashbrown"])];

/// A crate that must not use some names of another one.
pub struct Seam {
    /// The package that must not use them.
    pub user: &'static str,
    /// The package that has them.
    pub of: &'static str,
    /// The names.
    pub names: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

impl Seam {
    /// The name of the crate that has the names, as in a path.
    pub fn module(&self) -> String {
        self.of.replace('-', "_")
    }
}

/// The seams between crates that their manifests do not show.
pub const SEAMS: &[Seam] = &[Seam {
    user: "whimbrel-net",
    of: "whimbrel-wire",
    names: &[
        "AskPublished",
        "BrokerMessage",
        "Claim",
        "ClaimKind",
        "Claims",
        "Copies",
        "CopiesTaken",
        "Found",
        "GrantedStream",
        "Hand",
        "HandNumbers",
        "HeldStream",
        "HoldGrant",
        "HoldReport",
        "Members",
        "MembersAnswer",
        "MembersTaken",
        "Move",
        "MoveAnswer",
        "Moved",
        "PageTaken",
        "Published",
        "Question",
        "ReadAsk",
        "ReadTold",
        "Reply",
        "SessionClaims",
        "TakenOver",
        "Where",
    ],
    reason: "the network layer carries messages between brokers and does not know what is in them",
}];

/// Packages that no pure crate may reach through its normal dependencies, at any distance.
pub const IMPURE_PACKAGES: &[&str] = &[
    "async-io",
    "async-std",
    "chrono",
    "crossbeam-channel",
    "fastrand",
    "futures-executor",
    "getrandom",
    "hyper",
    "libc",
    "mio",
    "nix",
    "openssl",
    "parking_lot",
    "polling",
    "quinn",
    "quinn-proto",
    "rand",
    "rayon",
    "ring",
    "rustix",
    "rustls",
    "signal-hook",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "uuid",
    "windows-sys",
];

/// Files of a pure crate that are its drivers, with the reason. All else in the crate is
/// deterministic, except for what the drivers give it (the journal's `handover.rs` takes its lock
/// from `sync.rs`).
pub const DRIVER_FILES: &[(&str, &str)] = &[
    ("crates/whimbrel-journal/src/file.rs", "the journal is useful alone: here are real files, and only here"),
    ("crates/whimbrel-journal/src/file/view.rs", "the same files, only looked at"),
    (
        "crates/whimbrel-journal/src/journal.rs",
        "the journal is useful alone: here are its two threads and its lock, and only here",
    ),
    ("crates/whimbrel-journal/src/sync.rs", "the lock of handover.rs, in one place so that a test can exchange it"),
    (
        "crates/whimbrel-journal/src/twin.rs",
        "the twin of a disk is shared between a journal's threads and needs a lock; it is deterministic",
    ),
];

/// Packages that the drivers within a pure crate need: crate, package, reason.
pub const DRIVER_PACKAGES: &[(&str, &str, &str)] = &[(
    "whimbrel-journal",
    "rustix",
    "allocating and locking files, which the standard library does not do; used by file.rs and file/view.rs only",
)];

/// Paths that the sources of a pure crate must not name, with the reason.
pub const IMPURE_PATHS: &[(&str, &str)] = &[
    ("core::net", "sockets belong to the drivers"),
    ("std::net", "sockets belong to the drivers"),
    ("std::os", "the operating system belongs to the drivers"),
    ("std::fs", "files belong to the drivers"),
    ("std::io", "reading and writing belong to the drivers"),
    ("std::path", "files belong to the drivers"),
    ("std::thread", "threads belong to the drivers"),
    ("std::thread_local", "state belongs to its owner, not to a thread"),
    ("std::process", "processes belong to the drivers"),
    ("std::env", "configuration is an argument"),
    ("std::time::SystemTime", "time is an argument"),
    ("std::time::Instant", "time is an argument"),
    ("std::time::UNIX_EPOCH", "time is an argument"),
    ("std::future", "the core is a state machine, not a task"),
    ("std::task", "the core is a state machine, not a task"),
    ("std::sync::Barrier", "the core has one owner at a time and needs no locks"),
    ("std::sync::Condvar", "the core has one owner at a time and needs no locks"),
    ("std::sync::Mutex", "the core has one owner at a time and needs no locks"),
    ("std::sync::RwLock", "the core has one owner at a time and needs no locks"),
    ("std::sync::mpsc", "the core has one owner at a time and needs no channels"),
    ("std::collections::HashMap", "it is randomly seeded; use hashbrown with a seed, or a BTreeMap"),
    ("std::collections::HashSet", "it is randomly seeded; use hashbrown with a seed, or a BTreeSet"),
    ("std::collections::hash_map", "it is randomly seeded; use hashbrown with a seed, or a BTreeMap"),
    ("std::collections::hash_set", "it is randomly seeded; use hashbrown with a seed, or a BTreeSet"),
    ("std::hash::RandomState", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::HashMap", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::HashSet", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::fast::RandomState", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::fast::SeedableRandomState", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::quality::RandomState", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::quality::SeedableRandomState", "it is randomly seeded; use whimbrel_event::Seeded"),
    ("foldhash::fast::FixedState", "its seed changes little of it; use whimbrel_event::Seeded"),
    ("foldhash::quality::FixedState", "its seed changes little of it; use whimbrel_event::Seeded"),
    ("hashbrown::DefaultHashBuilder", "it is randomly seeded; use whimbrel_event::Seeded"),
];

/// Words that the sources of a pure crate must not contain, for any meaning, with the reason.
pub const IMPURE_WORDS: &[(&str, &str)] = &[
    ("async", "the core is a state machine, not a task"),
    ("await", "the core is a state machine, not a task"),
    ("OsRng", "randomness is an argument"),
    ("thread_rng", "randomness is an argument"),
    ("getrandom", "randomness is an argument"),
    ("thread_local", "state belongs to its owner, not to a thread"),
];

/// Macros that the sources of a pure crate must not call.
pub const IMPURE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln"];

/// Collections whose iteration order is that of their hashes.
pub const HASH_TYPES: &[&str] = &["HashMap", "HashSet", "HashTable"];

/// Methods that visit such a collection in that order.
pub const HASH_ORDER_METHODS: &[&str] = &[
    "difference",
    "drain",
    "extract_if",
    "intersection",
    "into_iter",
    "into_keys",
    "into_values",
    "iter",
    "iter_mut",
    "keys",
    "retain",
    "symmetric_difference",
    "union",
    "values",
    "values_mut",
];

/// Files that may contain unsafe code, with the reason.
pub const UNSAFE_FILES: &[(&str, &str)] = &[
    (
        "crates/whimbrel-lab/src/bench/lowat.rs",
        "SO_RCVLOWAT, which the load generator sets on its own sockets, is wrapped by no crate",
    ),
    (
        "crates/whimbrel-selector/benches/sections/counting.rs",
        "an allocator that counts bytes in use can be written in no other way",
    ),
];

/// Files that may be longer than 500 lines (but not than 1,000), with the reason. Prefer to split
/// them.
pub const LONG_FILES: &[(&str, &str)] = &[];

/// The types that compose a crate, as (crate, type): all else in the crate is a component that does
/// not depend on them.
pub const COMPOSITIONS: &[(&str, &str)] = &[("whimbrel-core", "Broker"), ("whimbrel-net", "Net")];

/// Types that may implement `Deref`, as (crate, type, reason).
pub const DEREF_TYPES: &[(&str, &str, &str)] = &[(
    "whimbrel-core",
    "Lazy",
    "a pointer: it makes what it points to when it is first needed, and has no fields to hide",
)];

/// Crates with built-in faults, which are in one file only.
pub const FAULT_CRATES: &[&str] = &["whimbrel-core", "whimbrel-net"];

/// Crates whose comments have almost no vague words.
pub const WORDED_CRATES: &[&str] = &["whimbrel-core", "whimbrel-net"];

/// Words used in place of a name, in lower case.
pub const VAGUE_WORDS: &[&str] = &[
    "anybody",
    "anyone",
    "everybody",
    "no one",
    "nobody",
    "so long",
    "so many",
    "so much",
    "somebody",
    "someone",
    "what came",
    "what comes",
    "whatever",
    "who came",
    "who comes",
    "whoever",
    "whomever",
];

/// Files whose comments may have such words: the start of a path, and the reason.
pub const UNWORDED_FILES: &[(&str, &str)] =
    &[("crates/whimbrel-core/src/overlay/roam/", "the session register replaces it; its comments go with it")];

/// The last commit before subjects had a fixed form.
pub const LAST_FREE_COMMIT: &str = "205a9f32cff54548fc61a1b552531a8a46e3fb59";

/// Licences that a dependency may have, by SPDX identifier. All of them permit the project to be
/// used, changed and sold under Apache-2.0; none demands the source of the whole.
pub const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The one crypto provider, which must be in the graph exactly once.
pub const CRYPTO_PROVIDER: &str = "ring";

/// Packages that must not be in the dependency graph at all, with the reason.
pub const FORBIDDEN_PACKAGES: &[(&str, &str)] = &[
    ("aws-lc-fips-sys", "a second crypto provider; rustls is used with ring only"),
    ("aws-lc-rs", "a second crypto provider; rustls is used with ring only"),
    ("aws-lc-sys", "a second crypto provider; rustls is used with ring only"),
    ("boring-sys", "a second crypto provider; rustls is used with ring only"),
    ("native-tls", "TLS is rustls"),
    ("openssl", "TLS is rustls"),
    ("openssl-sys", "TLS is rustls"),
];

/// Whether the file belongs to the sources (not the tests, not the drivers) of a pure crate.
pub fn is_pure(path: &str) -> bool {
    !DRIVER_FILES.iter().any(|(driver, _)| *driver == path)
        && LAYERS
            .iter()
            .any(|layer| layer.pure && path.strip_prefix("crates/").is_some_and(|rest| is_source_of(rest, layer.name)))
}

fn is_source_of(path: &str, package: &str) -> bool {
    path.strip_prefix(package).is_some_and(|rest| rest.starts_with("/src/"))
}

/// Findings about rows that no longer apply.
pub fn check_rows(sources: &[RustFile]) -> Vec<Finding> {
    let mut findings = check_file_rows(sources, UNSAFE_FILES, LONG_FILES);
    for (path, _) in DRIVER_FILES {
        if !sources.iter().any(|s| s.path == *path && !super::purity::check(s).is_empty()) {
            findings.push(Finding::new(
                *path,
                "stale-row",
                "DRIVER_FILES lists it, but it is as pure as the rest; remove the row",
            ));
        }
    }
    findings.extend(super::composition::check_rows(sources, DEREF_TYPES));
    let has_comments = |start: &str| sources.iter().any(|s| s.path.starts_with(start));
    for (start, _) in UNWORDED_FILES.iter().filter(|(start, _)| !has_comments(start)) {
        findings.push(Finding::new(
            *start,
            "stale-row",
            "UNWORDED_FILES lists it, but it is not there; remove the row",
        ));
    }
    findings
}

/// [`check_rows`] on given tables.
pub fn check_file_rows(
    sources: &[RustFile],
    unsafe_files: &[(&str, &str)],
    long_files: &[(&str, &str)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in unsafe_files {
        if !sources.iter().any(|s| s.path == *path && s.mentions_unsafe().is_some()) {
            findings.push(Finding::new(
                *path,
                "stale-row",
                "UNSAFE_FILES lists it, but it has no unsafe code; remove the row",
            ));
        }
    }
    for (path, _) in long_files {
        if !sources.iter().any(|s| s.path == *path && s.counted_lines() > super::budgets::FILE_LINES) {
            findings.push(Finding::new(
                *path,
                "stale-row",
                "LONG_FILES lists it, but it is within the budget; remove the row",
            ));
        }
    }
    findings
}
