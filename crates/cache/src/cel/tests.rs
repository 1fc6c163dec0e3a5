//! CEL device selectors as in the API.

use super::*;

fn slices() -> BTreeMap<Key, Arc<ResourceSlice>> {
    let slice: ResourceSlice = serde_json::from_str(
        r#"{"metadata":{"name":"s"},"spec":{"driver":"gpu.example.com","pool":{"name":"p"},"devices":[
            {"name":"big","attributes":{"model":{"string":"H200"},"index":{"int":1},"other.org/nic":{"bool":true},
              "driverVersion":{"version":"12.4.1"}},"capacity":{"memory":{"value":"80Gi"}}},
            {"name":"small","attributes":{"model":{"string":"T4"},"index":{"int":2}},"capacity":{"memory":{"value":"16Gi"}}}]}}"#,
    )
    .unwrap();
    let bare: ResourceSlice = serde_json::from_str(
        r#"{"metadata":{"name":"n"},"spec":{"driver":"nic.example.com","pool":{"name":"p"},"devices":[{"name":"eth"}]}}"#,
    )
    .unwrap();
    [("s", slice), ("n", bare)].map(|(name, slice)| (Key::new("", name), Arc::new(slice))).into()
}

fn selector(expression: &str) -> DeviceSelector {
    serde_json::from_value(serde_json::json!({"cel": {"expression": expression}})).unwrap()
}

fn accepted(expressions: &[&str]) -> Accepted {
    let selectors: Vec<DeviceSelector> = expressions.iter().map(|e| selector(e)).collect();
    Selectors::default().accepted(&selectors, &slices())
}

fn names(expression: &str) -> Vec<String> {
    let accepted = accepted(&[expression]);
    assert_eq!(accepted.problems, Vec::<String>::new(), "{expression}");
    accepted.devices.unwrap().into_iter().map(|d| d.device).collect()
}

#[test]
fn drivers_attributes_and_capacities_can_be_tested() {
    assert_eq!(names(r#"device.driver == "gpu.example.com""#), ["big", "small"]);
    assert_eq!(names(r#"device.attributes["gpu.example.com"].model == "H200""#), ["big"]);
    assert_eq!(names("device.attributes['gpu.example.com'].index > 1"), ["small"]);
    assert_eq!(names(r#"device.attributes["other.org"].nic"#), ["big"]);
    assert_eq!(
        names(r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#),
        ["big"]
    );
    assert_eq!(names(r#"device.capacity["gpu.example.com"].memory.isLessThan(quantity("40Gi"))"#), ["small"]);
    assert_eq!(
        names(r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("12.0.0"))"#),
        ["big"]
    );
    assert_eq!(names(r#"has(device.attributes["absent.org"].x)"#), Vec::<String>::new());
    assert_eq!(names(r#"device.attributes["gpu.example.com"].model.startsWith("T")"#), ["small"]);
}

#[test]
fn all_selectors_must_accept() {
    let both = accepted(&[
        r#"device.driver == "gpu.example.com""#,
        r#"device.attributes["gpu.example.com"].index == 2"#,
    ]);
    assert_eq!(both.devices.unwrap().len(), 1);
    assert_eq!(accepted(&[]).devices, None);
}

#[test]
fn failing_expressions_accept_nothing_and_report_the_problem() {
    let deep = "(".repeat(5000);
    let many = "1+".repeat(2000);
    for bad in
        ["device.", "1 + 1", "device.nonsense == 1", "nonsense(device)", &deep, &many, "true ? : 1", "'"]
    {
        let accepted = accepted(&[bad]);
        assert_eq!(accepted.devices, Some(vec![]), "{bad}");
        assert_eq!(accepted.problems.len(), 1, "{bad}");
    }
}

#[test]
fn changed_slice_is_evaluated_again() {
    let mut slices = slices();
    let mut selectors = Selectors::default();
    let wanted = [selector(r#"device.attributes["gpu.example.com"].model == "T4""#)];
    assert_eq!(selectors.accepted(&wanted, &slices).devices.unwrap().len(), 1);
    let key = Key::new("", "s");
    Arc::make_mut(slices.get_mut(&key).unwrap()).spec.devices = crate::object::value::List::default();
    selectors.forget(&key);
    assert_eq!(selectors.accepted(&wanted, &slices).devices.unwrap().len(), 0);
}
