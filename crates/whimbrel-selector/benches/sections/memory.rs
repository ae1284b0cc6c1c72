//! Bytes per selector.

use super::Indexed;
use super::counting::used;
use super::options::{Options, label};
use crate::mixes::{Plan, Workload};

const COUNT: usize = 1_000_000;

pub fn print(options: &Options) {
    println!("\nBytes per distinct selector, without and with its own text, of {COUNT} with one key of 4 bytes each.");
    println!(
        "{:30} {:>9} {:>9} {:>9} {:>9}",
        "mix, fields, values, attributes", "distinct", "beyond", "text", "in all"
    );
    let one = Options { counts: vec![COUNT], matching: vec![0.0001], ..options.clone() };
    for plan in one.plans() {
        print_cell(plan);
    }
}

fn print_cell(plan: Plan) {
    let workload = Workload::calibrated(Plan { events: 100, ..plan });
    let before = used();
    let Indexed { index, places } = Indexed::new(&workload);
    drop(places);
    let distinct = index.selectors();
    let bytes = (used() - before) as f64 / distinct as f64;
    let sampled = 10_000;
    let text =
        (0..sampled).map(|number| workload.selector(number).to_string().len()).sum::<usize>() as f64 / sampled as f64;
    println!("{:30}  {distinct:>9} {:>9.0} {text:>9.0} {bytes:>9.0}", label(&plan), bytes - text);
}
