//! The common parts of all experiments: rows with goals, charts, and results with which a later run
//! resumes.

pub mod chart;
pub mod report;
pub mod store;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use report::{Part, Report, Row};
use store::Store;

use crate::progress;

/// What can be chosen for every experiment.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Brokers, links and time are simulated (the default)
    #[arg(long = "virtual", conflicts_with = "real")]
    simulated: bool,

    /// Broker processes and sockets on this machine
    #[arg(long)]
    pub(crate) real: bool,

    /// Seeds, from 1 on; of a real run: rounds [default: 5, and 3 of a real run]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// Rows to measure [default: all]
    #[arg(long = "row", num_args = 1.., value_delimiter = ',')]
    rows: Vec<String>,

    /// Print one object of JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Folder for results and plots; rows that it has are not measured again
    #[arg(long, default_value = "lab-out")]
    out: PathBuf,

    /// Measure everything anew
    #[arg(long)]
    fresh: bool,

    /// Short runs, to see that everything works; their figures are no evidence
    #[arg(long)]
    quick: bool,
}

/// Rounds of a real run, unless said otherwise.
const ROUNDS: u64 = 3;

/// Seeds of a virtual run, unless said otherwise.
const SEEDS: u64 = 5;

/// How a part is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Seeds from 1 to this; of a real run: rounds.
    pub seeds: u64,
    /// A short run.
    pub quick: bool,
    /// The paper's times where the usual ones are shorter.
    pub full: bool,
}

impl Options {
    /// The name of the chosen driver.
    pub fn driver(&self) -> &'static str {
        if self.real { "real" } else { "virtual" }
    }

    /// How parts are measured.
    pub(crate) fn effort(&self) -> Effort {
        self.effort_or(if self.real { ROUNDS } else { SEEDS })
    }

    /// The same, with this number of seeds or rounds unless said otherwise.
    pub(crate) fn effort_or(&self, seeds: u64) -> Effort {
        Effort { seeds: self.seeds.unwrap_or(seeds), quick: self.quick, full: false }
    }
}

/// Measures a part. The bar is the part's own: the part sets its length and moves it.
pub type Measure = fn(Effort, &ProgressBar) -> Result<Part>;

/// A part that is measured in one go, and stored and resumed as a whole.
pub struct Plan {
    /// Its name, which can be selected like those of its rows.
    pub id: &'static str,
    /// The rows that it gives.
    pub rows: &'static [&'static str],
    /// The function that measures it.
    pub measure: Measure,
}

impl Plan {
    fn is_wanted(&self, rows: &[String]) -> bool {
        rows.is_empty() || rows.iter().any(|row| self.id == row || self.rows.contains(&row.as_str()))
    }
}

pub(crate) fn measure(experiment: &'static str, options: &Options, effort: Effort, plans: &[Plan]) -> Result<Report> {
    for row in &options.rows {
        let known = || plans.iter().flat_map(|plan| plan.rows.iter().chain([&plan.id])).copied().collect::<Vec<_>>();
        let exists = plans.iter().any(|plan| plan.is_wanted(std::slice::from_ref(row)));
        ensure!(exists, "there is no row {row} with the {} driver; there are {}", options.driver(), known().join(", "));
    }
    let store = Store::open(&options.out, experiment, options.driver(), effort, options.fresh)?;
    let mut report = Report::new(experiment, options.driver(), effort);
    for plan in plans.iter().filter(|plan| plan.is_wanted(&options.rows)) {
        let part = match store.load(plan.id) {
            Some(part) => part,
            None => {
                let bar = progress::bar(1);
                bar.set_message(plan.id);
                let part = (plan.measure)(effort, &bar).with_context(|| format!("measuring {}", plan.id))?;
                bar.finish_and_clear();
                let rows: Vec<&str> = part.rows.iter().map(|row: &Row| row.id.as_str()).collect();
                assert_eq!(rows, plan.rows, "{} gives the rows that it announces", plan.id);
                store.save(plan.id, &part)?;
                part
            }
        };
        report.add(part);
    }
    write(&report, &options.out)?;
    Ok(report)
}

/// Writes the report and its charts into `folder`.
fn write(report: &Report, folder: &Path) -> Result<()> {
    let name = format!("{}-{}", report.experiment, report.driver);
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(&report.to_json()).context("writing the report as JSON")?;
    std::fs::write(&path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    report.charts.iter().try_for_each(|chart| chart.write(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Goal;
    use report::Head;

    const HEAD: Head = Head { id: "one", measure: "a thing", unit: "%", paper: Some(1.0), goal: Goal::at_most(2.0) };

    fn options(out: &Path, rows: &[&str], fresh: bool) -> Options {
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        Options {
            simulated: true,
            real: false,
            seeds: Some(2),
            rows,
            json: false,
            out: out.to_owned(),
            fresh,
            quick: true,
        }
    }

    fn measured(options: &Options, plans: &[Plan]) -> Result<Report> {
        measure("test", options, options.effort(), plans)
    }

    fn plans(measure: Measure) -> [Plan; 1] {
        [Plan { id: "part", rows: &["one"], measure }]
    }

    #[test]
    fn what_was_measured_is_taken_up_again_unless_it_is_to_be_fresh() {
        let folder = tempfile::tempdir().expect("a folder");
        let well = plans(|_, _| Ok(Part { rows: vec![HEAD.row(&[1.0, 3.0, 2.0])], ..Part::default() }));
        let never: Measure = |_, _| anyhow::bail!("measured again");
        let first = measured(&options(folder.path(), &[], false), &well).expect("a report");
        let again = measured(&options(folder.path(), &["one"], false), &plans(never)).expect("the same");
        assert_eq!(first.to_json(), again.to_json());
        assert_eq!(first.to_json()["rows"][0]["ours"], 2.0);
        assert!(measured(&options(folder.path(), &[], true), &plans(never)).is_err());
        let mut more = options(folder.path(), &[], false);
        more.seeds = Some(3);
        assert!(measured(&more, &plans(never)).is_err(), "other seeds are another measurement");
        assert!(folder.path().join("test-virtual.json").is_file());
    }

    #[test]
    fn a_row_that_does_not_exist_is_told_with_those_that_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let never: Measure = |_, _| anyhow::bail!("measured");
        let error = measured(&options(folder.path(), &["two"], false), &plans(never)).expect_err("no such row");
        assert!(error.to_string().contains("no row two") && error.to_string().contains("part"), "{error}");
    }
}
