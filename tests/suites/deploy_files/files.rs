//! The container file, the unit, DNS and Postgres: the things that they name exist, and their
//! programs accept them. `pod` asks a running gateway for the paths that DNS checks.

use super::{after, between, blocks, onceway, text, tool, top, well};
use crate::support::documents::pages;
use crate::support::*;
use onceway::server::descriptors;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The limit for the unit's exposure, in tenths (`systemd-analyze security`).
const MOST_EXPOSED: &str = "20";

fn reference() -> Config {
    let environment = |_: &str| Some("postgres://onceway_gateway@127.0.0.1:5432/onceway".to_owned());
    Config::load_with(&top("config/us-east.toml"), &environment).unwrap()
}

fn instructions<'a>(file: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let lines = file.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    lines.map(|line| line.split_whitespace().collect()).collect()
}

/// True if the base image of a `FROM` cannot change: it is empty, or named by a digest.
fn is_pinned(image: &str) -> bool {
    let is_hex = |digest: &str| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    image == "scratch" || image.split_once("@sha256:").is_some_and(|(_, digest)| is_hex(digest))
}

/// Every file that is built into the program from the sources in a folder, by its path in the tree.
fn built_in(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in super::files_below(folder).iter().filter(|source| source.ends_with(".rs")) {
        let text = text(source);
        let named = |sign| text.split(sign).skip(1).filter_map(|rest| Some(rest.split_once("\")")?.0));
        for named in named("include_str!(\"").chain(named("include_bytes!(\"")) {
            // By words, not by the file system: links would lead back into the tree.
            let mut path: Vec<&str> = source.split('/').collect();
            path.pop();
            for part in named.split('/') {
                match part {
                    ".." => drop(path.pop()),
                    part => path.push(part),
                }
            }
            found.insert(path.join("/"));
        }
        // Named by a macro: all that are in the folder.
        if text.contains("include_str!(concat!(\"sql/\"") {
            let folder = source.rsplit_once('/').map_or("", |(folder, _)| folder);
            found.extend(super::files_below(&format!("{folder}/sql")));
        }
    }
    assert!(found.contains("config/ring.toml") && found.len() > 50, "{found:?}");
    found
}

#[test]
fn the_container_file_copies_everything_cargo_needs() {
    let file = text("deploy/Containerfile");
    let folder = tempfile::tempdir().unwrap();
    let mut binary = None;
    for copied in instructions(&file, "COPY") {
        let (to, from) = copied.split_last().unwrap();
        if let [stage, source] = from
            && stage.starts_with("--from=")
        {
            assert_eq!(*source, "/build/target/release/onceway");
            binary = Some(*to);
            continue;
        }
        for source in from {
            assert!(top(source).exists(), "{source} is copied and not there");
            symlink(top(source), folder.path().join(source)).unwrap();
        }
    }
    for file in built_in("src") {
        assert!(folder.path().join(&file).exists(), "{file} is built in, and not copied");
    }
    // Cargo reads the manifests first: a compiler that fails shows how far it came.
    let mut cargo = Command::new(env!("CARGO"));
    let build =
        instructions(&file, "RUN").into_iter().find(|words| words[..2] == ["cargo", "build"]).unwrap();
    assert_eq!(instructions(&file, "ARG"), [["FEATURES=jemalloc"]], "the allocator that was measured");
    assert!(build.ends_with(&["--features", "\"$FEATURES\""]), "{build:?}");
    cargo.arg("check").args(&build[2..build.len() - 1]).args(["", "--offline"]).current_dir(folder.path());
    cargo.env("RUSTC", "false").env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
    let output = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("-vV") && !said.contains("failed to parse manifest"), "{said}");

    let listen = reference().process.listen;
    let ports = [listen.public, listen.admin, listen.peer.unwrap()].map(|address| address.port().to_string());
    assert_eq!(instructions(&file, "EXPOSE"), [ports.each_ref().map(String::as_str)]);
    let words = |name: &str| serde_json::from_str::<Vec<String>>(after(&file, name)).unwrap();
    assert_eq!(words("ENTRYPOINT "), [binary.unwrap()]);
    well(onceway().args(words("CMD ")).arg("--help"));
    let manifest = text("Cargo.toml");
    let rust = after(&manifest, "rust-version = ").trim_matches('"');
    assert!(file.contains(&format!("rust:{rust}-")), "built with another Rust than {rust}");
    let named = format!("{file}{}", text("deploy/README.md"));
    for (at, sign) in named.match_indices("--build-arg FEATURES=") {
        let feature: String = named[at + sign.len()..].chars().take_while(char::is_ascii_lowercase).collect();
        assert!(manifest.contains(&format!("\n{feature} = [")), "there is no feature {feature:?}");
    }
}

#[test]
fn base_images_are_pinned_by_digest() {
    for moves in ["rust:1.95-alpine", "rust:1.95-alpine@sha256:606f", "rust@sha512:00"] {
        assert!(!is_pinned(moves), "{moves}");
    }
    let file = text("deploy/Containerfile");
    let bases = instructions(&file, "FROM");
    assert_eq!(bases.len(), 2, "{bases:?}");
    for base in bases {
        assert!(is_pinned(base[0]), "{} may be another image tomorrow", base[0]);
    }
}

#[test]
fn the_unit_allows_a_full_stop_and_enough_files() {
    let unit = text("deploy/systemd/onceway.service");
    let stop: u64 = after(&unit, "TimeoutStopSec=").parse().unwrap();
    assert!(stop >= reference().process.drain.as_secs() + 5, "a stop is cut short");
    let files: u64 = after(&unit, "LimitNOFILE=").parse().unwrap();
    assert!(files >= u64::try_from(descriptors::of_gateway(&reference())).unwrap());
}

#[test]
fn systemd_accepts_the_hardened_units() {
    let users = text("deploy/systemd/onceway.sysusers");
    for name in ["onceway.service", "onceway-witness.service"] {
        let unit = text(&format!("deploy/systemd/{name}"));
        assert!(unit.lines().any(|line| line == "LimitCORE=0"), "{name}: a core holds keys and tokens");
        after(&users, &format!("u {} ", after(&unit, "User=")));
        let unit = unit.replace("/usr/local/bin/onceway", env!("CARGO_BIN_EXE_onceway"));
        systemd_takes(&[(name, unit)]);
    }
    // The timer is verified with the service that it starts.
    let zones = text("deploy/dns/coredns/onceway-zones.service");
    let script = top("deploy/dns/coredns/zones");
    let zones = zones.replace("/usr/local/bin/onceway-zones", script.to_str().unwrap());
    let timer = text("deploy/dns/coredns/onceway-zones.timer");
    systemd_takes(&[("onceway-zones.service", zones), ("onceway-zones.timer", timer)]);
}

/// Verifies related units with systemd: it accepts every line. The first one is hardened.
fn systemd_takes(units: &[(&str, String)]) {
    let Some(mut verify) = tool("systemd-analyze", "the systemd units") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, unit) in units {
        fs::write(path(name), unit).unwrap();
    }
    let output = verify.args(["verify", "--man=no"]).args(units.iter().map(|(name, _)| path(name)));
    let output = output.output().unwrap();
    let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
    // It succeeds although it ignores a line, but then prints the unit's name.
    assert!(output.status.success() && !units.iter().any(|(name, _)| said.contains(name)), "{said}");
    let threshold = format!("--threshold={MOST_EXPOSED}");
    let hardened = path(units[0].0);
    well(Command::new("systemd-analyze").args(["security", "--offline=true", &threshold]).arg(hardened));
}

#[test]
fn coredns_reads_the_zones_where_they_are_written() {
    let unit = text("deploy/dns/coredns/onceway-zones.service");
    let folder = format!("/var/lib/{}", after(&unit, "StateDirectory="));
    let [program, regions, to] = after(&unit, "ExecStart=").split(' ').collect::<Vec<_>>()[..] else {
        panic!("{unit}")
    };
    assert_eq!(to, folder);
    let corefile = text("deploy/dns/coredns/Corefile");
    let mut zones = corefile.lines().filter_map(|line| line.trim().strip_prefix("file "));
    assert!(zones.all(|zone| zone.starts_with(&format!("{folder}/"))), "{corefile}");
    let timer = text("deploy/dns/coredns/onceway-zones.timer");
    let every = after(&timer, "OnUnitInactiveSec=");
    assert!(corefile.contains(&format!("reload {every}\n")), "every {every}");
    let readme = text("deploy/README.md");
    for made in [format!("zones {program}\n"), format!("regions {regions}\n")] {
        assert!(readme.contains(&made), "deploy/README.md does not install {made}");
    }
}

#[test]
fn documented_checks_use_the_environment_of_the_service() {
    let unit = text("deploy/systemd/onceway.service");
    let file = after(&unit, "EnvironmentFile=");
    let check = "onceway check --strict --serve ";
    assert!(unit.contains(&format!("\nExecReload=/usr/local/bin/{check}")));
    for document in ["docs/operate/configuration.md", "deploy/RUNBOOK.md"] {
        let text = text(document);
        let typed = blocks(&text).flat_map(str::lines);
        let strict: Vec<&str> = typed.filter(|line| line.contains("check --strict")).collect();
        assert_eq!(strict.len(), 1, "{document}: {strict:?}");
        assert!(strict[0].starts_with(&format!("(set -a; . {file}; {check}")), "{document}: {}", strict[0]);
    }
}

#[test]
fn no_password_is_typed_on_a_command_line() {
    for document in pages() {
        let words =
            ["\"$ONCEWAY_ADMIN_URL\"", "--from-literal", "PGPASSWORD=", "-H \"Authorization: Bearer $("];
        for word in words {
            assert!(!text(&document).contains(word), "{document}: other users of the machine see {word}");
        }
    }
}

#[test]
fn the_witness_has_its_folder_before_its_first_start() {
    let unit = text("deploy/systemd/onceway-witness.service");
    let [mode, user, group, state] =
        ["StateDirectoryMode=", "User=", "Group=", "StateDirectory="].map(|key| after(&unit, key));
    let folder = format!("install -d -m {mode} -o {user} -g {group} /var/lib/{state}\n");
    let made = text("deploy/README.md");
    let (_, later) = made.split_once(&folder).unwrap_or_else(|| panic!("deploy/README.md lacks {folder}"));
    assert!(later.contains(&format!("runuser -u {user} -- onceway witness --config ")));
}

#[test]
fn terraform_is_formatted() {
    let Some(mut terraform) = tool("terraform", "the format of deploy/dns/route53") else { return };
    well(terraform.args(["fmt", "-check", "-diff", "-recursive"]).arg(top("deploy/dns")));
}

#[test]
fn each_front_has_its_own_route_53_check() {
    let file = text("deploy/dns/route53/main.tf");
    let record = |name: &str| {
        let record = between(&file, &format!("resource \"aws_route53_record\" \"{name}\" {{"), "\n}");
        record.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (name, says) in [
        ("front", "records = [each.value.address] "),
        ("front", "health_check_id = aws_route53_health_check.ready[each.key].id "),
        ("front", "name = \"${each.value.region}.${var.name}\""),
        (
            "region",
            "alias { name = \"${each.key}.${var.name}\" zone_id = var.zone_id evaluate_target_health = true }",
        ),
    ] {
        assert!(record(name).contains(says), "{says:?} is not in {}", record(name));
    }
}

/// A scripted program that asks a region's front: it succeeds for the given addresses.
fn front(folder: &Path, well: &[&str]) {
    let well: String = well.iter().map(|address| format!("|*:{address}\\ *")).collect();
    let script = format!("#!/bin/sh\ncase \"$*\" in nothing{well}) exit 0;; *) exit 22;; esac\n");
    fs::write(folder.join("curl"), script).unwrap();
    fs::set_permissions(folder.join("curl"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn zones_for_coredns_name_regions_that_are_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let write = |ready: &[&str]| {
        front(folder.path(), ready);
        let mut zones = Command::new("sh");
        zones.arg(top("deploy/dns/coredns/zones")).arg(top("deploy/dns/coredns/regions")).arg(folder.path());
        well(zones.env("PATH", &path));
        super::REGIONS.map(|region| fs::read_to_string(folder.path().join(region)).unwrap())
    };
    let named = |zones: [String; 3]| {
        zones.map(|zone| {
            let mut all: Vec<_> = zone.lines().filter_map(|line| line.strip_prefix("api IN A ")).collect();
            all.sort_unstable();
            all.join(" ")
        })
    };
    let [us, eu, ap] = ["192.0.2.10", "198.51.100.10", "203.0.113.10"];

    let all_well = write(&[us, eu, ap]);
    assert_eq!(write(&[us, eu, ap]), all_well, "nothing changed, and a serial did");
    assert_eq!(named(all_well), [us, eu, ap]);
    assert_eq!(named(write(&[eu, ap])), ["198.51.100.10 203.0.113.10", eu, ap]);
    assert_eq!(named(write(&[])), [us, eu, ap]);

    let corefile = text("deploy/dns/coredns/Corefile");
    for region in super::REGIONS {
        assert!(corefile.contains(&format!("file /var/lib/coredns/zones/{region} ")), "no view of {region}");
    }
}

#[test]
fn the_postgres_settings_equal_those_of_the_tests() {
    let ours = text("deploy/postgres/onceway.conf");
    let fleet = text("src/lab/cluster.rs");
    let mut compared = 0;
    for line in ours.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
        // The limit for kept WAL depends on the disk, the other values on the machine.
        if name != "max_slot_wal_keep_size" && fleet.contains(&format!("(\"{name}\", ")) {
            let has = fleet.contains(&format!("(\"{name}\", \"{value}\")"));
            assert!(has, "{name} is not {value} in the tests");
            compared += 1;
        }
    }
    assert!(compared >= 15, "only {compared} settings are those of the tests");
}

#[test]
fn store_check_recommends_the_files_settings() {
    let source = text("src/adapters/postgres/provision/settings.rs");
    let words = between(&source, "const RECOMMENDED", "];").split('"').skip(1).step_by(2);
    let file = text("deploy/postgres/onceway.conf");
    let lines = file.lines().filter_map(|line| line.split_once(" = "));
    let lines = lines.filter(|(name, _)| !name.starts_with('#') && *name != "wal_level");
    assert!(words.eq(lines.flat_map(|(name, value)| [name, value])), "{file}");
}

#[test]
fn roles_sql_sets_roles_like_store_init() {
    let source = text("src/adapters/postgres/provision/roles.rs");
    let words: Vec<_> = between(&source, "const SETTINGS", "];").split('"').skip(1).step_by(2).collect();
    let (pairs, []) = words.as_chunks::<2>() else { panic!("{words:?}") };
    let roles = text("deploy/postgres/roles.sql");
    for [name, value] in pairs {
        assert!(roles.contains(&format!("('{name}', '{value}')")), "roles.sql does not set {name}");
    }
    for role in ["gateway_role", "replication_role"] {
        let file = text("config/us-east.toml");
        let name = between(&file, &format!("\n{role} = \""), "\"");
        assert!(roles.contains(&format!("create role {name} ")), "{role}");
    }
}
