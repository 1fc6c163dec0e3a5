//! Sends the steps of a feature to a server and records the responses.

use super::normalize::{self, RawResponse};
use super::variables::{Values, fill, fill_value};
use super::{Entry, Error, Feature, Step};
use crate::client::{self, Client, Lines, Server};
use crate::webhook::Webhook;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Headers that clients use.
const HEADERS: [&str; 5] = ["content-type", "warning", "allow", "retry-after", "location"];

/// How long a watch waits for an expected event: long, for a machine with many busy processes.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a watch of which no event is expected must be silent.
const SILENCE: Duration = Duration::from_secs(4);

/// How long a watch waits for unexpected events after the expected ones.
const EXTRA_EVENT_TIMEOUT: Duration = Duration::from_millis(120);

/// Period and number of the attempts of a step with `until`.
const ATTEMPT_PERIOD: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 600;

/// The server under test.
pub struct Target<'a> {
    pub server: Server,
    /// Bearer tokens by user; `admin` is a cluster administrator.
    pub tokens: BTreeMap<String, String>,
    pub webhook: &'a Webhook,
}

/// Runs a feature, and returns its normalised transcript.
pub async fn run(feature: &Feature, target: &Target<'_>) -> Result<Vec<Entry>, Error> {
    let mut values = Values::from([
        ("ns".to_owned(), feature.namespaces[0].clone()),
        ("webhook".to_owned(), target.webhook.url()),
        ("bundle".to_owned(), target.webhook.bundle()),
    ]);
    for (number, namespace) in feature.namespaces.iter().enumerate() {
        values.insert(format!("ns{}", number + 1), namespace.clone());
    }
    let scrubbed = vec![
        (target.webhook.url(), "<webhook>".to_owned()),
        (target.webhook.bundle(), "<bundle>".to_owned()),
        (target.server.address().to_string(), "<server>".to_owned()),
    ];
    let client = Client::new(target.server.clone());
    let mut runner = Runner { feature, target, client, values, transcript: Vec::new() };
    for namespace in &feature.namespaces {
        runner.create_namespace(namespace).await?;
    }
    for step in &feature.setup {
        runner.step(step).await?;
    }
    runner.transcript.clear();
    for step in &feature.steps {
        runner.step(step).await?;
    }
    Ok(normalize::transcript(runner.transcript, feature.managed_fields, &scrubbed))
}

struct Runner<'a> {
    feature: &'a Feature,
    target: &'a Target<'a>,
    client: Client,
    values: Values,
    transcript: Vec<RawResponse>,
}

impl Runner<'_> {
    /// Creates a namespace with the service account that pods need, since no controller runs.
    async fn create_namespace(&mut self, name: &str) -> Result<(), Error> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": name },
            "automountServiceAccountToken": false,
        });
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default?fieldManager=suite&force=true");
        self.step(&plain("POST /api/v1/namespaces".to_owned(), namespace, None)).await?;
        self.step(&plain(format!("PATCH {path}"), account, Some("apply".to_owned()))).await
    }

    fn error(&self, step: &Step, problem: &str) -> Error {
        Error::Step {
            feature: self.feature.name.clone(),
            step: step.step.clone(),
            problem: problem.to_owned(),
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), Error> {
        tokio::time::sleep(Duration::from_millis(step.pause)).await;
        let (method, path) =
            step.request.split_once(' ').ok_or_else(|| self.error(step, "no `METHOD /path`"))?;
        if method == "WATCH" {
            return Box::pin(self.watch(step, path)).await;
        }
        let mut attempts = if step.until.is_some() { ATTEMPTS } else { 1 };
        let response = loop {
            let request = self.request(step, method, path).map_err(|problem| self.error(step, &problem))?;
            let response = self.client.send(request).await;
            attempts -= 1;
            let matches =
                |wanted: u16| response.as_ref().is_ok_and(|response| response.status.as_u16() == wanted);
            if attempts == 0 || step.until.is_none_or(matches) {
                break response;
            }
            tokio::time::sleep(ATTEMPT_PERIOD).await;
        };
        let entry = match response {
            Ok(response) => {
                let entry = Entry {
                    step: step.step.clone(),
                    code: response.status.as_u16(),
                    headers: kept_headers(&response.headers),
                    body: parsed(&response.body),
                    ..Entry::default()
                };
                self.capture(step, &entry.body.clone());
                entry
            }
            // A broken connection is recorded, so that the comparison shows it.
            Err(error) => no_response(step, &error),
        };
        self.transcript.push(RawResponse { entry, keep: step.keep.clone(), any_order: step.any_order });
        Ok(())
    }

    async fn watch(&mut self, step: &Step, path: &str) -> Result<(), Error> {
        let request = self.request(step, "GET", path).map_err(|problem| self.error(step, &problem))?;
        let opened = self.client.server().clone().stream(request).await;
        let position = self.transcript.len();
        for inner in &step.during {
            Box::pin(self.step(inner)).await?;
        }
        let entry = match opened {
            Ok(lines) => collect_events(step, lines).await,
            Err(error) => no_response(step, &error),
        };
        if let Some(last) = entry.events.last() {
            self.capture(step, &last.clone());
        }
        self.transcript
            .insert(position, RawResponse { entry, keep: step.keep.clone(), any_order: step.any_order });
        Ok(())
    }

    fn capture(&mut self, step: &Step, body: &Value) {
        for (name, pointer) in &step.capture {
            let value = match body.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => format!("no-{name}"),
            };
            self.values.insert(name.clone(), value);
        }
    }

    fn request(&self, step: &Step, method: &str, path: &str) -> Result<Request<Full<Bytes>>, String> {
        let fill_in = |text: &str| fill(text, &self.values);
        let mut request =
            Request::builder().method(method).uri(encoded(&fill_in(path)?)).header("host", "kubernetes.test");
        let user = step.user.as_deref().unwrap_or("admin");
        if user != "anonymous" {
            let token = self.target.tokens.get(user).map_or("unknown-token", String::as_str);
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = match (&step.body, &step.text) {
            (Some(value), _) => fill_value(value, &self.values)?.to_string(),
            (None, Some(text)) => fill_in(text)?,
            (None, None) => String::new(),
        };
        let given = step.content_type.as_deref();
        if let Some(content_type) = given.or((!body.is_empty()).then_some("application/json"))
            && content_type != "none"
        {
            request = request.header("content-type", content_type_of(content_type));
        }
        request = request.header("accept", accept_of(step.accept.as_deref().unwrap_or("application/json")));
        for (name, value) in &step.headers {
            request = request.header(name, fill_in(value)?);
        }
        request.body(Full::from(body)).map_err(|error| error.to_string())
    }
}

/// Percent-encodes characters that a URI does not allow, so that selectors can be written unencoded.
fn encoded(path: &str) -> String {
    let mut all = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter.is_ascii_graphic() && !"\"<>\\^`{|}".contains(letter) {
            all.push(letter);
        } else {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                all.extend(['%', hex(byte >> 4), hex(byte & 15)]);
            }
        }
    }
    all
}

fn hex(digit: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(digit)])
}

fn plain(request: String, body: Value, content_type: Option<String>) -> Step {
    Step {
        step: request.clone(),
        request,
        user: None,
        body: Some(body),
        text: None,
        content_type,
        accept: None,
        headers: BTreeMap::new(),
        capture: BTreeMap::new(),
        each: Vec::new(),
        keep: Vec::new(),
        any_order: false,
        until: None,
        pause: 0,
        events: 0,
        during: Vec::new(),
    }
}

fn content_type_of(name: &str) -> &str {
    match name {
        "json-patch" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        other => other,
    }
}

fn accept_of(name: &str) -> &str {
    match name {
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "partial-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        other => other,
    }
}

fn no_response(step: &Step, error: &client::Error) -> Entry {
    Entry { step: step.step.clone(), end: Some(format!("no answer: {error}")), ..Entry::default() }
}

fn kept_headers(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut kept = BTreeMap::new();
    for name in HEADERS {
        let values: Vec<String> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into())
            .collect();
        // The default content type is left out of the recordings.
        if !values.is_empty() && values != ["application/json"] {
            kept.insert(name.to_owned(), values);
        }
    }
    kept
}

fn parsed(body: &[u8]) -> Value {
    match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(_) if body.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(body).into_owned()),
    }
}

/// Whether an event is a periodic bookmark. The bookmark after the initial events is compared.
fn is_periodic_bookmark(event: &Value) -> bool {
    let mark = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
    event["type"] == "BOOKMARK" && mark.is_null()
}

/// Collects the events of a watch until the expected number, the end of the watch, or a timeout.
async fn collect_events(step: &Step, mut lines: Lines) -> Entry {
    let mut entry = Entry {
        step: step.step.clone(),
        code: lines.status.as_u16(),
        headers: kept_headers(&lines.headers),
        ..Entry::default()
    };
    if !lines.status.is_success() {
        entry.body = lines.rest().await.map_or(Value::Null, |body| parsed(&body));
        return entry;
    }
    let end = loop {
        let enough = step.events > 0 && entry.events.len() >= step.events;
        let timeout = match step.events {
            0 => SILENCE,
            _ if enough => EXTRA_EVENT_TIMEOUT,
            _ => EVENT_TIMEOUT,
        };
        match tokio::time::timeout(timeout, lines.next()).await {
            Ok(Ok(Some(line))) => {
                let event = parsed(&line);
                if !is_periodic_bookmark(&event) {
                    entry.events.push(event);
                }
            }
            Ok(Ok(None)) => break "the server ended it",
            Ok(Err(_)) => break "the connection broke",
            Err(_) if enough => break "enough",
            Err(_) => break "silence",
        }
    };
    entry.end = Some(end.to_owned());
    entry
}
