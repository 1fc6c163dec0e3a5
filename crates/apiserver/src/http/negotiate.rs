//! Content negotiation: `Accept` and `Content-Type`.

use crate::request_body::{Encoding, Format};
use crate::status_error::StatusError;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The representation of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    Object,
    /// `meta.k8s.io/v1` `Table`.
    Table,
    /// `meta.k8s.io/v1beta1` `Table`.
    OldTable,
    /// `PartialObjectMetadata`.
    Metadata,
}

/// The negotiated representation and format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub representation: Representation,
    pub format: Format,
}

/// One media range of an `Accept` header.
#[derive(Clone, Debug)]
struct Entry {
    media_type: String,
    parameters: Vec<(String, String)>,
    quality: f32,
}

impl Entry {
    fn parameter(&self, key: &str) -> &str {
        self.parameters.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    fn format(&self) -> Option<Format> {
        match self.media_type.as_str() {
            JSON | "*/*" => Some(Format::Json),
            YAML => Some(Format::Yaml),
            _ => None,
        }
    }
}

/// The `Accept` header, ordered by quality.
#[derive(Clone, Debug)]
pub(super) struct Accept(Vec<Entry>);

impl Accept {
    /// Parses the header; without one, everything is accepted.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut entries: Vec<_> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(parse_entry)
            .collect();
        entries.sort_by(|one, two| two.quality.total_cmp(&one.quality));
        Self(entries)
    }

    /// Negotiates a response with objects. Protobuf is not offered: a client that accepts nothing else gets status 406.
    pub(super) fn objects(&self) -> Result<Negotiated, StatusError> {
        if self.0.is_empty() {
            return Ok(Negotiated { representation: Representation::Object, format: Format::Json });
        }
        self.0.iter().find_map(negotiate).ok_or_else(|| self.not_acceptable())
    }

    /// Negotiates a response that has only one representation.
    pub(super) fn plain(&self) -> Result<Format, StatusError> {
        if self.0.is_empty() {
            return Ok(Format::Json);
        }
        let plain = |entry: &Entry| entry.format().filter(|_| entry.parameter("as").is_empty());
        self.0.iter().find_map(plain).ok_or_else(|| self.not_acceptable())
    }

    /// The error for a client that accepts none of the offered media types.
    fn not_acceptable(&self) -> StatusError {
        let known = |entry: &Entry| entry.format().is_some() || entry.media_type == PROTOBUF;
        let message = if self.0.iter().any(known) {
            format!("only the following media types are accepted: {JSON}, {YAML}")
        } else {
            format!("406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}, {PROTOBUF}")
        };
        StatusError::new(406, "NotAcceptable", message)
    }

    /// Whether YAML is preferred to JSON.
    pub(super) fn prefers_yaml(&self) -> bool {
        self.0.iter().find_map(Entry::format) == Some(Format::Yaml)
    }

    /// The version of aggregated discovery, if the first supported media range requests it.
    pub(super) fn aggregated_discovery(&self) -> Option<&'static str> {
        for entry in &self.0 {
            if entry.format() != Some(Format::Json) {
                continue;
            }
            if entry.parameter("as") != "APIGroupDiscoveryList" {
                return None;
            }
            match (entry.parameter("g"), entry.parameter("v")) {
                ("apidiscovery.k8s.io", "v2") => return Some("v2"),
                ("apidiscovery.k8s.io", "v2beta1") => return Some("v2beta1"),
                _ => {}
            }
        }
        None
    }
}

fn negotiate(entry: &Entry) -> Option<Negotiated> {
    let format = entry.format()?;
    let representation = match (entry.parameter("as"), entry.parameter("g"), entry.parameter("v")) {
        ("", _, _) => Representation::Object,
        ("Table", "meta.k8s.io", "v1") => Representation::Table,
        ("Table", "meta.k8s.io", "v1beta1") => Representation::OldTable,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Representation::Metadata
        }
        _ => return None,
    };
    Some(Negotiated { representation, format })
}

fn parse_entry(text: &str) -> Option<Entry> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().filter(|media_type| !media_type.is_empty())?.to_ascii_lowercase();
    let mut entry = Entry { media_type, parameters: Vec::new(), quality: 1.0 };
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"');
        if key == "q" {
            entry.quality = value.parse().unwrap_or(1.0);
        } else {
            entry.parameters.push((key.to_owned(), value.to_owned()));
        }
    }
    Some(entry)
}

/// The media type of the request body, without parameters.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The encoding of the request body.
pub(super) fn body_encoding(headers: &HeaderMap) -> Result<Encoding, StatusError> {
    match content_type(headers).as_str() {
        "" | JSON => Ok(Encoding::Text(Format::Json)),
        YAML => Ok(Encoding::Text(Format::Yaml)),
        PROTOBUF => Ok(Encoding::Protobuf),
        _ => Err(StatusError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}, {PROTOBUF}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Accept {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, text.parse().unwrap());
        Accept::read(&headers)
    }

    #[test]
    fn table_is_negotiated() {
        let text = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(
            accept(text).objects().unwrap(),
            Negotiated { representation: Representation::Table, format: Format::Json }
        );
    }

    #[test]
    fn protobuf_falls_back_to_json() {
        let both = accept("application/vnd.kubernetes.protobuf, application/json");
        assert_eq!(
            both.objects().unwrap(),
            Negotiated { representation: Representation::Object, format: Format::Json }
        );
        assert_eq!(accept("application/vnd.kubernetes.protobuf").objects().unwrap_err().code(), 406);
    }

    #[test]
    fn quality_orders_media_ranges() {
        assert!(accept("application/json;q=0.5, application/yaml").prefers_yaml());
        assert!(!accept("application/json, application/yaml;q=0.9").prefers_yaml());
        assert!(accept("*/*").objects().is_ok());
    }

    #[test]
    fn aggregated_discovery_is_negotiated() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(accept(kubectl).aggregated_discovery(), Some("v2"));
        assert_eq!(accept("application/json").aggregated_discovery(), None);
    }
}
