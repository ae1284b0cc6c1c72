//! Measures the index over selectors: `cargo bench -p whimbrel-selector --bench report -- --help`.

mod mixes;
mod sections;

use std::process::ExitCode;

use sections::options::Options;
use sections::{bystanders, cells, churn, counting, growth, memory, once, peer};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(rounds) = options.once {
        return match once::run(rounds, &options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::FAILURE
            }
        };
    }
    if options.has("share") {
        options.plans().into_iter().for_each(|plan| println!("{}", mixes::Workload::calibrated(plan).share));
    }
    if options.has("cells") {
        cells::print(&options);
    }
    if options.has("growth") {
        growth::print(&options);
    }
    if options.has("churn") {
        churn::print(&options);
    }
    if options.has("memory") {
        memory::print(&options);
    }
    if options.has("peer") {
        peer::print(&options);
    }
    if options.has("bystanders") {
        bystanders::print(&options);
    }
    ExitCode::SUCCESS
}
