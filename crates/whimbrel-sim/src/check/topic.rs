//! Topic filters, matched level by level as in the text of the standard, and in no other way.

/// Whether `filter`, without `$share/…/`, wants `topic`.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let filter: Vec<&str> = filter.split('/').collect();
    let topic: Vec<&str> = topic.split('/').collect();
    for (at, level) in filter.iter().enumerate() {
        match (*level, topic.get(at)) {
            ("#", _) => return true,
            (_, None) => return false,
            ("+", Some(_)) => {}
            (literal, Some(name)) if literal == *name => {}
            _ => return false,
        }
    }
    filter.len() == topic.len()
}

/// The filter inside a shared subscription's text, if it is one.
pub(super) fn shared_filter(text: &str) -> Option<&str> {
    text.strip_prefix("$share/")?.split_once('/').map(|(_, filter)| filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_standard_says() {
        for (filter, topic, wanted) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("+/+", "/finance", true),
            ("+", "/finance", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("#", "a/b", true),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
        ] {
            assert_eq!(matches(filter, topic), wanted, "{filter} {topic}");
        }
        assert_eq!(shared_filter("$share/g/a/#"), Some("a/#"));
        assert_eq!(shared_filter("a/#"), None);
    }
}
