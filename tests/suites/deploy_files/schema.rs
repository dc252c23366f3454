//! JSON Schema, as much of it as Kubernetes uses: the faults of a value, place by place. An unknown
//! keyword is a panic. `kubernetes-1.31.json` is the schema and names its source.

use serde_json::Value;

pub struct Schema(Value);

impl Schema {
    pub fn kubernetes() -> Self {
        Self(serde_json::from_str(&super::text("tests/suites/deploy_files/kubernetes-1.31.json")).unwrap())
    }

    pub fn wrong(&self, object: &Value) -> Vec<String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let Some(name) = self.0["kinds"][kind].as_str() else {
            return vec![format!("no kind {kind:?}: enter it in kubernetes-1.31.json")];
        };
        let mut wrong = Vec::new();
        self.hold(object, &self.0["$defs"][name], kind, &mut wrong);
        wrong
    }

    fn hold(&self, value: &Value, schema: &Value, at: &str, wrong: &mut Vec<String>) {
        let Some(rules) = schema.as_object() else { panic!("{at}: no schema: {schema}") };
        for (rule, want) in rules {
            match rule.as_str() {
                "$ref" => {
                    let name = want.as_str().and_then(|name| name.strip_prefix("#/$defs/")).unwrap();
                    self.hold(value, &self.0["$defs"][name], at, wrong);
                }
                "type" => {
                    let one = [want.clone()];
                    let types = want.as_array().map_or(&one[..], Vec::as_slice);
                    // A null counts as absent.
                    if value.is_null() || !types.iter().any(|one| is(value, one.as_str().unwrap())) {
                        wrong.push(format!("{at}: {value} is not {want}"));
                    }
                }
                "enum" if !want.as_array().unwrap().contains(value) => {
                    wrong.push(format!("{at}: {value} is none of {want}"));
                }
                "required" => {
                    let names = want.as_array().into_iter().flatten().filter_map(Value::as_str);
                    let missing = names.filter(|name| value[name].is_null());
                    wrong.extend(missing.map(|name| format!("{at}: no {name}")));
                }
                "properties" => {
                    for (name, inner) in value.as_object().into_iter().flatten() {
                        if let Some(schema) = want.get(name) {
                            self.hold(inner, schema, &format!("{at}.{name}"), wrong);
                        }
                    }
                }
                "additionalProperties" => {
                    let known = rules.get("properties").unwrap_or(&Value::Null);
                    let others = value.as_object().into_iter().flatten();
                    for (name, inner) in others.filter(|(name, _)| known.get(name).is_none()) {
                        match want {
                            Value::Bool(false) => wrong.push(format!("{at}: unknown field {name}")),
                            schema => self.hold(inner, schema, &format!("{at}.{name}"), wrong),
                        }
                    }
                }
                "items" => {
                    for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
                        self.hold(inner, want, &format!("{at}[{index}]"), wrong);
                    }
                }
                "oneOf" => {
                    let fits = |schema: &&Value| {
                        let mut wrong = Vec::new();
                        self.hold(value, schema, at, &mut wrong);
                        wrong.is_empty()
                    };
                    if want.as_array().unwrap().iter().filter(fits).count() != 1 {
                        wrong.push(format!("{at}: {value} fits not exactly one of {want}"));
                    }
                }
                // Widths of numbers and spellings of times: the values here are within them.
                "format" | "enum" => {}
                unknown => panic!("{at}: a schema says {unknown}, which nothing here holds a value against"),
            }
        }
    }
}

fn is(value: &Value, what: &str) -> bool {
    match what {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        unknown => panic!("unknown type {unknown}"),
    }
}

#[test]
fn the_schema_reports_every_planted_fault() {
    let schema = Schema::kubernetes();
    let wrong = |yaml: &str| schema.wrong(&serde_yaml_ng::from_str(yaml).unwrap());
    let right = "{apiVersion: v1, kind: Service, metadata: {name: a, labels: {b: c}}, spec: {ports: [{port: 1, targetPort: x}]}}";
    assert_eq!(wrong(right), [""; 0]);
    for (from, to, what) in [
        ("port: 1", "port: '1'", "Service.spec.ports[0].port: \"1\" is not \"integer\""),
        ("port: 1, ", "", "Service.spec.ports[0]: no port"),
        ("targetPort: x", "targetport: x", "Service.spec.ports[0]: unknown field targetport"),
        ("targetPort: x", "targetPort: [x]", "targetPort: [\"x\"] fits not exactly one of"),
        ("b: c", "b: 1", "Service.metadata.labels.b: 1 is not"),
        ("spec: {ports", "spec: {port", "Service.spec: unknown field port"),
        ("apiVersion: v1", "apiVersion: v2", "Service.apiVersion: \"v2\" is none of"),
        ("kind: Service", "kind: Servce", "no kind \"Servce\""),
        ("name: a", "name: ~", "Service.metadata.name: null is not"),
    ] {
        assert!(right.contains(from), "{from}");
        let found = wrong(&right.replacen(from, to, 1));
        assert!(found.iter().any(|line| line.contains(what)), "{what} is not in {found:?}");
    }
}
