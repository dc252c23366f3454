//! Files that import each other in a circle: there are none, so each file can be read after those
//! that it names. Nor does an arrow run up in a room whose map says `from top to bottom`. An arrow
//! is a path in a file's `use` or code to another file of its package. As it is written, a
//! re-export leads to the file that has it. Tests and methods draw none.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::HOUSE;

/// The packages, each by the folder of its files.
const PACKAGES: [&str; 6] =
    ["src/protocol/", "src/ports/", "src/client/", "src/lab/", "simulation/src/", "src/"];

type Module = Vec<String>;
/// The files of one package: path and text of each module.
type Package<'a> = BTreeMap<Module, (&'a str, &'a str)>;
type Arrows<'a> = BTreeMap<&'a Module, BTreeSet<&'a Module>>;

/// The package of a file, and its module in there. Files of tests are no modules.
fn module(path: &str) -> Option<(&'static str, Module)> {
    let folder = PACKAGES.into_iter().find(|folder| path.starts_with(folder))?;
    let mut parts: Module = path[folder.len()..].strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib"].contains(&&**last)) {
        parts.pop();
    }
    parts.iter().all(|part| part != "tests" && !part.ends_with("_tests")).then_some((folder, parts))
}

/// The code without comments, texts and tests, which stand last.
fn code(raw: &str) -> String {
    let product = raw.split("\n#[cfg(test)]\n").next().unwrap_or_default();
    // In a module within the file, this leads to the file itself.
    let lines = product.lines().filter(|line| !line.ends_with(" use super::*;"));
    let bare = lines.filter_map(|line| line.split("//").next());
    bare.flat_map(|line| line.split('"').step_by(2).chain(["\n"])).collect()
}

/// The paths of a tree of imports, such as `a::{b, c::d}`.
fn leaves(prefix: &str, tree: &str) -> Vec<String> {
    let Some((head, group)) = tree.split_once('{') else {
        return vec![format!("{prefix}{}", tree.split(" as ").next().unwrap_or_default().trim())];
    };
    let (prefix, mut depth) = (format!("{prefix}{}", head.trim()), 0);
    let parts = group.trim().strip_suffix('}').unwrap_or(group).split(|one| {
        depth += i32::from(one == '{') - i32::from(one == '}');
        one == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).flat_map(|part| leaves(&prefix, part)).collect()
}

fn paths(code: &str) -> Vec<String> {
    let used = code.split(';').filter_map(|statement| {
        let (before, tree) = statement.rsplit_once("use ")?;
        let line = before.rsplit('\n').next()?.trim();
        (line.is_empty() || line.starts_with("pub")).then(|| leaves("", tree))
    });
    let words = code.split(|one: char| !(one.is_alphanumeric() || "_:".contains(one)));
    let named = words.filter(|word| word.contains("::") && !word.ends_with("::"));
    used.flatten().chain(named.map(str::to_owned)).collect()
}

/// The module in which a path ends, seen from another one.
fn target<'a>(package: &'a Package, from: &Module, path: &str) -> Option<&'a Module> {
    let first = path.split("::").next()?;
    let is_child = package.contains_key(&[from.as_slice(), &[first.to_owned()]].concat());
    if !is_child && !["crate", "self", "super"].contains(&first) {
        return None;
    }
    let mut at = if first == "crate" { Module::new() } else { from.clone() };
    for part in path.split("::").filter(|part| !["crate", "self"].contains(part)) {
        match part {
            "super" => drop(at.pop()?),
            name => at.push(name.to_owned()),
        }
    }
    while !package.contains_key(&at) {
        at.pop()?;
    }
    package.get_key_value(&at).map(|(module, _)| module).filter(|module| *module != from)
}

/// The arrows that run up in this room, by the order of the links in its map.
fn upward(arrows: &Arrows, room: &Module, (path, raw): (&str, &str)) -> Vec<String> {
    let map = raw.split("\n\n").next().unwrap_or_default();
    let floors: Vec<&str> = map.split("[`").filter_map(|text| Some(text.split_once("`]")?.0)).collect();
    let floor = |name: &str| floors.iter().position(|floor| *floor == name);
    let within = |module: &Module| module.strip_prefix(room.as_slice())?.first().cloned();
    let inner = |(from, to): (&Module, &Module)| Some((within(from)?, within(to)?));
    let all = arrows.iter().flat_map(|(from, to)| to.iter().map(|to| (*from, *to)));
    let up = all.filter_map(inner).filter(|(from, to)| from != to);
    let up = up.filter(|(from, to)| floor(from).zip(floor(to)).is_none_or(|(from, to)| from > to));
    up.map(|(from, to)| format!("{path}: {from} runs up to {to}, or has no floor")).collect()
}

fn faults(sources: &[(&str, &str)]) -> BTreeSet<String> {
    let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
    for (path, raw) in sources {
        if let Some((folder, module)) = module(path) {
            packages.entry(folder).or_default().insert(module, (*path, *raw));
        }
    }
    let mut found = BTreeSet::new();
    for package in packages.values() {
        let to = |from, raw| paths(&code(raw)).iter().filter_map(|one| target(package, from, one)).collect();
        let arrows: Arrows = package.iter().map(|(module, (_, raw))| (module, to(module, raw))).collect();
        let mut reached = arrows.clone();
        for via in arrows.keys() {
            let further = reached[via].clone();
            reached.values_mut().filter(|to| to.contains(via)).for_each(|to| to.extend(&further));
        }
        for (module, to) in reached.iter().filter(|(module, to)| to.contains(*module)) {
            let circle = to.iter().filter(|other| reached[**other].contains(module));
            found.insert(circle.map(|other| package[*other].0).collect::<Vec<_>>().join(" "));
        }
        let rooms = package.iter().filter(|(_, (_, raw))| raw.contains("from top to bottom"));
        found.extend(rooms.flat_map(|(room, file)| upward(&arrows, room, *file)));
    }
    found
}

#[test]
fn no_files_import_each_other_in_a_circle_and_no_arrow_runs_up() {
    let sources: Vec<(&str, &str)> = HOUSE.iter().map(|source| (&*source.path, &*source.raw)).collect();
    let found: Vec<String> = faults(&sources).into_iter().collect();
    assert!(found.is_empty(), "move what these files share below them:\n  {}", found.join("\n  "));
}

#[test]
fn a_circle_or_an_arrow_upward_is_seen_however_it_is_written() {
    let a = |text| ("src/gateway/a.rs", text);
    let b = |text| ("src/gateway/b.rs", text);
    let map = |text| ("src/gateway/mod.rs", text);
    let to_b = || a("use super::b::B;\n");
    for (sources, is_fault) in [
        (vec![to_b(), b("use crate::gateway::{c::C, a::A};\n")], true),
        (vec![to_b(), b("fn f() { super::a::f() }\n")], true),
        (vec![a("use super::Top;\n"), map("mod a;\npub struct Top(a::A);\n")], true),
        (vec![to_b(), b("const TEXT: &str = \"super::a::A\"; // As in super::a::A\n")], false),
        (vec![to_b(), b("\n#[cfg(test)]\nmod tests {\n    use crate::gateway::a::A;\n}\n")], false),
        (vec![to_b(), ("src/gateway/b/tests.rs", "use crate::gateway::a::A;\n")], false),
        (vec![to_b(), b(""), map("//! Rooms from top to bottom: [`a`], [`b`].\n")], false),
        (vec![to_b(), b(""), map("//! Rooms from top to bottom: [`b`], [`a`].\n")], true),
        (vec![to_b(), b(""), map("//! Rooms from top to bottom: [`a`].\n")], true),
    ] {
        assert_eq!(!faults(&sources).is_empty(), is_fault, "{sources:?}");
    }
}
