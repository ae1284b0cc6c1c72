//! The two text formats of metrics, and the choice between them.

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    Open,
    /// Prometheus 0.0.4, which scrapers other than Prometheus read.
    Classic,
}

impl Format {
    /// The format that the Accept headers of a request prefer; without a preference, OpenMetrics.
    pub fn wanted<'a>(accepts: impl Iterator<Item = &'a str>) -> Format {
        let (mut open, mut classic) = (0.0_f32, 0.0_f32);
        for range in accepts.flat_map(|accept| accept.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match &*kind {
                "application/openmetrics-text" => open = open.max(quality),
                "text/plain" | "text/*" => classic = classic.max(quality),
                _ => {}
            }
        }
        if classic > open { Format::Classic } else { Format::Open }
    }

    /// The format's media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts a text of OpenMetrics to this format.
    pub(super) fn of_open_metrics(self, text: String) -> String {
        match self {
            Format::Open => text,
            Format::Classic => classic(&text),
        }
    }
}

/// Converts metrics to the classic format: there a counter is called as its samples are, an info is
/// a gauge, and nothing marks the end. Each metric is its HELP, its TYPE, and then its samples.
fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, words)) = help.take() {
                out += &format!("# HELP {name}{suffix} {words}\n");
            }
            out += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_the_classic_format_gets_it_and_nobody_else() {
        let of = |accept: &str| Format::wanted([accept].into_iter());
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for open in ["", "*/*", prometheus, "application/openmetrics-text", "text/html, */*;q=0.8", "text/plain;q=0"] {
            assert_eq!(of(open), Format::Open, "{open}");
        }
        let old = "application/openmetrics-text;q=0.2, text/plain;version=0.0.4;q=0.9";
        for classic in
            ["text/plain", "text/plain; version=0.0.4; charset=utf-8", old, "Text/Plain , */*;q=0.1", "text/*"]
        {
            assert_eq!(of(classic), Format::Classic, "{classic}");
        }
        assert_eq!(Format::wanted(["text/html", "text/plain"].into_iter()), Format::Classic, "of two headers");
        assert_eq!(Format::wanted([].into_iter()), Format::Open);
    }

    #[test]
    fn counters_and_infos_are_called_as_their_samples() {
        let open = "# HELP a Counts.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b Is.\n# TYPE b gauge\nb 3\n# HELP i About.\n\
                    # TYPE i info\ni_info{v=\"# TYPE\"} 1\n# HELP h Takes.\n# TYPE h histogram\nh_sum 0.5\nh_count 1\n\
                    h_bucket{le=\"+Inf\"} 1\n# HELP u Odd.\n# TYPE u unknown\nu 1\n# EOF\n";
        let expected = "# HELP a_total Counts.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# HELP b Is.\n# TYPE b gauge\nb 3\n\
                        # HELP i_info About.\n# TYPE i_info gauge\ni_info{v=\"# TYPE\"} 1\n# HELP h Takes.\n# TYPE h histogram\n\
                        h_sum 0.5\nh_count 1\nh_bucket{le=\"+Inf\"} 1\n# HELP u Odd.\n# TYPE u untyped\nu 1\n";
        assert_eq!(classic(open), expected);
    }
}
