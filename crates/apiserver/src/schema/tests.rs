//! Validation by schemas of custom and built-in kinds, case by case.

#![expect(clippy::needless_pass_by_value, reason = "literals read better without borrows")]

use super::*;
use crate::field::Path;
use serde_json::json;

fn custom(spec: Value) -> Schema {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    Schema::of_definition(&schema, &Path::of("schema")).unwrap()
}

fn errors(schema: &Schema, spec: Value) -> Vec<String> {
    validate(schema, &json!({"spec": spec}), Old::None).iter().map(ToString::to_string).collect()
}

fn update_errors(schema: &Schema, old: Value, new: Value) -> Vec<String> {
    let (old, new) = (json!({"spec": old}), json!({"spec": new}));
    validate(schema, &new, Old::Value(&old)).iter().map(ToString::to_string).collect()
}

#[test]
fn type_errors_equal_kube_apiserver() {
    let schema = custom(json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "i32": {"type": "integer", "format": "int32"}, "s": {"type": "string"},
        "t": {"type": "string", "format": "date-time"}, "l": {"type": "array", "items": {"type": "string"}},
        "p": {"x-kubernetes-int-or-string": true}, "n": {"type": "string", "nullable": true}, "f": {"type": "number"},
        "o": {"type": "object", "properties": {}}, "b": {"type": "boolean"},
    }}));
    let cases = [
        (
            json!({"i": "x"}),
            r#"spec.i: Invalid value: "string": spec.i in body must be of type integer: "string""#,
        ),
        (
            json!({"i": 1.5}),
            r#"spec.i: Invalid value: "number": spec.i in body must be of type integer: "number""#,
        ),
        (
            json!({"i32": 1.5}),
            r#"spec.i32: Invalid value: "double": spec.i32 in body must be of type int32: "double""#,
        ),
        (
            json!({"i32": 3_000_000_000_i64}),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i32"#,
        ),
        (json!({"i32": true}), r#"spec.i32: Invalid value: "": spec.i32 in body must be of type int32: """#),
        (
            json!({"i32": "x"}),
            r#"spec.i32: Invalid value: "string": spec.i32 in body must be of type integer: "string""#,
        ),
        (
            json!({"s": 1}),
            r#"spec.s: Invalid value: "integer": spec.s in body must be of type string: "integer""#,
        ),
        (
            json!({"s": null}),
            r#"spec.s: Invalid value: "null": spec.s in body must be of type string: "null""#,
        ),
        (json!({"t": "x"}), r#"spec.t: Invalid value: "x": spec.t in body must be of type date-time: "x""#),
        (
            json!({"l": ["a", 1]}),
            r#"spec.l[1]: Invalid value: "integer": spec.l[1] in body must be of type string: "integer""#,
        ),
        (
            json!({"p": true}),
            r#"spec.p: Invalid value: "boolean": spec.p in body must be of type integer,string: "boolean""#,
        ),
        (
            json!({"o": []}),
            r#"spec.o: Invalid value: "array": spec.o in body must be of type object: "array""#,
        ),
        (json!("x"), r#"spec: Invalid value: "string": spec in body must be of type object: "string""#),
    ];
    for (spec, expected) in cases {
        assert_eq!(errors(&schema, spec.clone()), [expected], "{spec}");
    }
    let good =
        json!({"i": 1.0, "i32": 2, "p": "80%", "n": null, "f": 1, "t": "2026-01-01T00:00:00Z", "b": false});
    assert_eq!(errors(&schema, good), Vec::<String>::new());
}

#[test]
fn limit_errors_equal_kube_apiserver() {
    let schema = custom(json!({"type": "object", "required": ["need"], "maxProperties": 20, "properties": {
        "need": {"type": "string"},
        "e": {"type": "string", "enum": ["b", "c"]}, "en": {"type": "integer", "enum": [1, 2]},
        "min": {"type": "integer", "minimum": 1, "maximum": 9},
        "ex": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": true},
        "mul": {"type": "integer", "multipleOf": 5},
        "len": {"type": "string", "minLength": 2, "maxLength": 3}, "pat": {"type": "string", "pattern": "^a+$"},
        "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
        "map": {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "integer"}},
    }}));
    let cases = [
        (json!({}), "spec.need: Required value"),
        (json!({"need": "", "e": "a"}), r#"spec.e: Unsupported value: "a": supported values: "b", "c""#),
        (json!({"need": "", "en": 3}), r#"spec.en: Unsupported value: 3: supported values: "1", "2""#),
        (
            json!({"need": "", "min": 0}),
            "spec.min: Invalid value: 0: spec.min in body should be greater than or equal to 1",
        ),
        (
            json!({"need": "", "min": 10}),
            "spec.min: Invalid value: 10: spec.min in body should be less than or equal to 9",
        ),
        (json!({"need": "", "ex": 1}), "spec.ex: Invalid value: 1: spec.ex in body should be greater than 1"),
        (json!({"need": "", "ex": 3}), "spec.ex: Invalid value: 3: spec.ex in body should be less than 3"),
        (
            json!({"need": "", "mul": 7}),
            "spec.mul: Invalid value: 7: spec.mul in body should be a multiple of 5",
        ),
        (
            json!({"need": "", "len": "a"}),
            r#"spec.len: Invalid value: "a": spec.len in body should be at least 2 chars long"#,
        ),
        (json!({"need": "", "len": "aaaa"}), "spec.len: Too long: may not be more than 3 bytes"),
        (
            json!({"need": "", "pat": "b"}),
            r#"spec.pat: Invalid value: "b": spec.pat in body should match '^a+$'"#,
        ),
        (
            json!({"need": "", "items": []}),
            "spec.items: Invalid value: 0: spec.items in body should have at least 1 items",
        ),
        (json!({"need": "", "items": [1, 2, 3]}), "spec.items: Too many: 3: must have at most 2 items"),
        (
            json!({"need": "", "map": {}}),
            "spec.map: Invalid value: 0: spec.map in body should have at least 1 properties",
        ),
        (json!({"need": "", "map": {"a": 1, "b": 2}}), "spec.map: Too many: 2: must have at most 1 item"),
        (
            json!({"need": "", "map": {"a": "x"}}),
            r#"spec.map.a: Invalid value: "string": spec.map.a in body must be of type integer: "string""#,
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(errors(&schema, spec.clone()), [expected], "{spec}");
    }
}

#[test]
fn junctors_report_the_path_and_the_best_match() {
    let fields = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let with = |name: &str, value: Value| {
        let mut schema = json!({"type": "object", "properties": fields});
        schema[name] = value;
        custom(schema)
    };
    let alternatives = json!([{"required": ["a"]}, {"required": ["b"]}]);
    assert_eq!(
        errors(&with("oneOf", alternatives.clone()), json!({})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.a: Required value",
        ]
    );
    assert_eq!(
        errors(&with("oneOf", alternatives.clone()), json!({"a": "", "b": ""})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]
    );
    assert!(errors(&with("anyOf", alternatives.clone()), json!({"b": ""})).is_empty());
    assert_eq!(
        errors(&with("anyOf", alternatives.clone()), json!({})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)"#,
            "spec.a: Required value"
        ]
    );
    assert_eq!(
        errors(&with("allOf", alternatives), json!({"a": ""})),
        [
            "spec.b: Required value",
            r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf)"#
        ]
    );
    assert_eq!(
        errors(&with("not", json!({"required": ["a"]})), json!({"a": ""})),
        [r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#]
    );
}

#[test]
fn set_and_map_elements_are_unique() {
    let schema = custom(json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    }}));
    assert_eq!(
        errors(&schema, json!({"set": ["a", "b", "a", "a"]})),
        [r#"spec.set[2]: Duplicate value: "a""#]
    );
    assert_eq!(
        errors(&schema, json!({"map": [{"name": "a"}, {"name": "a"}]})),
        [r#"spec.map[1]: Duplicate value: {"name":"a"}"#]
    );
}

#[test]
fn unchanged_values_are_ratcheted() {
    let schema = custom(json!({"type": "object", "properties": {
        "a": {"type": "integer", "minimum": 5}, "b": {"type": "integer", "minimum": 5},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"},
                "v": {"type": "integer", "minimum": 5}}}},
    }}));
    assert!(update_errors(&schema, json!({"a": 1, "b": 6}), json!({"a": 1, "b": 7})).is_empty());
    assert_eq!(update_errors(&schema, json!({"a": 1}), json!({"a": 2})).len(), 1);
    let (one, two) = (json!({"n": "x", "v": 1}), json!({"n": "y", "v": 9}));
    assert!(update_errors(&schema, json!({"l": [one]}), json!({"l": [two, one]})).is_empty());
}

#[test]
fn rules_use_self() {
    let schema = custom(json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 100"}]},
        "name": {"type": "string"},
    }, "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "message": "min must not exceed max", "fieldPath": ".min"},
        {"rule": "!has(self.name) || self.name != 'bad'", "messageExpression": "'never ' + self.name", "reason": "FieldValueForbidden"},
    ]}));
    assert!(errors(&schema, json!({"min": 1, "max": 2})).is_empty());
    assert_eq!(
        errors(&schema, json!({"min": 3, "max": 2})),
        ["spec.min: Invalid value: min must not exceed max"]
    );
    assert_eq!(errors(&schema, json!({"min": 1, "max": 2, "name": "bad"})), ["spec: Forbidden: never bad"]);
    assert_eq!(
        errors(&schema, json!({"min": 1, "max": 100})),
        ["spec.max: Invalid value: 100: failed rule: self < 100"]
    );
    assert_eq!(
        errors(&schema, json!({"min": 1})),
        [r#"spec: Invalid value: "object": no such key: max evaluating rule: min must not exceed max"#]
    );
    assert_eq!(
        errors(&schema, json!({"min": "x", "max": 1}))[1],
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
    );
}

#[test]
fn transition_rules_need_an_old_value() {
    let schema = custom(json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items":
            {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
             "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "never shrinks"}]}},
        "opt": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "!oldSelf.hasValue() || self > oldSelf.value()", "message": "only grows", "optionalOldSelf": true}]},
    }}));
    assert!(errors(&schema, json!({"fixed": "a", "opt": 1})).is_empty());
    assert_eq!(
        update_errors(&schema, json!({"fixed": "a"}), json!({"fixed": "b"})),
        [r#"spec.fixed: Invalid value: "b": is immutable"#]
    );
    let list = |v: i32| json!({"l": [{"n": "y", "v": 0}, {"n": "x", "v": v}]});
    assert_eq!(
        update_errors(&schema, json!({"l": [{"n": "x", "v": 5}]}), list(4)),
        ["spec.l[1]: Invalid value: never shrinks"]
    );
    assert!(update_errors(&schema, json!({"l": [{"n": "x", "v": 5}]}), list(6)).is_empty());
    assert_eq!(
        update_errors(&schema, json!({"opt": 2}), json!({"opt": 1})),
        ["spec.opt: Invalid value: 1: only grows"]
    );
}

fn refused(schema: Value) -> Vec<String> {
    let path = Path::of("s");
    Schema::of_definition(&schema, &path).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn non_structural_schemas_are_rejected() {
    assert_eq!(refused(json!({})), ["s.type: Required value: must not be empty at the root"]);
    assert_eq!(
        refused(json!({"type": "string"})),
        [r#"s.type: Invalid value: "string": must be object at the root"#]
    );
    assert_eq!(
        refused(json!({"type": "object", "properties": {"a": {}, "l": {"type": "array"}}})),
        [
            "s.properties[a].type: Required value: must not be empty for specified object fields",
            "s.properties[l].items: Required value: must be specified",
        ]
    );
    assert_eq!(
        refused(
            json!({"type": "object", "anyOf": [{"type": "object", "properties": {"b": {"minimum": 1}}}]})
        ),
        [
            "s.anyOf[0].type: Forbidden: must be empty to be structural",
            "s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]",
        ]
    );
    assert_eq!(
        refused(
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}})
        ),
        [
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ]
    );
    assert_eq!(
        refused(
            json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "map",
            "items": {"type": "object", "properties": {}}}}})
        ),
        [
            "s.properties[l].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        ]
    );
    assert!(refused(json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "("}}}))[0]
        .starts_with(r#"s.properties[p].pattern: Invalid value: "(": must be a valid regular expression, but isn't: "#));
}

#[test]
fn both_forms_of_int_or_string_are_structural() {
    for combination in [
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "x"}]}),
    ] {
        let mut property = json!({"x-kubernetes-int-or-string": true});
        property.as_object_mut().unwrap().extend(combination.as_object().unwrap().clone());
        let schema = json!({"type": "object", "properties": {"p": property}});
        Schema::of_definition(&schema, &Path::of("s")).unwrap();
    }
}

#[test]
fn rules_that_do_not_compile_are_rejected() {
    let rule = |rule: Value| refused(json!({"type": "object", "x-kubernetes-validations": [rule]}));
    assert!(rule(json!({"rule": "self.a >"}))[0].starts_with(
        r#"s.x-kubernetes-validations[0].rule: Invalid value: {"FieldPath":"","Message":"","MessageExpression":"","OptionalOldSelf":null,"Reason":null,"Rule":"self.a \u003e"}: compilation failed: "#
    ));
    assert_eq!(
        rule(json!({"rule": " "})),
        ["s.x-kubernetes-validations[0].rule: Required value: rule is not specified"]
    );
    assert_eq!(
        rule(json!({"rule": "true", "optionalOldSelf": true})),
        [
            "s.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
        ]
    );
}

#[test]
fn embedded_resources_require_type_meta() {
    let schema = custom(json!({"type": "object", "properties": {"template":
        {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}));
    assert_eq!(
        errors(&schema, json!({"template": {"spec": {}}})),
        ["spec.template.apiVersion: Required value", "spec.template.kind: Required value"]
    );
    let good =
        json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}});
    assert!(errors(&schema, good).is_empty());
}
