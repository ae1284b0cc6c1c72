//! Names the commit that is built, where git and a repository are at hand. Neither is needed.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WHIMBREL_GIT_HASH");
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let hash = std::env::var("WHIMBREL_GIT_HASH").ok().or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = hash.as_deref().unwrap_or("commit unknown");
    println!("cargo:rustc-env=WHIMBREL_VERSION={} ({commit})", env!("CARGO_PKG_VERSION"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
