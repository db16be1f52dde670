//! Records of programs against the JSON Schemas in `docs/schema`, by the part of the standard that these use.
//!
//! Stricter than the standard in one respect: a key without description is an error.

use std::path::Path;

use serde_json::{Map, Value};

/// A schema file.
#[derive(Debug)]
pub struct Schema {
    root: Value,
}

impl Schema {
    /// Reads `docs/schema/NAME.json`.
    ///
    /// # Panics
    /// There is no such file, or it is not JSON.
    pub fn load(name: &str) -> Schema {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../docs/schema")
            .join(name)
            .with_extension("json");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Schema {
            root: serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")),
        }
    }

    /// One line for each violation.
    ///
    /// # Panics
    /// The schema uses a type or a reference that it does not have.
    pub fn errors(&self, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check(&self.root, value, "record", &mut errors);
        errors
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.trim_start_matches('#');
            let target = self.root.pointer(pointer);
            let target = target.unwrap_or_else(|| panic!("{at}: no {reference}"));
            return self.check(target, value, at, errors);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let fits = |choice: &Value| {
                let mut found = Vec::new();
                self.check(choice, value, at, &mut found);
                found.is_empty()
            };
            if !choices.iter().any(fits) {
                errors.push(format!("{at}: {value} matches no choice"));
            }
            return;
        }
        if !is_of_type(&schema["type"], value) {
            return errors.push(format!("{at}: {value} is not {}", schema["type"]));
        }
        if let Some(choices) = schema["enum"].as_array()
            && !choices.contains(value)
        {
            errors.push(format!("{at}: {value} is not in {choices:?}"));
        }
        if let Some(expected) = schema.get("const")
            && expected != value
        {
            errors.push(format!("{at}: {value} is not {expected}"));
        }
        if let Some(number) = value.as_f64() {
            let (low, high) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
            if low.is_some_and(|low| number < low) || high.is_some_and(|high| number > high) {
                errors.push(format!("{at}: {value} is out of range"));
            }
        }
        match value {
            Value::Object(entries) => self.check_object(schema, entries, at, errors),
            Value::Array(items) => self.check_array(schema, items, at, errors),
            _ => {}
        }
    }

    fn check_object(
        &self,
        schema: &Value,
        entries: &Map<String, Value>,
        at: &str,
        errors: &mut Vec<String>,
    ) {
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Value::as_str) {
            if !entries.contains_key(key) {
                errors.push(format!("{at}: key {key} is missing"));
            }
        }
        let properties = schema["properties"].as_object();
        for (key, value) in entries {
            let at = format!("{at}.{key}");
            match properties.and_then(|properties| properties.get(key)) {
                Some(property) => self.check(property, value, &at, errors),
                None => match schema.get("additionalProperties") {
                    Some(other) => self.check(other, value, &at, errors),
                    None => errors.push(format!("{at}: the schema has no such key")),
                },
            }
        }
    }

    fn check_array(&self, schema: &Value, items: &[Value], at: &str, errors: &mut Vec<String>) {
        let length = items.len() as u64;
        let (low, high) = (schema["minItems"].as_u64(), schema["maxItems"].as_u64());
        if low.is_some_and(|low| length < low) || high.is_some_and(|high| length > high) {
            errors.push(format!("{at}: {length} items"));
        }
        for (index, item) in items.iter().enumerate() {
            self.check(&schema["items"], item, &format!("{at}[{index}]"), errors);
        }
    }
}

fn is_of_type(expected: &Value, value: &Value) -> bool {
    match expected {
        Value::Null => true,
        Value::Array(types) => types.iter().any(|one| is_of_type(one, value)),
        name => match name.as_str().unwrap_or_default() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("unknown type {other:?}"),
        },
    }
}
