//! Answers of all brokers, as text.

use serde::de::DeserializeOwned;
use whimbrel_server::api::answers::{Said, System, Told};

use crate::control::Control;
use crate::table::name;

/// The answers of all brokers, or why a broker has none.
pub type All<T> = System<Told<T>>;

/// Asks all brokers.
pub fn ask<T: DeserializeOwned>(control: &Control, question: &str) -> anyhow::Result<All<T>> {
    control.ask("GET", &format!("/api/v1/system/{question}"))
}

/// The existing answers, by the brokers' names.
pub fn answers<T>(all: &All<T>) -> impl Iterator<Item = (&str, &T)> {
    all.brokers.iter().filter_map(|said| match &said.answer {
        Told::So(answer) => Some((&*said.name, answer)),
        Told::Not(_) => None,
    })
}

/// The brokers without an answer, and why; empty if all have answered.
pub fn absent<T>(all: &All<T>) -> String {
    let refused = all.brokers.iter().filter_map(|Said { name: broker, answer }| match answer {
        Told::Not(refused) => Some(format!("{}: {}\n", name(broker), name(&refused.error))),
        Told::So(_) => None,
    });
    refused.collect::<String>() + &unheard(&all.silent, &all.missed)
}

/// The brokers that have not answered.
pub fn unheard(silent: &[String], missed: &[String]) -> String {
    let list = |words: &str, names: &[String]| {
        let names: Vec<String> = names.iter().map(|broker| name(broker)).collect();
        if names.is_empty() { String::new() } else { format!("{words}: {}\n", names.join(", ")) }
    };
    list("has not answered within 2 s", silent) + &list("could not be asked, as there is no way or no room", missed)
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::Refused;

    use super::*;

    #[test]
    fn who_has_no_answer_is_named_with_the_reason() {
        let said = |name: &str, answer| Said { name: name.into(), answer };
        let all = System {
            brokers: vec![said("a", Told::So(7)), said("b", Told::Not(Refused { error: "too long".into() }))],
            silent: vec!["c".into()],
            missed: vec!["d".into(), "e".into()],
        };
        assert_eq!(answers(&all).collect::<Vec<_>>(), [("a", &7)]);
        let words = absent(&all);
        let expected =
            "b: too long\nhas not answered within 2 s: c\ncould not be asked, as there is no way or no room: d, e\n";
        assert_eq!(words, expected);
    }
}
