//! The rules on single words: purity, clocks, `select!`, maps, unfinished work, waiting in tests,
//! statuses.
//!
//! `source` gives words without comments and literals, `paths` their origins. It must not judge
//! layout or lengths (`shape` does) or imports between rooms (`arrows`).

use crate::tidy::paths::{Path, paths};
use crate::tidy::source::Source;
use crate::tidy::{Offence, Rule};

/// Floors whose behaviour must be the same in every replay of a simulation seed.
const REPLAYED: [&str; 4] = ["src/protocol/", "src/ports/", "src/gateway/", "simulation/"];

/// Offences for each of these words, anywhere in code.
fn words(source: &Source, wanted: &[&str], what: &str) -> Vec<Offence> {
    let hits = source.tokens.iter().filter(|token| wanted.contains(&token.text.as_str()));
    hits.map(|token| (token.line, format!("`{}` {what}", token.text))).collect()
}

/// Offences for every path that reaches one of these names.
fn named(source: &Source, wanted: &[&str], what: &str) -> Vec<Offence> {
    let hits = paths(source).into_iter().filter(|path| wanted.iter().any(|name| path.reaches(name)));
    hits.map(|path| (path.line, format!("`{}` {what}", path.text()))).collect()
}

pub const PURE: Rule = Rule {
    reason: "The protocol is plain values and total functions: the same facts give the same decision, in production, in \
             the simulation and in a proof. Take time, dice and the world as arguments; log and measure in the gateway.",
    check: |source| {
        if !source.within(&["src/protocol/"]) {
            return Vec::new();
        }
        let impure =
            ["async", "await", "SystemTime", "HashMap", "HashSet", "println", "print", "eprintln", "eprint"];
        let mut found = words(source, &impure, "is not pure");
        let world = [
            "std::time::Instant",
            "std::fs",
            "std::net",
            "std::io",
            "std::thread",
            "std::process",
            "std::env",
        ];
        found.extend(named(source, &world, "is not pure"));
        found.extend(named(source, &["rand", "tracing", "serde", "tokio"], "is not pure"));
        found
    },
    forged: || {
        let text = "async fn f() {} //~\nfn g() { h().await } //~\nuse std::time::Instant; //~\nuse std::time;\n\
                    fn h() { time::Instant::from() } //~\nlet t: SystemTime; //~\nuse rand::Rng; //~\nHashMap::new(); //~\n\
                    x::<HashSet<u8>>(); //~\ntracing::info!(\"x\"); //~\n#[derive(serde::Serialize)] //~\nprintln!(); //~\n\
                    eprintln!(); //~\nuse std::time::Duration;\nuse std::{fmt, fs}; //~\nuse std::time::*; //~\n\
                    print!(); //~\neprint!(); //~\nstd::env::var(\"X\"); //~\ntokio::spawn(x); //~\nstd::io::stdout(); //~\n\
                    std::net::lookup(); //~\nstd::thread::park(); //~\nstd::process::abort(); //~\n// async\
                    \x20HashMap println!\nconst A: &str = \"HashMap serde::x\";\nlet rand = 1;";
        vec![
            ("src/protocol/a.rs", text.into()),
            ("src/adapters/a.rs", "use std::fs;\nasync fn f() {}".into()),
        ]
    },
};

pub const CLOCKS: Rule = Rule {
    reason: "Time comes through the Clock port (src/adapters/system.rs reads the clocks), so that the simulation can \
             bend it and no decision hangs on a wall clock. Only fleet, commands and benches measure wall time, for people.",
    check: |source| {
        let is_contract = source.within(&["src/ports/contract.rs", "src/ports/contract/"]);
        let timeless = source.within(&["src/protocol/", "src/ports/", "src/gateway/"]) && !is_contract;
        let free = source.within(&[
            "src/adapters/system.rs",
            "src/fleet/",
            "src/fleet.rs",
            "src/cli/",
            "src/cli.rs",
            "simulation/benches/",
            "simulation/src/command/",
            "simulation/tests/long/model.rs",
        ]);
        if !timeless && (free || is_contract || !source.within(&["src/", "simulation/"])) {
            return Vec::new();
        }
        let reads = |path: &Path| {
            let clock = path.segments.windows(2).any(|pair| pair[1] == "now" && pair[0] == "Instant")
                && (timeless || !path.starts(&["tokio"]));
            let wall = path.segments.windows(2).any(|pair| pair[0] == "SystemTime" && pair[1] == "now");
            clock || wall || timeless && path.reaches("tokio::time")
        };
        let hits = paths(source).into_iter().filter(reads);
        let mut found: Vec<Offence> =
            hits.map(|path| (path.line, format!("`{}` is a clock", path.text()))).collect();
        found.extend(words(source, &["clock_gettime"], "is a clock"));
        found
    },
    forged: || {
        let any = "use std::time::{Instant, SystemTime};\nfn f() { Instant::now() } //~\nfn g() { SystemTime::now() } //~\n\
                   fn h() { std::time::Instant::now() } //~\nfn i() { clock_gettime(x) } //~\nfn j() { x.map(Instant::now) } //~\n\
                   use std::time::Instant as Moment;\nfn k() { Moment::now() } //~\n// Instant::now()";
        let virtual_time = "use tokio::time::Instant;\nfn f() { Instant::now(); tokio::time::sleep(d) }";
        let timeless = "use tokio::time::Instant; //~\nfn f() { Instant::now() } //~\nuse tokio::time; //~\n\
                        fn g() { time::sleep(d) } //~\nuse tokio::*; //~\nuse std::time::Duration;";
        let mut all =
            vec![("src/fleet/a.rs", any.replace(" //~", "")), ("src/ports/contract.rs", virtual_time.into())];
        all.extend(
            [
                "src/adapters/system.rs",
                "src/cli/a.rs",
                "simulation/benches/a.rs",
                "simulation/src/command/a.rs",
                "tests/a.rs",
            ]
            .map(|path| (path, any.replace(" //~", ""))),
        );
        all.extend(
            ["src/server/a.rs", "src/adapters/peers.rs", "simulation/src/a.rs"]
                .map(|path| (path, any.into())),
        );
        all.extend(["src/server/a.rs", "simulation/src/a.rs"].map(|path| (path, virtual_time.into())));
        all.extend(
            ["src/protocol/a.rs", "src/ports/a.rs", "src/gateway/a.rs"].map(|path| (path, any.into())),
        );
        all.extend(
            ["src/protocol/a.rs", "src/ports/a.rs", "src/gateway/a.rs"].map(|path| (path, timeless.into())),
        );
        all
    },
};

pub const SELECTS: Rule = Rule {
    reason: "An unordered select! picks a branch at random, so a seed would not replay: none on the floors that the \
             simulation runs (wait for one thing, or ask a port), and `select! { biased; ...` elsewhere.",
    check: |source| {
        let places: Vec<usize> = source.sequence(&["select", "!"]).collect();
        let biased = |mark: &'static str| -> Vec<usize> {
            source.sequence(&["select", "!", mark, "biased", ";"]).collect()
        };
        let ordered = if source.within(&REPLAYED) { Vec::new() } else { [biased("{"), biased("(")].concat() };
        let loose = places.into_iter().filter(|line| !ordered.contains(line));
        loose.map(|line| (line, "select! without an order".to_string())).collect()
    },
    forged: || {
        let text = "select! { //~\n  a => b,\n}\ntokio::select! { //~\n  x = biased => y,\n}";
        let ordered = "select! {//\n  biased;\n  a => b,\n}";
        let mut all = vec![("src/server/a.rs", text.to_string()), ("src/server/a.rs", ordered.to_string())];
        all.push(("tests/a.rs", "select!(biased; a => b);".to_string()));
        for path in ["src/protocol/a.rs", "src/ports/a.rs", "src/gateway/a.rs", "simulation/src/a.rs"] {
            all.push((path, ordered.replace("{//", "{ //~")));
        }
        all
    },
};

pub const MAPS: Rule = Rule {
    reason: "A HashMap with the default hasher walks in another order in each process, so a seed would not replay: use \
             BTreeMap and BTreeSet on the floors that the simulation runs.",
    check: |source| {
        if !source.within(&REPLAYED) {
            return Vec::new();
        }
        words(source, &["HashMap", "HashSet", "RandomState"], "has a random order")
    },
    forged: || {
        let text = "use std::collections::{BTreeMap, HashMap}; //~\nfn f(x: HashSet<u8>) {} //~\nRandomState::new() //~\n// HashMap";
        let mut all: Vec<_> = REPLAYED[..3].iter().map(|_| ("src/gateway/a.rs", text.to_string())).collect();
        all.extend(
            ["src/protocol/a.rs", "src/ports/a.rs", "simulation/src/a.rs"]
                .map(|path| (path, text.to_string())),
        );
        all.push(("src/adapters/a.rs", "use std::collections::HashMap;".into()));
        all
    },
};

pub const UNDONE: Rule = Rule {
    reason: "Nothing is left undone and nothing is hidden: no unsafe, no placeholder that panics, no ignored test.",
    check: |source| {
        let mut found = words(source, &["unsafe"], "is forbidden");
        for name in ["todo", "unimplemented", "dbg"] {
            found.extend(source.sequence(&[name, "!"]).map(|line| (line, format!("{name}! is left over"))));
        }
        found
            .extend(source.sequence(&["#", "[", "ignore"]).map(|line| (line, "an ignored test".to_string())));
        found
    },
    forged: || {
        let text = "unsafe { f() } //~\ntodo!() //~\nunimplemented!(\"x\") //~\ndbg!(x) //~\n#[ignore] //~\n\
                    #[ignore = \"slow\"] //~\n#![forbid(unsafe_code)]\n// unsafe todo!()\nconst A: &str = \"dbg!(unsafe)\";";
        vec![("src/a.rs", text.into()), ("tests/a.rs", text.into()), ("simulation/src/a.rs", text.into())]
    },
};

pub const WAITING: Rule = Rule {
    reason: "A test waits on a condition with a deadline, through tests/support/wait.rs or src/fleet/wait.rs: a fixed \
             sleep is slow where the machine is fast and wrong where it is slow. And an assertion must be able to fail.",
    check: |source| {
        let is_fleet = source.within(&["src/fleet/", "src/fleet.rs"]);
        let is_simulation = source.within(&["simulation/"]);
        let in_question = |line: usize| is_fleet || is_simulation || source.is_test(line);
        let mut found: Vec<Offence> = Vec::new();
        if !source.within(&["tests/support/wait.rs", "src/fleet/wait.rs"]) {
            // In the simulation time is virtual: sleeping there costs nothing and is exact.
            let modules: &[[&str; 2]] =
                if is_simulation { &[["std", "thread"]] } else { &[["std", "thread"], ["tokio", "time"]] };
            for [name, module] in modules {
                // A glob may bring sleep in, but does not sleep, so `reaches` would see too much.
                let known = paths(source).into_iter().filter(|path| path.starts(&[name, module, "sleep"]));
                found.extend(known.map(|path| (path.line, format!("`{}` waits a fixed time", path.text()))));
                let spelled = [*module, "::", "sleep", "("];
                found.extend(source.sequence(&spelled).map(|line| (line, "a fixed sleep".to_string())));
            }
        }
        for certain in [&["assert", "!", "(", "true"][..], &["|", "|", "true", ")"]] {
            found.extend(
                source.sequence(certain).map(|line| (line, "an assertion that cannot fail".to_string())),
            );
        }
        found.retain(|(line, _)| in_question(*line));
        found
    },
    forged: || {
        let text = "std::thread::sleep(d); //~\nuse std::thread;\nthread::sleep(d); //~\ntokio::time::sleep(d).await; //~\n\
                    use tokio::time;\ntime::sleep(d).await; //~\nuse tokio::time::sleep; //~\nfn f() { sleep(d) } //~\n\
                    assert!(true); //~\nassert!(true, \"x\"); //~\nassert!(x || true) //~\nassert!(x || truely)\n// thread::sleep";
        let simulated = "tokio::time::sleep(d).await;\nstd::thread::sleep(d); //~\nassert!(true); //~";
        let beside = "fn f() { tokio::time::sleep(d) }\n#[cfg(test)]\nmod tests {\n  use super::*; fn g() { tokio::time::sleep(d) } //~\n}";
        let waits = "fn until() { std::thread::sleep(d); tokio::time::sleep(d) }";
        vec![
            ("tests/a.rs", text.to_string()),
            ("tests/support/a.rs", text.to_string()),
            ("src/fleet/a.rs", text.to_string()),
            ("simulation/tests/a.rs", simulated.to_string()),
            ("simulation/src/a.rs", simulated.to_string()),
            ("src/adapters/a.rs", beside.to_string()),
            ("tests/support/wait.rs", waits.to_string()),
            ("src/fleet/wait.rs", format!("{waits}\nfn g() {{ assert!(true) }} //~")),
        ]
    },
};

pub const HEARTBEATS: Rule = Rule {
    reason: "A heartbeat counts only once every row before it is here, and gateway/applied.rs alone says so: whoever \
             reads heartbeats beside it goes by rows that are still being copied.",
    check: |source| {
        if !source.within(&["src/gateway/"]) || source.within(&["src/gateway/applied.rs"]) {
            return Vec::new();
        }
        let found = source.sequence(&[".", "heartbeats", "("]).filter(|line| !source.is_test(*line));
        found.map(|line| (line, "heartbeats are read here".to_owned())).collect()
    },
    forged: || {
        let text = "let seen = store.heartbeats().await; //~\nlet told = view.heartbeats;";
        vec![
            ("src/gateway/authority/a.rs", text.to_string()),
            ("src/gateway/applied.rs", "let seen = store.heartbeats().await;".to_string()),
            ("src/fleet/a.rs", "let seen = store.heartbeats().await;".to_string()),
        ]
    },
};

pub const STATUSES: Rule = Rule {
    reason: "src/gateway/reply.rs is the only file of the gateway with HTTP statuses, so that what clients are told can \
             be read, and changed, in one place: return what happened, and let reply say it.",
    check: |source| {
        if !source.within(&["src/gateway/"]) || source.within(&["src/gateway/reply.rs"]) {
            return Vec::new();
        }
        let constant = |path: &Path| path.segments.iter().rev().skip(1).any(|name| name == "StatusCode");
        let hits = paths(source).into_iter().filter(constant);
        let mut found: Vec<Offence> =
            hits.map(|path| (path.line, format!("`{}` is a status", path.text()))).collect();
        found.extend(words(source, &["from_u16"], "makes a status"));
        found
    },
    forged: || {
        let text = "use http::StatusCode;\nfn f() { StatusCode::OK } //~\nfn g(s: StatusCode) {}\nfn h() { S::from_u16(200) } //~\n\
                    use http::StatusCode as S;\nfn i() { S::CONFLICT } //~\nfn j() { http::StatusCode::GONE } //~\n// StatusCode::OK";
        let plain = text.replace(" //~", "");
        vec![
            ("src/gateway/a.rs", text.into()),
            ("src/gateway/reply.rs", plain.clone()),
            ("src/server/a.rs", plain),
        ]
    },
};
