//! How the time per event grows with the number of selectors while that of matches stays.

use super::options::{Options, label};
use super::{cells, exponent};
use crate::mixes::Plan;

/// Matches per event.
const MATCHES: f64 = 100.0;

const COUNTS: [usize; 3] = [10_000, 100_000, 1_000_000];

pub fn print(options: &Options) {
    println!(
        "\nGrowth at {MATCHES} matches per event: ns per event, evaluations per match, and the exponent of the selectors (least squares)."
    );
    println!(
        "{:30} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>9}",
        "mix, fields, values, attributes", COUNTS[0], COUNTS[1], COUNTS[2], "per", "per", "per", "exponent"
    );
    let one = Options { counts: vec![0], matching: vec![0.0], ..options.clone() };
    for plan in one.plans() {
        let cell = |count: usize| {
            let plan = Plan { count, matching: MATCHES / count as f64, ..plan };
            cells::measure(plan, options, false)
        };
        let cells = COUNTS.map(cell);
        let points: Vec<_> = COUNTS.iter().zip(&cells).map(|(count, cell)| (*count as f64, cell.index)).collect();
        let per = |cell: &cells::Measured| cell.evaluations / cell.matches;
        println!(
            "{:30}  {:>9.0} {:>9.0} {:>9.0} {:>7.2} {:>7.2} {:>7.2} {:>9.3}",
            label(&plan),
            cells[0].index,
            cells[1].index,
            cells[2].index,
            per(&cells[0]),
            per(&cells[1]),
            per(&cells[2]),
            exponent(&points),
        );
    }
}
