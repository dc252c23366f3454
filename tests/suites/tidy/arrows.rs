//! The rules on imports: between rooms, of crates by floors, and of the simulation.
//!
//! `paths` resolves the names of a file. It must not look at anything but paths.

use crate::tidy::Rule;
use crate::tidy::paths::{Path, paths};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Every room of `src/` and its floor. A new room is entered here first.
const ROOMS: [(&str, u8); 9] = [
    ("protocol", 0),
    ("ports", 1),
    ("gateway", 2),
    ("adapters", 3),
    ("config", 4),
    ("server", 4),
    ("fleet", 4),
    ("cli", 5),
    ("main", 5),
];

/// The arrows allowed between rooms of one floor.
const LEVEL: [(&str, &str); 4] =
    [("server", "config"), ("fleet", "config"), ("fleet", "server"), ("main", "cli")];

pub const FLOORS: Rule = Rule {
    reason: "Imports go down only (protocol < ports < gateway < adapters < server, config, fleet < cli, main), so that \
             each floor can be read, tested and simulated without those above it. Move the thing down, or pass it in.",
    check: |source| {
        let Some(from) = source.room().filter(|room| *room != "lib") else { return Vec::new() };
        let Some(own) = floor(from) else {
            return vec![(1, format!("room `{from}` has no floor: enter it in tests/suites/tidy/arrows.rs"))];
        };
        let named = paths(source).into_iter().filter(|path| path.starts(&["onceway"]));
        let offends = |path: &Path| match path.segments.get(1).map(String::as_str) {
            None => path.import.then(|| "imports the whole crate: name the room".to_string()),
            Some("*") => Some("imports all rooms: name the room".to_string()),
            Some(to) if to == from || LEVEL.contains(&(from, to)) => None,
            Some(to) => match floor(to) {
                Some(below) if below < own => None,
                Some(_) => Some(format!("`{from}` uses `{}`, which is not below it", path.text())),
                None => Some(format!("`{}` is in no room: name it where it is defined", path.text())),
            },
        };
        named.filter_map(|path| offends(&path).map(|what| (path.line, what))).collect()
    },
    forged: || {
        let uses = "use crate::protocol::Key;\nuse crate::{ports, adapters::{wire, peers}}; //~\nuse crate::server; //~\n\
                    fn f() { onceway::cli::run() } //~\nmod tests { use super::super::super::fleet::X; } //~\nuse crate::*; //~\n\
                    use crate as all; //~\nfn g() { all::fleet::h() } //~\nuse crate::Shortcut; //~\n// use crate::server;\n\
                    const A: &str = \"crate::server\";\nuse super::reply;\npub(crate) fn h() {}";
        vec![
            ("src/gateway/forged.rs", uses.to_string()),
            (
                "src/protocol/mod.rs",
                "use crate::ports::Clock; //~\nuse super::ports; //~\nuse self::key::Key;".into(),
            ),
            (
                "src/adapters/postgres/a.rs",
                "use super::super::super::config; //~\nuse super::super::wire;".into(),
            ),
            (
                "src/config.rs",
                "use crate::server::X; //~\nuse crate::fleet; //~\nuse crate::adapters::X;".into(),
            ),
            ("src/server/mod.rs", "use crate::config::X;\nuse crate::fleet::X; //~".into()),
            (
                "src/fleet/mod.rs",
                "use crate::config::X;\nuse crate::server::X;\nuse crate::cli::X; //~".into(),
            ),
            ("src/main.rs", "fn main() { onceway::cli::run() }".into()),
            ("src/lib.rs", "pub mod server;\npub use server::Server;".into()),
            ("src/attic/mod.rs", "//~".into()),
        ]
    },
};

fn floor(room: &str) -> Option<u8> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

const PROTOCOL: [&str; 5] = ["xxhash_rust", "sha2", "sfv", "thiserror", "proptest"];
const PORTS: [&str; 5] = ["http", "bytes", "http_body", "http_body_util", "uuid"];
const GATEWAY: [&str; 10] = [
    "arc_swap",
    "tracing",
    "metrics",
    "serde",
    "serde_json",
    "ryu_js",
    "httpdate",
    "jsonwebtoken",
    "governor",
    "base64",
];
/// The parts of some crates that the gateway may use: none opens a socket, reads a clock or picks
/// at random.
const GATEWAY_PARTS: [&str; 5] =
    ["tokio::spawn", "tokio::sync", "tokio::task", "tokio::test", "ring::signature"];
const SQL_CRATES: [&str; 4] =
    ["postgres_protocol", "tokio_postgres", "tokio_postgres_rustls", "deadpool_postgres"];

/// Names of all crates that the manifests depend on, as code spells them.
static CRATE_NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let manifests = [include_str!("../../../Cargo.toml"), include_str!("../../../simulation/Cargo.toml")];
    let names = manifests.into_iter().flat_map(dependencies);
    names.chain(["http_body".to_string(), "libc".to_string()]).filter(|name| name != "onceway").collect()
});

fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listed = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            listed = section.trim_end().ends_with("dependencies]");
        } else if listed && let Some((name, _)) = line.split_once(['=', '.']) {
            names.push(name.trim().replace('-', "_"));
        }
    }
    names
}

pub const CRATES: Rule = Rule {
    reason: "The lower floors know few crates (tests/suites/tidy/arrows.rs lists them): the protocol computes, ports name, the \
             gateway arranges; sockets, SQL, files and random numbers are the adapters' business. Reach them by a port.",
    check: |source| {
        let room = source.room().unwrap_or("");
        let allowed: &[&[&str]] = match room {
            "protocol" => &[&PROTOCOL],
            "ports" => &[&PROTOCOL, &PORTS],
            "gateway" => &[&PROTOCOL, &PORTS, &GATEWAY],
            _ => &[],
        };
        let may = |path: &Path| {
            let name = path.segments[0].as_str();
            if SQL_CRATES.contains(&name) {
                return source.within(&[
                    "src/adapters/postgres/",
                    "src/adapters/postgres.rs",
                    "src/fleet/",
                    "tests/",
                    "benches/",
                ]);
            }
            let part = match room {
                "ports" => {
                    name == "tokio" && source.within(&["src/ports/contract.rs", "src/ports/contract/"])
                }
                "gateway" => {
                    GATEWAY_PARTS.iter().any(|part| path.starts(&part.split("::").collect::<Vec<_>>()))
                }
                _ => false,
            };
            allowed.is_empty() || allowed.concat().contains(&name) || part
        };
        let foreign = paths(source).into_iter().filter(|path| CRATE_NAMES.contains(&path.segments[0]));
        let refused = foreign.filter(|path| !may(path));
        refused.map(|path| (path.line, format!("`{}` may not be used here", path.text()))).collect()
    },
    forged: || {
        let gateway = "use tokio::{spawn, sync::Notify, net::TcpStream}; //~\nuse tokio::sync::mpsc;\nuse hyper::Body; //~\n\
                       use tokio; //~\nfn f() { tokio::net::lookup_host() } //~\nuse serde::Serialize;\nuse rand::Rng; //~\n\
                       #[tokio::test]\nfn g() {}\nuse tokio_postgres::Row; //~\nextern crate hyper; //~\nuse tokio::*; //~\n\
                       use ring::signature::ED25519;\nuse ring::rand::SystemRandom; //~";
        vec![
            ("src/gateway/forged.rs", gateway.to_string()),
            (
                "src/protocol/a.rs",
                "use sha2::Sha256;\nuse http::Uri; //~\nuse serde::Serialize; //~\nuse std::fmt;".into(),
            ),
            ("src/ports/a.rs", "use http::Uri;\nuse tokio::sync::Notify; //~\nuse tracing::info; //~".into()),
            ("src/ports/contract.rs", "use tokio::time::sleep;\nuse hyper::Body; //~".into()),
            ("src/server/a.rs", "use hyper::Body;\nuse deadpool_postgres::Pool; //~".into()),
            ("src/cli/store.rs", "use tokio_postgres::Client; //~".into()),
            ("simulation/src/a.rs", "use tokio_postgres::Client; //~".into()),
            ("src/adapters/postgres/a.rs", "use tokio_postgres::Client;".into()),
            ("src/fleet/cluster.rs", "use tokio_postgres::Client;\nuse tokio::process::Command;".into()),
        ]
    },
};

pub const SIMULATION: Rule = Rule {
    reason: "The simulation drives the very gateway of production over ports of its own, so it may import only \
             onceway::{protocol, ports, gateway}: an adapter, a server or a fleet would bring the real world in. Its \
             scenarios are read as gateways' files are, so they may use onceway::config.",
    check: |source| {
        if !source.within(&["simulation/"]) {
            return Vec::new();
        }
        let reads = source.within(&["simulation/src/scenario/", "simulation/src/command/"]);
        let named = paths(source).into_iter().filter(|path| path.starts(&["onceway"]));
        let refused = named.filter(|path| match path.segments.get(1) {
            Some(room) if room == "config" => !reads,
            Some(room) => !["protocol", "ports", "gateway"].contains(&room.as_str()),
            None => path.import,
        });
        refused.map(|path| (path.line, format!("the simulation uses `{}`", path.text()))).collect()
    },
    forged: || {
        let text = "use onceway::{protocol, ports::Clock, gateway};\nuse onceway::adapters::system; //~\n\
                    use onceway::{gateway::A, server}; //~\nfn f() { onceway::fleet::up() } //~\nuse onceway::*; //~\n\
                    use onceway as o; //~\nfn g() { o::config::h() } //~\nuse crate::fleet;";
        vec![
            ("simulation/src/a.rs", text.into()),
            ("simulation/src/scenario/a.rs", "use onceway::config::reader;\nuse onceway::server; //~".into()),
            ("simulation/tests/a.rs", "use onceway::cli; //~".into()),
        ]
    },
};

#[test]
fn dependencies_are_read_from_every_section() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na-b = \"1\"\nc.workspace = true\n[dev-dependencies]\nd = { version = \"1\" }\n\
                    [profile.dev]\ndebug = 1\n[target.'cfg(unix)'.dependencies]\ne = \"1\"";
    assert_eq!(dependencies(manifest), ["a_b", "c", "d", "e"]);
    assert!(CRATE_NAMES.contains("tokio_postgres") && CRATE_NAMES.contains("rand_chacha"));
}
