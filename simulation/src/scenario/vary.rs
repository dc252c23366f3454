//! Settings from the command line: `failover.multiple=3` changes one value of the ring file, the
//! routes file or the scenario before it is read.
//!
//! A changed value is checked like a written one. Keys mean nothing here, with one exception: less
//! than two lags needs `unsafe_multiple`, which the caller surely means.

use std::str::FromStr;

use onceway::config::reader::{At, Problems, Source};
use toml_edit::{DocumentMut, Item, Value};

/// The text that a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Scenario,
    Ring,
    /// The routes file: every route that handles keys.
    Routes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The place: `failover.multiple`, `route.escrow`, `network.round_trip`.
    pub path: Vec<String>,
    /// The new value, as TOML; a bare word is a text.
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is no setting: write KEY=VALUE"))?;
        let path = path.split('.').map(str::to_owned).collect::<Vec<_>>();
        if path.iter().any(String::is_empty) || value.is_empty() {
            return Err(format!("{text:?} is no setting: write KEY=VALUE, such as failover.multiple=3"));
        }
        Ok(Self { path, value: value.to_owned() })
    }
}

impl Setting {
    /// One setting per value: `failover.multiple=0,1,2`. Or advice on what to write, in one line.
    pub fn several(text: &str) -> Result<Vec<Self>, String> {
        let (path, values) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?}: write KEY=VALUE,VALUE,... such as failover.multiple=0,1,2"))?;
        values.split(',').map(|value| format!("{path}={}", value.trim()).parse()).collect()
    }

    /// The place, as it is written: `failover.multiple`.
    pub fn key(&self) -> String {
        self.path.join(".")
    }

    pub fn shown(&self) -> String {
        format!("{}={}", self.key(), self.value)
    }

    fn of(&self) -> Of {
        match self.path.first().map(String::as_str) {
            Some("failover" | "clock" | "heartbeat" | "pin") => Of::Ring,
            Some("route") => Of::Routes,
            _ => Of::Scenario,
        }
    }

    fn toml(&self) -> Value {
        self.value.parse().unwrap_or_else(|_| Value::from(self.value.as_str()))
    }
}

/// Writes the settings of this text into it.
pub(super) fn apply(source: &mut Source, of: Of, settings: &[Setting], problems: &Problems) {
    let settings: Vec<&Setting> = settings.iter().filter(|setting| setting.of() == of).collect();
    if settings.is_empty() {
        return;
    }
    // A text that is no TOML is reported when it is read.
    let Ok(mut document) = source.text().parse::<DocumentMut>() else { return };
    for setting in settings {
        let done = match of {
            Of::Routes => in_routes(&mut document, setting),
            Of::Scenario | Of::Ring => in_table(&mut document, setting),
        };
        if let Err(why) = done {
            problems.add(&At::file(source.path()), format!("{}: {why}", setting.shown()));
        }
    }
    *source = Source::of(source.path(), document.to_string());
}

fn in_table(document: &mut DocumentMut, setting: &Setting) -> Result<(), String> {
    let Some((key, tables)) = setting.path.split_last() else { return Err("names no key".to_owned()) };
    let mut table = document.as_table_mut();
    for name in tables {
        let item = table.entry(name).or_insert_with(|| Item::Table(toml_edit::Table::new()));
        table =
            item.as_table_mut().ok_or_else(|| format!("{name} is no table that one value can be set in"))?;
    }
    if key == "multiple" {
        table.insert("unsafe_multiple", Item::Value(Value::from(true)));
    }
    table.insert(key, Item::Value(setting.toml()));
    Ok(())
}

fn in_routes(document: &mut DocumentMut, setting: &Setting) -> Result<(), String> {
    let [_, key] = setting.path.as_slice() else {
        return Err("write route.KEY=VALUE: it is set in every route".to_owned());
    };
    let routes =
        document.get_mut("route").and_then(Item::as_array_of_tables_mut).ok_or("there is no [[route]]")?;
    for route in routes.iter_mut().filter(|route| route.get("key").and_then(Item::as_str) != Some("off")) {
        route.insert(key, Item::Value(setting.toml()));
    }
    Ok(())
}
