//! The rules on single words: what a floor may not name, what no text may, and how long a file is.
//! A word counts where code has it, before a `//`, as it is written: a reviewer sees aliases. Words
//! that this file must not contain itself are put together from halves.

use crate::tidy::{Rule, by_line};

const PROTOCOL: &[&str] = &["src/protocol/"];
const GATEWAY: &[&str] = &["src/gateway/"];
const ADAPTERS: &[&str] = &["src/adapters/"];
const UPPER: &[&str] = &["src/config/", "src/server/"];
/// Floors that the simulation runs: each replay of a seed must be the same.
const REPLAYED: &[&str] = &["src/protocol/", "src/ports/", "src/gateway/", "simulation/"];
const TIMELESS: &[&str] = &["src/ports/", "src/gateway/"];
/// Real time passes here.
const WAITS: &[&str] = &["tests/", "src/lab/"];

/// Words that files of these places may not have, but for these files, and why.
struct Ban {
    within: &'static [&'static str],
    but: &'static [&'static str],
    words: &'static [&'static str],
    why: &'static str,
}

const fn ban(
    within: &'static [&'static str],
    words: &'static [&'static str],
    but: &'static [&'static str],
    why: &'static str,
) -> Ban {
    Ban { within, but, words, why }
}

const BANS: [Ban; 9] = [
    ban(GATEWAY, &["crate::adapters", "crate::config", "crate::server"], &[], "imports go down only"),
    ban(ADAPTERS, &["crate::config", "crate::server"], &[], "imports go down only"),
    ban(UPPER, &["crate::cli"], &[], "imports go down only"),
    ban(
        PROTOCOL,
        &["async fn", "std::fs", "std::net", "std::io", "std::thread", "std::env"],
        &[],
        "the protocol is values and total functions: the same facts give the same decision",
    ),
    ban(TIMELESS, &["tokio::time"], &[], "time comes through the Clock port"),
    ban(REPLAYED, &["HashMap", "HashSet"], &[], "its order differs, so a seed would not replay"),
    ban(
        WAITS,
        &["thread::sleep", "time::sleep"],
        &["tests/support/wait.rs", "src/lab/wait.rs", "tests/suites/tidy/"],
        "wait on a condition, with a deadline",
    ),
    // A heartbeat counts only once every row before it is here.
    ban(
        GATEWAY,
        &["heartbeats("],
        &["src/gateway/upkeep/applied.rs"],
        "applied.rs alone says whose rows are here: others would go by rows that are being copied",
    ),
    ban(
        GATEWAY,
        &["StatusCode::"],
        &["src/gateway/request/reply.rs"],
        "what clients are told stands in gateway/request/reply.rs alone",
    ),
];

pub const BANNED: Rule = Rule {
    reason: "Some words do not belong into some places (tests/suites/tidy/words.rs lists them, with the reason).",
    check: |source| {
        let bans = BANS.iter().filter(|ban| source.within(ban.within) && !source.within(ban.but));
        let bans: Vec<&Ban> = bans.filter(|_| source.is_rust()).collect();
        by_line(source, |line| {
            let code = line.split("//").next().unwrap_or_default();
            let of = |ban: &&Ban| {
                let word = ban.words.iter().find(|word| stands(code, word, |_| true, |_| true))?;
                Some(format!("`{word}`: {}", ban.why))
            };
            bans.iter().filter_map(of).collect()
        })
    },
    forged: || {
        let all = BANS.iter().flat_map(|ban| {
            let text = |mark: &str| {
                let lines = ban.words.iter().map(|word| format!("let a = {word} b;{mark}\n// {word}\n"));
                lines.collect::<String>()
            };
            let bad = ban.within.iter().map(move |place| (*place, text(" //~")));
            let good = ban.but.iter().map(move |place| (*place, text("")));
            let paths = bad.chain(good).collect::<Vec<_>>();
            paths.into_iter().map(|(place, text)| {
                let path = if place.ends_with('/') { format!("{place}forged.rs") } else { place.to_owned() };
                (path, text)
            })
        });
        all.map(|(path, text)| (&*path.leak(), text)).collect()
    },
};

pub const BIASED: Rule = Rule {
    reason: "`select!` asks its futures in random order, so a seed would not replay: it begins with `biased;`.",
    check: |source| {
        if !source.is_rust() || !source.within(REPLAYED) {
            return Vec::new();
        }
        let lines: Vec<&str> = source.raw.lines().collect();
        let is_random = |index: &usize| {
            stands(lines[*index], "select!", |_| true, |_| true)
                && lines.get(index + 1).is_none_or(|next| next.trim() != "biased;")
        };
        (0..lines.len())
            .filter(is_random)
            .map(|index| (index + 1, "`biased;` is missing below".to_owned()))
            .collect()
    },
    forged: || {
        let text =
            "tokio::select! { //~\n    a = b => {}\n}\ntokio::select! {\n    biased;\n}\nselect! { //~";
        vec![("src/gateway/a.rs", text.to_owned()), ("src/server/a.rs", text.replace(" //~", ""))]
    },
};

const FILE_LINES: usize = 700;

pub const LENGTHS: Rule = Rule {
    reason: "A file stays within 700 lines, so that it can be held in mind at once: split by concern, not by size. \
             Clippy counts the lines of functions (clippy.toml).",
    check: |source| {
        let count = source.raw.lines().count();
        if !source.is_rust() || count <= FILE_LINES {
            return Vec::new();
        }
        vec![(count, format!("the file has {count} lines, more than {FILE_LINES}"))]
    },
    forged: || {
        vec![
            ("src/a.rs", format!("{}//~", "\n".repeat(FILE_LINES))),
            ("src/a.rs", format!("{}//", "\n".repeat(FILE_LINES - 1))),
            ("docs/a.md", "\n".repeat(FILE_LINES + 1)),
        ]
    },
};

/// Homes of developers and of build machines.
const MACHINES: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
const REMINDERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub const PLACES: Rule = Rule {
    reason: "What is published names no developer's machine (use a path relative to the tree, or a temporary folder) \
             and no unfinished business (do it, or open an issue).",
    check: |source| {
        by_line(source, |line| {
            let machine =
                MACHINES.iter().find(|path| stands(line, path, |before| !"._-~}".contains(before), |_| true));
            let reminder = REMINDERS.iter().find(|word| stands(line, word, |c| c != '_', |c| c != '_'));
            let machine = machine.map(|path| format!("names a path of one machine: {path}"));
            machine.into_iter().chain(reminder.map(|word| format!("{word} is unfinished business"))).collect()
        })
    },
    forged: || {
        let [work, home, root, users] = MACHINES;
        let [first, second, third] = REMINDERS;
        let text = format!(
            "see {work}main //~\nfile://{home}x //~\n\"{root}y\" //~\n{users}z //~\n// {first}: later //~\n{second} //~\n\
             /* {third} */ //~\nsrc{home}page\n..{work}x\n~{work}x\n${{TOP}}{work}x\nmktemp onceway.{third}{third}\nA{first}\n\
             MY_{first}\n{work} and {work} //~\nsrc{work} then {work} //~"
        );
        vec![("README.md", text.clone()), ("src/a.rs", text.clone()), (".ci/run", text)]
    },
};

/// True if it stands there as a word, and both sides please the caller's checks.
fn stands(line: &str, wanted: &str, before: fn(char) -> bool, after: fn(char) -> bool) -> bool {
    let ends_in_letter = wanted.ends_with(char::is_alphanumeric);
    line.match_indices(wanted).any(|(at, _)| {
        let left = line[..at].chars().next_back();
        let right = line[at + wanted.len()..].chars().next().filter(|_| ends_in_letter);
        left.is_none_or(|c| !c.is_alphanumeric() && before(c))
            && right.is_none_or(|c| !c.is_alphanumeric() && after(c))
    })
}
