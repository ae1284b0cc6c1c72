//! Measures the index over selectors: `cargo bench -p whimbrel-selector --bench report -- --help`.

mod mixes;
mod sections;

use std::process::ExitCode;

use sections::options::Options;
use sections::{cells, churn, counting, growth, memory};

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
    ExitCode::SUCCESS
}
