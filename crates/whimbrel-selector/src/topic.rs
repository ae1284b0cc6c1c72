//! Topic names and topic filters: their syntax, and matching.

use core::fmt;

/// The longest topic name or filter, bytes (the protocol's own bound).
pub const TEXT_MAX: usize = u16::MAX as usize;

/// The most levels of a topic name or filter. Bounds the depth of the index and the cost of a
/// match.
pub const LEVELS_MAX: usize = 128;

/// The reason why a text is not a topic name or filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicError {
    /// The text has no character.
    Empty,
    /// The text has more than [`TEXT_MAX`] bytes.
    TooLong,
    /// The text has more than [`LEVELS_MAX`] levels.
    TooDeep,
    /// The text contains U+0000.
    Null,
    /// A topic name contains `+` or `#`.
    WildcardInName,
    /// `+` is not alone in its level.
    PlusNotAlone,
    /// `#` is not alone in the last level.
    HashNotLast,
    /// `$share/` is not followed by a group name without wildcards and a filter.
    BadShare,
}

impl TopicError {
    /// The rule that the text breaks.
    pub const fn why(self) -> &'static str {
        match self {
            TopicError::Empty => "a topic has at least one character",
            TopicError::TooLong => "a topic has at most 65,535 bytes",
            TopicError::TooDeep => "a topic has at most 128 levels",
            TopicError::Null => "a topic must not contain U+0000",
            TopicError::WildcardInName => "a topic name must not contain + or #",
            TopicError::PlusNotAlone => "+ must stand alone between slashes",
            TopicError::HashNotLast => "# must stand alone behind the last slash",
            TopicError::BadShare => "a shared subscription is $share/<group>/<filter>, the group without / + #",
        }
    }
}

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why())
    }
}

impl core::error::Error for TopicError {}

fn check_text(text: &str) -> Result<(), TopicError> {
    if text.is_empty() {
        return Err(TopicError::Empty);
    }
    if text.len() > TEXT_MAX {
        return Err(TopicError::TooLong);
    }
    let mut levels = 1;
    for byte in text.bytes() {
        match byte {
            0 => return Err(TopicError::Null),
            b'/' => levels += 1,
            _ => {}
        }
    }
    if levels > LEVELS_MAX { Err(TopicError::TooDeep) } else { Ok(()) }
}

/// A well-formed topic name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicName<'a>(&'a str);

impl<'a> TopicName<'a> {
    /// Checks `text`.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn new(text: &'a str) -> Result<Self, TopicError> {
        check_text(text)?;
        if text.bytes().any(|b| b == b'+' || b == b'#') { Err(TopicError::WildcardInName) } else { Ok(TopicName(text)) }
    }

    /// A name that has been checked before.
    pub fn checked(text: &'a str) -> Self {
        debug_assert!(TopicName::new(text).is_ok(), "{text} is no topic name");
        TopicName(text)
    }

    /// The name as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// True for names that wildcards in the first level do not match.
    pub fn is_system(self) -> bool {
        self.0.starts_with('$')
    }
}

/// A well-formed topic filter, without `$share/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicFilter<'a>(&'a str);

impl<'a> TopicFilter<'a> {
    /// A filter that has been checked before.
    pub fn checked(text: &'a str) -> Self {
        debug_assert!(TopicFilter::new(text).is_ok(), "{text} is no topic filter");
        TopicFilter(text)
    }

    /// Checks `text`.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn new(text: &'a str) -> Result<Self, TopicError> {
        check_text(text)?;
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            if level.contains('#') && (level != "#" || levels.peek().is_some()) {
                return Err(TopicError::HashNotLast);
            }
            if level.contains('+') && level != "+" {
                return Err(TopicError::PlusNotAlone);
            }
        }
        Ok(TopicFilter(text))
    }

    /// The filter as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// True if the filter has `+` or `#`.
    pub fn has_wildcard(self) -> bool {
        self.0.bytes().any(|b| b == b'+' || b == b'#')
    }

    /// The part of the text before the first wildcard; every name that the filter matches either
    /// begins with it or, for `prefix/#`, is the prefix without its last slash.
    pub fn literal_prefix(self) -> &'a str {
        self.0.find(['+', '#']).map_or(self.0, |at| &self.0[..at])
    }

    /// Whether a name matches, level by level. The index gives the same result for many filters at
    /// once.
    pub fn matches(self, name: TopicName<'_>) -> bool {
        if self.0 == name.0 {
            // A name has no wildcards, and so the filter has none.
            return true;
        }
        if name.is_system() && !self.0.starts_with('$') && (self.0.starts_with('+') || self.0.starts_with('#')) {
            return false;
        }
        let mut filter = self.0.split('/');
        let mut name = name.0.split('/');
        loop {
            match (filter.next(), name.next()) {
                (Some("#"), _) => return true,
                (Some("+"), Some(_)) => {}
                (Some(wanted), Some(level)) if wanted == level => {}
                (None, None) => return true,
                _ => return false,
            }
        }
    }

    /// Whether a name exists that matches both. `true` may also mean that only a name beyond the
    /// length limits would.
    pub fn intersects(self, other: TopicFilter<'_>) -> bool {
        if self.hides_system_from(other) || other.hides_system_from(self) {
            return false;
        }
        let mut one = self.0.split('/');
        let mut two = other.0.split('/');
        loop {
            match (one.next(), two.next()) {
                (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
                (Some(a), Some(b)) if a == b || a == "+" || b == "+" => {}
                _ => return false,
            }
        }
    }

    /// Whether every name that matches `other` matches this filter, too.
    pub fn covers(self, other: TopicFilter<'_>) -> bool {
        if self.hides_system_from(other) {
            return false;
        }
        if self.0 == "+/#" && other.0 == "#" {
            return true;
        }
        let mut wide = self.0.split('/');
        let mut narrow = other.0.split('/');
        loop {
            match (wide.next(), narrow.next()) {
                (Some("#"), _) | (None, None) => return true,
                (_, Some("#")) => return false,
                (Some(a), Some(b)) if a == b || a == "+" => {}
                _ => return false,
            }
        }
    }

    /// Whether `other` matches names that wildcards in the first level do not match, and this
    /// filter begins with such a wildcard.
    fn hides_system_from(self, other: TopicFilter<'_>) -> bool {
        self.0.starts_with(['+', '#']) && other.0.starts_with('$')
    }
}

/// A filter as subscribers write it: plain, or `$share/<group>/<filter>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedFilter<'a> {
    /// The group, if the subscription is shared.
    pub group: Option<&'a str>,
    /// The filter that is matched.
    pub filter: TopicFilter<'a>,
}

impl<'a> SharedFilter<'a> {
    /// Splits and checks `text`.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        let Some(rest) = text.strip_prefix("$share/") else {
            return if text == "$share" {
                Err(TopicError::BadShare)
            } else {
                Ok(SharedFilter { group: None, filter: TopicFilter::new(text)? })
            };
        };
        let (group, filter) = rest.split_once('/').ok_or(TopicError::BadShare)?;
        if group.is_empty() || group.contains(['+', '#']) || filter.is_empty() {
            return Err(TopicError::BadShare);
        }
        check_text(text)?;
        Ok(SharedFilter { group: Some(group), filter: TopicFilter::new(filter)? })
    }

    /// Splits a text that has been checked before.
    pub fn checked(text: &'a str) -> Self {
        debug_assert!(SharedFilter::parse(text).is_ok(), "{text} is no filter");
        match text.strip_prefix("$share/").and_then(|rest| rest.split_once('/')) {
            Some((group, filter)) => SharedFilter { group: Some(group), filter: TopicFilter(filter) },
            None => SharedFilter { group: None, filter: TopicFilter(text) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str, name: &str) -> bool {
        TopicFilter::new(filter).expect("a good filter").matches(TopicName::new(name).expect("a good name"))
    }

    #[test]
    fn wildcards_match_whole_levels() {
        for (filter, name, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("#", "sport/tennis", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/monitor", true),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
            ("a", "A", false),
        ] {
            assert_eq!(matches(filter, name), expected, "{filter} against {name}");
        }
    }

    /// All filters or names of up to `depth` of these levels.
    fn texts(levels: &[&str], depth: usize) -> Vec<String> {
        let mut all: Vec<String> = levels.iter().map(|level| String::from(*level)).collect();
        let mut last = all.clone();
        for _ in 1..depth {
            last = last.iter().flat_map(|text| levels.iter().map(move |level| format!("{text}/{level}"))).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn filters_intersect_and_cover_as_their_names_do() {
        let names = texts(&["a", "b", "$s", ""], 5);
        let names: Vec<TopicName<'_>> = names.iter().filter_map(|name| TopicName::new(name).ok()).collect();
        let filters = texts(&["a", "$s", "+", "#"], 3);
        let filters: Vec<TopicFilter<'_>> = filters.iter().filter_map(|text| TopicFilter::new(text).ok()).collect();
        assert!(filters.len() > 40);
        let matching: Vec<Vec<bool>> =
            filters.iter().map(|filter| names.iter().map(|name| filter.matches(*name)).collect()).collect();
        for (one, of_one) in filters.iter().zip(&matching) {
            for (two, of_two) in filters.iter().zip(&matching) {
                let both = of_one.iter().zip(of_two).any(|(a, b)| *a && *b);
                assert_eq!(one.intersects(*two), both, "{} and {}", one.as_str(), two.as_str());
                let all = of_one.iter().zip(of_two).all(|(a, b)| *a || !*b);
                assert_eq!(one.covers(*two), all, "{} over {}", one.as_str(), two.as_str());
            }
        }
    }

    #[test]
    fn malformed_filters_say_why() {
        for (text, error) in [
            ("", TopicError::Empty),
            ("a\0", TopicError::Null),
            ("sport/tennis#", TopicError::HashNotLast),
            ("sport/#/ranking", TopicError::HashNotLast),
            ("sport+", TopicError::PlusNotAlone),
        ] {
            assert_eq!(TopicFilter::new(text), Err(error), "{text}");
        }
        assert_eq!(TopicName::new("a/+"), Err(TopicError::WildcardInName));
        assert_eq!(TopicFilter::new(&"/".repeat(LEVELS_MAX)), Err(TopicError::TooDeep));
        assert!(TopicFilter::new(&"/".repeat(LEVELS_MAX - 1)).is_ok());
        assert_eq!(TopicName::new(&"a".repeat(TEXT_MAX + 1)), Err(TopicError::TooLong));
    }

    #[test]
    fn a_share_is_split_into_group_and_filter() {
        let shared = SharedFilter::parse("$share/g/a/+").expect("well-formed");
        assert_eq!((shared.group, shared.filter.as_str()), (Some("g"), "a/+"));
        for text in ["$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a"] {
            assert_eq!(SharedFilter::parse(text), Err(TopicError::BadShare), "{text}");
        }
        assert_eq!(SharedFilter::parse("$shared/x").map(|s| s.group), Ok(None));
    }
}
