//! What to measure.

use crate::mixes::{Mix, Plan};

/// Arguments. Those with several values take a list with commas and measure all combinations.
#[derive(Clone, Debug)]
pub struct Options {
    pub sections: Vec<String>,
    pub mixes: Vec<Mix>,
    pub counts: Vec<usize>,
    pub matching: Vec<f64>,
    pub attributes: Vec<usize>,
    pub zipf: Vec<bool>,
    pub any_field: Vec<bool>,
    pub events: usize,
    pub rounds: usize,
    pub seed: u64,
    pub once: Option<usize>,
    /// For `--once`: what is run.
    pub with: String,
    /// For `--once`: how selective selectors are, if that is known.
    pub share: Option<f64>,
    /// For `--once`: about how many bytes a hostile selector has.
    pub size: usize,
    /// For `--once`: about how many bytes the event has that it is asked about.
    pub length: usize,
}

/// In the order of the report.
const SECTIONS: [&str; 6] = ["cells", "growth", "churn", "memory", "peer", "bystanders"];

pub const HELP: &str = "\
cargo bench -p whimbrel-selector --bench report -- [OPTIONS]
  --section LIST     cells, growth, churn, memory, peer, bystanders [all of these]; share
  --mix LIST         equality, ranges, prefix, prefix-long, prefix-range, logic, fence, logic-plain [all but the last]
  --count LIST       selectors [100000]
  --matching LIST    percent of the selectors that match an event [0.1]
  --attributes LIST  of an event: 10, 50 [10]
  --values LIST      uniform, zipf [both]
  --fields LIST      fixed (few popular ones), random (all alike) [both]
  --events N         distinct events [600]
  --rounds N         medians of so many [5]
  --seed N           [1]
  --full             all counts of 10^3 to 10^6, 0.01 to 1 percent, 10 and 50 attributes
  --no-scan          the index alone
  --once N           no report: N rounds of what `--with` names, for tools that count instructions (scripts/callgrind-selectors.sh)";

impl Options {
    /// `None` if the program was started by `cargo test`, which measures nothing.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options {
            sections: SECTIONS.map(str::to_owned).to_vec(),
            mixes: Mix::ALL[..Mix::ALL.len() - 1].iter().map(|(_, mix)| *mix).collect(),
            counts: vec![100_000],
            matching: vec![0.001],
            attributes: vec![10],
            zipf: vec![false, true],
            any_field: vec![false, true],
            events: 600,
            rounds: 5,
            seed: 1,
            once: None,
            with: "index".to_owned(),
            share: None,
            size: 100,
            length: 100,
        };
        let mut any = false;
        let mut arguments = arguments.peekable();
        while let Some(name) = arguments.next() {
            any = true;
            match &*name {
                "--bench" => continue,
                "--help" => return Err(HELP.to_owned()),
                "--full" => {
                    options.counts = vec![1_000, 10_000, 100_000, 1_000_000];
                    options.matching = vec![0.0001, 0.001, 0.01];
                    options.attributes = vec![10, 50];
                    continue;
                }
                "--no-scan" => {
                    options.with = "index-alone".to_owned();
                    continue;
                }
                _ => {}
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            options.set(&name, &value).map_err(|()| format!("{name} {value}\n{HELP}"))?;
        }
        Ok(any.then_some(options))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ()> {
        let percent = |text: &str| Some(text.parse::<f64>().ok()? / 100.0);
        let named = |text: &str| Mix::ALL.iter().find(|(name, _)| *name == text).map(|(_, mix)| *mix);
        let number = |text: &str| text.parse::<usize>().ok();
        match name {
            "--section" => self.sections = value.split(',').map(str::to_owned).collect(),
            "--mix" => self.mixes = list(value, named)?,
            "--count" => self.counts = list(value, number)?,
            "--matching" => self.matching = list(value, percent)?,
            "--attributes" => {
                self.attributes = list(value, |text| number(text).filter(|count| matches!(count, 10 | 50)))?
            }
            "--values" => self.zipf = list(value, |text| one_of(text, "uniform", "zipf"))?,
            "--fields" => self.any_field = list(value, |text| one_of(text, "fixed", "random"))?,
            "--events" => self.events = number(value).ok_or(())?,
            "--rounds" => self.rounds = number(value).ok_or(())?.max(1),
            "--seed" => self.seed = value.parse().map_err(|_| ())?,
            "--once" => self.once = Some(number(value).ok_or(())?),
            "--share" => self.share = Some(value.parse().map_err(|_| ())?),
            "--size" => self.size = number(value).ok_or(())?,
            "--length" => self.length = number(value).ok_or(())?,
            "--with" => self.with = value.to_owned(),
            _ => return Err(()),
        }
        Ok(())
    }

    pub fn has(&self, section: &str) -> bool {
        self.sections.iter().any(|name| name == section)
    }

    /// All combinations.
    pub fn plans(&self) -> Vec<Plan> {
        let mut plans = Vec::new();
        for &mix in &self.mixes {
            for &any_field in &self.any_field {
                for &zipf in &self.zipf {
                    for &attributes in &self.attributes {
                        for &count in &self.counts {
                            for &matching in &self.matching {
                                let Options { events, seed, .. } = *self;
                                plans.push(Plan { mix, attributes, zipf, any_field, count, matching, events, seed });
                            }
                        }
                    }
                }
            }
        }
        plans
    }
}

fn list<T>(value: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, ()> {
    value.split(',').map(|text| parse(text).ok_or(())).collect()
}

fn one_of(text: &str, no: &str, yes: &str) -> Option<bool> {
    (text == no || text == yes).then_some(text == yes)
}

/// The cell in words, for the left of a table.
pub fn label(plan: &Plan) -> String {
    let fields = if plan.any_field { "random" } else { "fixed" };
    let values = if plan.zipf { "zipf" } else { "uniform" };
    format!("{:12} {fields:6} {values:7} {:2}", plan.mix.name(), plan.attributes)
}
