//! The load generator on its own: `cargo run --profile quick -p whimbrel-lab --example bench -- --help`.

use clap::Parser;
use whimbrel_lab::bench;

#[derive(Parser)]
#[command(about, version)]
struct Cli {
    #[command(flatten)]
    bench: bench::Args,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    bench::run(&Cli::parse().bench)
}
