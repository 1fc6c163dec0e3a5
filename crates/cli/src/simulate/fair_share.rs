//! Requests to KAI's fair share simulator: the fair shares of sibling queues at one time.

use super::fields::Fields;
use crate::render::{self, amount};
use anyhow::Result;
use kai_engine::share::division::{ResourceShare, divide};
use kai_engine::share::{QueueAmounts, RESOURCES, UNITS};
use kai_engine::verdict::QueueResource;
use kai_units::Timestamp;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// Request of a queue that gives none, as in KAI.
const REQUEST: f64 = 100_000.0;

#[derive(Debug)]
pub(super) struct FairShareRequest {
    total: [f64; 3],
    /// By UID; of two with the same UID the later one counts.
    queues: BTreeMap<String, QueueRequest>,
}

#[derive(Debug)]
struct QueueRequest {
    name: String,
    priority: i32,
    /// Queues without a valid time count as the youngest.
    created: Timestamp,
    shares: [ResourceRequest; 3],
}

/// Quota, limit, weight and request of a queue for one resource.
#[derive(Clone, Copy, Debug)]
struct ResourceRequest {
    deserved: f64,
    fair_share: f64,
    max_allowed: f64,
    weight: f64,
    request: f64,
}

impl ResourceRequest {
    /// As in KAI: CPU and memory are unlimited, and no GPU is guaranteed.
    fn default_of(resource: QueueResource) -> Self {
        let deserved = match resource {
            QueueResource::Gpu => 0.0,
            QueueResource::Cpu | QueueResource::Memory => -1.0,
        };
        Self { deserved, fair_share: 0.0, max_allowed: -1.0, weight: 1.0, request: REQUEST }
    }

    fn read(fields: &Fields<'_>) -> Result<Self> {
        Ok(Self {
            deserved: fields.number("deserved")?.unwrap_or(0.0),
            fair_share: fields.number("fairShare")?.unwrap_or(0.0),
            max_allowed: fields.number("maxAllowed")?.unwrap_or(-1.0),
            weight: fields.number("overQuotaWeight")?.unwrap_or(1.0),
            request: fields.number("request")?.unwrap_or(REQUEST),
        })
    }

    fn resource_share(
        self,
        queue: &QueueRequest,
        rank: u32,
        resource: QueueResource,
        most: f64,
    ) -> ResourceShare {
        let amount = |number: f64| base_units(resource, number, most);
        let bound = |number: f64| (number >= 0.0).then(|| amount(number));
        let request = amount(self.request);
        ResourceShare {
            quota: bound(self.deserved),
            requestable: bound(self.max_allowed).map_or(request, |limit| limit.min(request)),
            weight: self.weight,
            usage: 0.0,
            priority: queue.priority,
            rank,
            share: amount(self.fair_share),
        }
    }
}

impl FairShareRequest {
    /// `file` is used in errors.
    pub(super) fn read(file: &str, value: &Value) -> Result<Self> {
        let fields = Fields::of(value, format!("`{file}`"))?;
        let mut total = [0.0; 3];
        if let Some(totals) = fields.object("totalResource")? {
            for (amount, resource) in total.iter_mut().zip(RESOURCES) {
                *amount = totals.number(total_name(resource))?.unwrap_or(0.0);
            }
        }
        let mut queues = BTreeMap::new();
        for queue in fields.objects("queues")? {
            queues.insert(queue.text("uid")?.to_owned(), QueueRequest::read(&queue)?);
        }
        Ok(Self { total, queues })
    }

    /// Fair shares by UID.
    fn fair_shares(&self) -> BTreeMap<&str, QueueAmounts> {
        let mut by_age: Vec<(&String, &QueueRequest)> = self.queues.iter().collect();
        by_age.sort_by_key(|(uid, queue)| (queue.created, *uid));
        // The sum over all queues must not overflow, even if each has a quota of everything.
        let most = (i64::MAX / (by_age.len() as i64 + 2)) as f64;
        let mut fair_shares: BTreeMap<&str, QueueAmounts> = BTreeMap::new();
        for (at, resource) in RESOURCES.into_iter().enumerate() {
            let ranked = by_age.iter().zip(0..);
            let mut shares: Vec<ResourceShare> = ranked
                .map(|((_, queue), rank)| queue.shares[at].resource_share(queue, rank, resource, most))
                .collect();
            divide(UNITS[at], base_units(resource, self.total[at], most), 0.0, &mut shares);
            for ((uid, _), resource_share) in by_age.iter().zip(&shares) {
                fair_shares.entry(uid).or_default()[at] = resource_share.share;
            }
        }
        fair_shares
    }

    /// The response format of KAI's simulator.
    pub(super) fn json(&self) -> Result<String> {
        let shares = |share: QueueAmounts| -> Value {
            let amounts = RESOURCES.into_iter().zip(share);
            let members =
                amounts.map(|(resource, amount)| (share_name(resource).to_owned(), number(resource, amount)));
            Value::Object(members.collect::<Map<String, Value>>())
        };
        let response: Map<String, Value> =
            self.fair_shares().into_iter().map(|(uid, share)| (uid.to_owned(), shares(share))).collect();
        Ok(serde_json::to_string(&response)? + "\n")
    }

    pub(super) fn text(&self) -> String {
        let row = |(uid, share): (&str, QueueAmounts)| {
            let queue = &self.queues[uid];
            let [cpu, memory, gpu] = [0, 1, 2].map(|at| amount::text(RESOURCES[at], share[at]));
            let name = if queue.name.is_empty() { uid } else { &queue.name };
            [name.to_owned(), queue.priority.to_string(), gpu, cpu, memory]
        };
        let rows = self.fair_shares().into_iter().map(row).collect();
        let body = render::table(["QUEUE", "PRIORITY", "GPU", "CPU", "MEMORY"], rows);
        let mut text = String::new();
        render::section(&mut text, "Fair shares", body.as_deref().unwrap_or("No queues found"));
        text
    }
}

impl QueueRequest {
    fn read(fields: &Fields<'_>) -> Result<Self> {
        let mut shares = RESOURCES.map(ResourceRequest::default_of);
        if let Some(given) = fields.object("resourceShare")? {
            for (share, resource) in shares.iter_mut().zip(RESOURCES) {
                if let Some(given) = given.object(share_name(resource))? {
                    *share = ResourceRequest::read(&given)?;
                }
            }
        }
        let created =
            fields.get("creationTimestamp").and_then(Value::as_str).and_then(|text| text.parse().ok());
        Ok(Self {
            name: fields.text("name")?.to_owned(),
            priority: fields.number("priority")?.unwrap_or(0.0) as i32,
            created: created.unwrap_or(Timestamp(i64::MAX)),
            shares,
        })
    }
}

/// Field of a resource in `totalResource`.
fn total_name(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => "CPU",
        QueueResource::Memory => "Memory",
        QueueResource::Gpu => "GPU",
    }
}

/// Field of a resource in the queues of a request and in the response.
fn share_name(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => "cpu",
        QueueResource::Memory => "memory",
        QueueResource::Gpu => "gpu",
    }
}

/// Engine units per unit of the file: GPUs are devices there and millionths in the engine.
fn one(resource: QueueResource) -> f64 {
    match resource {
        QueueResource::Cpu | QueueResource::Memory => 1.0,
        QueueResource::Gpu => kai_engine::input::WHOLE_GPU as f64,
    }
}

fn base_units(resource: QueueResource, amount: f64, most: f64) -> i64 {
    (amount * one(resource)).round().clamp(-most, most) as i64
}

/// Whole numbers without decimals, as Go prints them.
fn number(resource: QueueResource, amount: i64) -> Value {
    let number = amount as f64 / one(resource);
    if number.fract() == 0.0 {
        return Value::from(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(request: &Value) -> Value {
        let request = FairShareRequest::read("f", request).expect("a request");
        serde_json::from_str(&request.json().expect("an answer")).expect("JSON")
    }

    #[test]
    fn over_quota_weights_divide_the_remainder() {
        let queue = |uid: &str, weight: u32| {
            json!({"uid": uid, "name": uid, "resourceShare": {"gpu":
                {"deserved": 10, "request": 100, "overQuotaWeight": weight}}})
        };
        let request = json!({"totalResource": {"GPU": 100, "CPU": 16_000, "Memory": 32_000_000},
            "queues": [queue("a", 3), queue("b", 1)]});
        let share = |gpu: u32| json!({"gpu": gpu, "cpu": 16_000, "memory": 100_000});
        assert_eq!(answer(&request), json!({"a": share(70), "b": share(30)}));
    }

    #[test]
    fn higher_priority_is_served_first_within_limits() {
        let request = json!({"totalResource": {"GPU": 10}, "queues": [
            {"uid": "low", "resourceShare": {"gpu": {}}},
            {"uid": "high", "priority": 1, "resourceShare": {"gpu": {"maxAllowed": 6.5}}},
            {"uid": "off", "resourceShare": {"gpu": {"request": 0}}},
        ]});
        let answer = answer(&request);
        assert_eq!(answer["high"]["gpu"], json!(6.5));
        assert_eq!(answer["low"]["gpu"], json!(3.5));
        assert_eq!(answer["off"]["gpu"], json!(0));
    }

    #[test]
    fn oldest_queue_gets_the_remainder() {
        let request = json!({"totalResource": {"GPU": 3}, "queues": [
            {"uid": "a", "creationTimestamp": "2026-02-01T00:00:00Z"},
            {"uid": "b", "creationTimestamp": "2026-01-01T00:00:00Z"},
            {"uid": "c", "creationTimestamp": "soon", "resourceShare": {"gpu": {"overQuotaWeight": 0}}},
        ]});
        let answer = answer(&request);
        assert_eq!([&answer["a"]["gpu"], &answer["b"]["gpu"], &answer["c"]["gpu"]], [1, 2, 0]);
    }

    #[test]
    fn invalid_value_is_reported_with_its_position() {
        let request =
            json!({"totalResource": {}, "queues": [{}, {"resourceShare": {"gpu": {"request": "many"}}}]});
        let error = FairShareRequest::read("f.json", &request).expect_err("no number").to_string();
        assert!(
            error.contains("`f.json`, queues[1], resourceShare, gpu: `request` is not a number"),
            "{error}"
        );
    }
}
