//! Reads snapshots from zip, JSON or YAML.

use super::params::{Discovery, Replay, SchedulerParams};
use super::read_ahead::read_ahead;
use super::scan::{Limits, ScanError, Scanner, path_at};
use super::{Snapshot, SnapshotError};
use crate::config_file;
use crate::finding::{Finding, Report};
use crate::object::{Kind, Listed, Objects, Stored};
use kai_engine::input::Key;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

const TOO_LARGE: &str = "check that this is a snapshot, or split the cluster by node pool";
/// First bytes of a state that `kai up --save` has written.
const SAVED_STATE: &[u8] = b"{\"format\":\"kai-apiserver/";
/// Entries of archives that are at least so large are decompressed on another thread.
const READ_AHEAD_BYTES: u64 = 1 << 20;
const DAMAGED: &str = "check that the file is complete";
/// Limit of YAML bytes; YAML is parsed in memory.
const YAML_BYTES: u64 = 64 << 20;
/// Limit of YAML values, with aliases expanded.
const YAML_NODES: usize = 2_000_000;

pub fn read_file(path: &Path) -> Result<Snapshot, SnapshotError> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|cause| SnapshotError::Io { file: name.clone(), cause })?;
        return self::read(&name, std::io::Cursor::new(bytes), Limits::default());
    }
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|cause| SnapshotError::Io { file: name.clone(), cause })?;
    read(&name, file, Limits::default())
}

/// Reads a snapshot: a zip archive, JSON or YAML. The name is used in errors.
pub fn read(file: &str, input: impl Read + Seek + Send, limits: Limits) -> Result<Snapshot, SnapshotError> {
    let parts = read_parts(file, input, limits)?;
    let missing = |member| SnapshotError::Missing { file: file.to_owned(), member };
    if !parts.has_objects {
        return Err(if parts.is_manifest { manifest(file) } else { missing("rawObjects") });
    }
    let of_config = |cause| SnapshotError::Config { file: file.to_owned(), cause };
    let config = parts.config.ok_or_else(|| missing("config"))?;
    let params = parts.params.ok_or_else(|| missing("schedulerParams"))?;
    Ok(Snapshot {
        config: config_file::from_snapshot(&config).map_err(of_config)?,
        params: SchedulerParams::read(&params).map_err(of_config)?,
        objects: parts.objects,
        replay: parts.replay,
        discovery: parts.discovery,
        findings: parts.findings,
    })
}

fn manifest(file: &str) -> SnapshotError {
    SnapshotError::Other {
        file: file.to_owned(),
        what: "a manifest of Kubernetes objects",
        hint: "`kai what-if -f` predicts what it would do in a cluster, and `kai lint` and `kai group` check it; \
               `kai snapshot` takes a snapshot of a cluster",
    }
}

/// Reads only the objects of a snapshot; configuration and parameters may be missing.
pub fn read_objects(
    file: &str,
    input: impl Read + Seek + Send,
    limits: Limits,
) -> Result<Objects, SnapshotError> {
    Ok(read_parts(file, input, limits)?.objects)
}

#[derive(Default)]
struct Parts {
    config: Option<Value>,
    params: Option<Value>,
    has_objects: bool,
    /// It has the `kind` of an object.
    is_manifest: bool,
    objects: Objects,
    replay: Replay,
    discovery: Option<Discovery>,
    findings: Vec<Finding>,
}

fn read_parts(
    file: &str,
    mut input: impl Read + Seek + Send,
    limits: Limits,
) -> Result<Parts, SnapshotError> {
    let parts = |source: &mut dyn Read| Reader::of(file).parts(Scanner::new(source, limits));
    let io = |cause| SnapshotError::Io { file: file.to_owned(), cause };
    input.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut head = Vec::new();
    input.by_ref().take(64).read_to_end(&mut head).map_err(io)?;
    input.seek(SeekFrom::Start(0)).map_err(io)?;
    if head.starts_with(b"PK") {
        let damaged = |error: zip::result::ZipError| SnapshotError::Archive {
            file: file.to_owned(),
            problem: error.to_string(),
        };
        // The directory of an archive is at its end.
        let truncated = |_| SnapshotError::Truncated { file: file.to_owned() };
        let mut archive = zip::ZipArchive::new(BufReader::new(input)).map_err(truncated)?;
        let mut entry = archive.by_name("snapshot.json").map_err(damaged)?;
        return if entry.size() < READ_AHEAD_BYTES { parts(&mut entry) } else { read_ahead(entry, parts) };
    }
    if head.starts_with(SAVED_STATE) {
        return Err(SnapshotError::Other {
            file: file.to_owned(),
            what: "a state that `kai up --save` has written",
            hint: "start it with `kai up --load`, and take a snapshot of it with `kai snapshot`",
        });
    }
    if head.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{') {
        return parts(&mut input);
    }
    let json = yaml_as_json(file, input)?;
    parts(&mut json.as_slice())
}

fn yaml_as_json(file: &str, input: impl Read) -> Result<Vec<u8>, SnapshotError> {
    let bad = |problem: String| SnapshotError::Yaml { file: file.to_owned(), problem };
    let mut text = String::new();
    let read =
        input.take(YAML_BYTES + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if read as u64 > YAML_BYTES {
        return Err(bad(format!("it has more than {YAML_BYTES} bytes; hint: use JSON or a zip archive")));
    }
    // `y` and `on` are strings, as in YAML 1.2.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_nodes: YAML_NODES, max_events: 4 * YAML_NODES },
    };
    let value: Value = match serde_saphyr::from_str_with_options(&text, options) {
        Ok(value) => value,
        Err(_) if text.lines().filter(|line| line.starts_with("kind:")).count() > 1 => {
            return Err(manifest(file));
        }
        Err(error) => return Err(bad(config_file::yaml_problem(&error))),
    };
    drop(text);
    if !value.is_object() {
        return Err(SnapshotError::Missing { file: file.to_owned(), member: "rawObjects" });
    }
    serde_json::to_vec(&value).map_err(|error| bad(error.to_string()))
}

type Source<'a> = Scanner<&'a mut dyn Read>;

struct Reader<'a> {
    file: &'a str,
    /// Buffer of the value that is parsed, reused.
    text: Vec<u8>,
    findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    fn of(file: &'a str) -> Self {
        Self { file, text: Vec::new(), findings: Vec::new() }
    }

    fn parts(mut self, mut scanner: Source<'_>) -> Result<Parts, SnapshotError> {
        let mut parts = Parts::default();
        let mut first = true;
        let file = self.file;
        scanner.take(b'{', "an object").map_err(|e| text_error(file, e))?;
        while let Some(key) = scanner.next_key(&mut first).map_err(|e| text_error(file, e))? {
            match key.to_lowercase().as_str() {
                "config" => parts.config = self.small(&mut scanner, "config")?,
                "schedulerparams" => parts.params = self.small(&mut scanner, "schedulerParams")?,
                "discovery" => parts.discovery = self.small(&mut scanner, "discovery")?,
                "rawobjects" => {
                    parts.objects = Objects::default();
                    parts.has_objects =
                        self.members("rawObjects", &mut scanner, &mut parts.objects)?.is_some();
                }
                "replay" => {
                    let others =
                        self.members("replay", &mut scanner, &mut parts.objects)?.unwrap_or_default();
                    let replay = serde_json::from_value(Value::Object(others));
                    parts.replay = replay.map_err(|e| self.value_error("`replay`".to_owned(), &e))?;
                }
                key => {
                    parts.is_manifest |= key == "kind";
                    scanner.value(&mut self.text).map_err(|e| text_error(file, e))?;
                }
            }
        }
        if scanner.peek().map_err(|e| text_error(file, e))?.is_some() {
            let source = ScanError::Syntax { offset: scanner.offset(), expected: "the end of the file" };
            return Err(text_error(file, source));
        }
        parts.findings = self.findings;
        Ok(parts)
    }

    /// Enters a list or an object; any other value is an error that names it.
    fn enter(
        &self,
        scanner: &mut Source<'_>,
        open: u8,
        expected: &'static str,
        member: &str,
    ) -> Result<(), SnapshotError> {
        let next = scanner.peek().map_err(|e| text_error(self.file, e))?;
        if next.is_some_and(|byte| byte != open) {
            return Err(SnapshotError::Value {
                file: self.file.to_owned(),
                place: format!("`{member}`"),
                problem: format!("expected {expected}"),
                hint: "compare with a snapshot that the scheduler serves".to_owned(),
            });
        }
        scanner.take(open, expected).map_err(|e| text_error(self.file, e))
    }

    /// Reads a small member; `null` is absent.
    fn small<T: DeserializeOwned>(
        &mut self,
        scanner: &mut Source<'_>,
        member: &str,
    ) -> Result<Option<T>, SnapshotError> {
        scanner.value(&mut self.text).map_err(|e| text_error(self.file, e))?;
        serde_json::from_slice(&self.text).map_err(|error| self.element_error(member, &error))
    }

    /// Reads the lists of objects inside a member and returns its other members; `None` for `null`.
    fn members(
        &mut self,
        member: &str,
        scanner: &mut Source<'_>,
        objects: &mut Objects,
    ) -> Result<Option<Map<String, Value>>, SnapshotError> {
        let file = self.file;
        if scanner.take_null().map_err(|e| text_error(file, e))? {
            return Ok(None);
        }
        let mut others = Map::new();
        let mut first = true;
        self.enter(scanner, b'{', "an object", member)?;
        while let Some(key) = scanner.next_key(&mut first).map_err(|e| text_error(file, e))? {
            match Kind::ALL.iter().find(|kind| kind.list_key().eq_ignore_ascii_case(&key)) {
                Some(kind) => self.list_of(*kind, scanner, objects)?,
                None => {
                    if let Some(value) = self.small(scanner, &key)? {
                        others.insert(key, value);
                    }
                }
            }
        }
        Ok(Some(others))
    }

    fn list_of(
        &mut self,
        kind: Kind,
        scanner: &mut Source<'_>,
        objects: &mut Objects,
    ) -> Result<(), SnapshotError> {
        use crate::object as o;
        match kind {
            Kind::Pod => self.list::<o::Pod>(scanner, objects),
            Kind::Node => self.list::<o::Node>(scanner, objects),
            Kind::Queue => self.list::<o::Queue>(scanner, objects),
            Kind::PodGroup => self.list::<o::PodGroup>(scanner, objects),
            Kind::BindRequest => self.list::<o::BindRequest>(scanner, objects),
            Kind::PriorityClass => self.list::<o::PriorityClass>(scanner, objects),
            Kind::ConfigMap => self.list::<o::ConfigMap>(scanner, objects),
            Kind::PersistentVolume => self.list::<o::PersistentVolume>(scanner, objects),
            Kind::PersistentVolumeClaim => self.list::<o::PersistentVolumeClaim>(scanner, objects),
            Kind::CsiStorageCapacity => self.list::<o::CsiStorageCapacity>(scanner, objects),
            Kind::StorageClass => self.list::<o::StorageClass>(scanner, objects),
            Kind::CsiDriver => self.list::<o::CsiDriver>(scanner, objects),
            Kind::ResourceClaim => self.list::<o::ResourceClaim>(scanner, objects),
            Kind::ResourceSlice => self.list::<o::ResourceSlice>(scanner, objects),
            Kind::DeviceClass => self.list::<o::DeviceClass>(scanner, objects),
            Kind::Topology => self.list::<o::Topology>(scanner, objects),
            Kind::NodeResourceTopology => self.list::<o::NodeResourceTopology>(scanner, objects),
            Kind::PodDisruptionBudget => self.list::<o::PodDisruptionBudget>(scanner, objects),
            Kind::CsiNode => self.list::<o::CsiNode>(scanner, objects),
            Kind::Namespace => self.list::<o::Namespace>(scanner, objects),
        }
    }

    /// Reads a list of objects one by one. Of two with the same name the first one counts, as in KAI.
    fn list<T>(&mut self, scanner: &mut Source<'_>, objects: &mut Objects) -> Result<(), SnapshotError>
    where
        T: Listed + DeserializeOwned,
    {
        let file = self.file;
        if scanner.take_null().map_err(|e| text_error(file, e))? {
            return Ok(());
        }
        let list = T::KIND.list_key();
        let most = scanner.limits().objects;
        let mut listed: Vec<(Key, T)> = Vec::new();
        let mut first = true;
        self.enter(scanner, b'[', "a list", list)?;
        loop {
            let take = |object: T| {
                let key = object.key();
                let is_taken = !key.name.is_empty() && listed.len() < most;
                if is_taken {
                    listed.push((key, object));
                }
                is_taken
            };
            scanner.elements(&mut first, take).map_err(|e| text_error(file, e))?;
            if !scanner.next_element(&mut first).map_err(|e| text_error(file, e))? {
                break;
            }
            scanner.value(&mut self.text).map_err(|e| text_error(file, e))?;
            let object: T = self.element(&format!("{list}[{}]", listed.len()))?;
            listed.push((object.key(), object));
            if listed.len() > most {
                let source = ScanError::TooLarge { what: "objects in one list", limit: most as u64 };
                return Err(text_error(file, source));
            }
        }
        for key in objects.insert_listed(listed) {
            let mut report = Report::on(T::KIND, &key);
            report.warn(
                "metadata.name",
                "the file contains it twice, and the first one counts",
                "remove one of them",
            );
            self.findings.append(&mut report.into_findings());
        }
        Ok(())
    }

    /// The object in the current value.
    fn element<T: Stored + DeserializeOwned>(&self, place: &str) -> Result<T, SnapshotError> {
        let problem = |place: String, problem: &str, hint: &str| SnapshotError::Value {
            file: self.file.to_owned(),
            place,
            problem: problem.to_owned(),
            hint: hint.to_owned(),
        };
        // Text is parsed by the same code here as in the buffer of the scanner.
        let text = std::str::from_utf8(&self.text)
            .map_err(|_| problem(format!("`{place}`"), "the text is not UTF-8", DAMAGED))?;
        let object: T = serde_json::from_str(text).map_err(|error| self.element_error(place, &error))?;
        if object.key().name.is_empty() {
            let place = format!("`{place}`, field `metadata.name`");
            return Err(problem(place, "the object has no name", "give every object a name"));
        }
        Ok(object)
    }

    /// An error inside the current value, with the object and the field.
    fn element_error(&self, place: &str, error: &serde_json::Error) -> SnapshotError {
        let offset = byte_offset(&self.text, error.line(), error.column());
        let mut described = format!("`{place}`");
        if let Ok(named) = serde_json::from_slice::<OnlyName>(&self.text) {
            let (namespace, name) = (&*named.metadata.namespace, &*named.metadata.name);
            if !name.is_empty() {
                let slash = if namespace.is_empty() { "" } else { "/" };
                described = format!("{described} (`{namespace}{slash}{name}`)");
            }
        }
        let path = path_at(&self.text, offset);
        if !path.is_empty() {
            described = format!("{described}, field `{path}`");
        }
        self.value_error(described, error)
    }

    fn value_error(&self, place: String, error: &serde_json::Error) -> SnapshotError {
        let text = error.to_string();
        let (problem, hint) = described(text.split(" at line ").next().unwrap_or_default());
        let hint = hint.unwrap_or_else(|| "compare with the object's form in the Kubernetes API".to_owned());
        SnapshotError::Value { file: self.file.to_owned(), place, problem, hint }
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct OnlyName {
    metadata: NameOnly,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct NameOnly {
    namespace: crate::object::value::Text,
    name: crate::object::value::Text,
}

fn byte_offset(text: &[u8], line: usize, column: usize) -> usize {
    let start: usize =
        text.split_inclusive(|b| *b == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (start + column).min(text.len())
}

/// Rewrites a decoder's message for users, and returns its hint.
fn described(message: &str) -> (String, Option<String>) {
    let (problem, hint) = match message.split_once("; hint: ") {
        Some((problem, hint)) => (problem, Some(hint.to_owned())),
        None => (message, None),
    };
    let Some((found, expected)) = problem.rsplit_once(", expected ") else {
        return (problem.to_owned(), hint);
    };
    let expected = match expected {
        "f64" | "f32" => "a number",
        "i32" | "i64" | "u16" | "u32" | "u64" | "usize" => "a whole number in range",
        "a map" => "an object",
        "a sequence" => "a list",
        "a boolean" => "`true` or `false`",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    (format!("{found}, expected {expected}"), hint)
}

fn text_error(file: &str, cause: ScanError) -> SnapshotError {
    let hint = match &cause {
        ScanError::TooLarge { .. } => TOO_LARGE,
        ScanError::Read { .. } | ScanError::Syntax { .. } => DAMAGED,
    };
    SnapshotError::Text { file: file.to_owned(), hint, cause }
}
