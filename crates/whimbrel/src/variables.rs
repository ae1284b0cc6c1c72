//! Warns of environment variables that look like Whimbrel's and are not: probably misspelt.

use std::collections::BTreeSet;

use clap::Command;

/// Prefix of Whimbrel's variables.
const PREFIX: &str = "WHIMBREL_";

/// Least similarity of two names for one to be suggested for the other (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.9;

/// Variables that orchestrators set in containers beside a service named `whimbrel`.
const OF_SERVICES: [&str; 3] = ["WHIMBREL_SERVICE_", "WHIMBREL_PORT_", "WHIMBREL_PORT"];

/// Variables of this project's tests and scripts.
const OF_TESTS: [&str; 5] =
    ["WHIMBREL_BIN", "WHIMBREL_OLD_BIN", "WHIMBREL_SEED", "WHIMBREL_SEEDS", "WHIMBREL_WRITE_DOCS"];

/// A warning for each variable with the prefix that no command knows.
pub fn unknown(command: &Command) -> Vec<String> {
    let mut known = BTreeSet::new();
    gather(command, &mut known);
    let given = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    warnings(given, &known)
}

/// Adds the variables of a command and of its subcommands.
fn gather(command: &Command, known: &mut BTreeSet<String>) {
    let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(names.map(str::to_owned));
    command.get_subcommands().for_each(|below| gather(below, known));
}

fn warnings(given: impl Iterator<Item = String>, known: &BTreeSet<String>) -> Vec<String> {
    let is_of_others = |name: &String| {
        let [service, port, bare] = OF_SERVICES;
        name.starts_with(service) || name.starts_with(port) || name == bare || OF_TESTS.contains(&&**name)
    };
    let unknown: BTreeSet<String> =
        given.filter(|name| name.starts_with(PREFIX) && !known.contains(name) && !is_of_others(name)).collect();
    let told = unknown.iter().map(|name| {
        let alike = known.iter().map(|other| (strsim::jaro_winkler(name, other), other));
        let nearest = alike.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
        match nearest {
            Some((_, other)) => format!("the variable {name} means nothing; did you mean {other}?"),
            None => format!("the variable {name} means nothing: `whimbrel serve --help` names those that there are"),
        }
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn misspelt_variables_are_told_and_others_are_not() {
        let mut known = BTreeSet::new();
        gather(&Cli::command(), &mut known);
        for name in ["WHIMBREL_LISTEN_MQTT", "WHIMBREL_URL", "WHIMBREL_PASSWORD", "WHIMBREL_API", "WHIMBREL_CONFIG"] {
            assert!(known.contains(name), "{name}");
        }
        let given = [
            "WHIMBREL_LISTEN_MQT",
            "WHIMBREL_URL",
            "WHIMBREL_SERVICE_HOST",
            "WHIMBREL_PORT_1883_TCP",
            "WHIMBREL_PORT",
            "WHIMBREL",
            "PATH",
            "WHIMBREL_ZZZ",
        ];
        let told = warnings(given.into_iter().map(str::to_owned), &known);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("WHIMBREL_LISTEN_MQT ") && told[0].contains("did you mean WHIMBREL_LISTEN_MQTT?"));
        assert!(told[1].contains("WHIMBREL_ZZZ"), "{told:?}");
    }
}
