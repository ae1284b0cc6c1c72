//! Answers of all brokers of the overlay to one question.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Refused;

/// What brokers have answered, each for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "System_{T}")]
pub struct System<T> {
    /// Those that have answered, the one that was asked first.
    pub brokers: Vec<Said<T>>,
    /// Those that were asked and have not answered within 2 s.
    pub silent: Vec<String>,
    /// Those that could not be asked: there is no way to them, or no room on it.
    pub missed: Vec<String>,
}

/// What one broker has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Said_{T}")]
pub struct Said<T> {
    /// The broker's name.
    pub name: String,
    /// Its answer.
    pub answer: T,
}

/// An answer, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Told_{T}")]
pub enum Told<T> {
    /// The broker has refused it, or its answer was too long for a letter.
    Not(Refused),
    /// The answer.
    So(T),
}

impl<T> Told<T> {
    /// The answer, mutable; `None` if there is none.
    pub fn so_mut(&mut self) -> Option<&mut T> {
        match self {
            Told::So(answer) => Some(answer),
            Told::Not(_) => None,
        }
    }
}
