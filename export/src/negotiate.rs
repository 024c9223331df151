//! What a client accepts: RFC 9110, as far as there is a choice here.

use obol_observe::metrics::text::Format;

/// An element of a list such as `text/plain;version=0.0.4;q=0.5`: its name, its parameters and its
/// weight in thousandths. A weight that cannot be read is as if there were none.
fn elements(header: &str) -> impl Iterator<Item = (&str, Vec<(&str, &str)>, u32)> {
    header.split(',').map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .collect();
        let weight = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("q"));
        let weight = weight.and_then(|(_, q)| q.parse::<f64>().ok()).filter(|q| (0.0..=1.0).contains(q));
        (name, parameters, weight.map_or(1000, |q| (q * 1000.0) as u32))
    })
}

/// The format of metrics: OpenMetrics only if the client names it, and prefers nothing else.
pub(crate) fn format(accept: Option<&str>) -> Format {
    let mut open = 0;
    let mut plain = None;
    for (name, parameters, weight) in elements(accept.unwrap_or("*/*")) {
        let version = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("version"));
        let knows = |versions: &[&str]| version.is_none_or(|(_, version)| versions.contains(version));
        if name.eq_ignore_ascii_case("application/openmetrics-text") {
            if knows(&["0.0.1", "1.0.0"]) {
                open = open.max(weight);
            }
        } else if (name.eq_ignore_ascii_case("text/plain") && knows(&["0.0.4"]))
            || name == "text/*"
            || name == "*/*"
        {
            plain = plain.max(Some(weight));
        }
    }
    if open > 0 && plain.is_none_or(|plain| open >= plain) { Format::OpenMetrics } else { Format::Prometheus }
}

/// Whether the client takes gzip.
pub(crate) fn gzip(accept_encoding: Option<&str>) -> bool {
    let mut any = None;
    for (name, _, weight) in elements(accept_encoding.unwrap_or_default()) {
        if name.eq_ignore_ascii_case("gzip") {
            return weight > 0;
        }
        if name == "*" {
            any = Some(weight > 0);
        }
    }
    any.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let open = [
            // Prometheus 2.42.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "APPLICATION/openmetrics-text;version=\"1.0.0\";q=0.5, text/plain;q=0.5",
        ];
        for accept in open {
            assert_eq!(format(Some(accept)), Format::OpenMetrics, "{accept}");
        }
        let plain = [
            "",
            "*/*",
            "text/html,*/*;q=0.8",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;q=0.4, text/plain;q=0.5",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=2.0.0, text/plain;q=0.1",
            ";;;q=,,=;version",
        ];
        for accept in plain {
            assert_eq!(format(Some(accept)), Format::Prometheus, "{accept}");
        }
        assert_eq!(format(None), Format::Prometheus);
    }

    #[test]
    fn gzip_is_for_those_who_ask_for_it() {
        for accept in ["gzip", "deflate, GZIP;q=0.5", "*", "br;q=1, *;q=0.1"] {
            assert!(gzip(Some(accept)), "{accept}");
        }
        for accept in ["", "identity", "gzip;q=0", "*;q=0", "gzip;q=0, *"] {
            assert!(!gzip(Some(accept)), "{accept}");
        }
        assert!(!gzip(None));
    }
}
