//! Configuration, through its public functions: all mistakes are reported, each at its line, and
//! correct settings have their documented meaning. `config/cases.rs` holds the mistakes. No process
//! is started: `tests/suites/cli.rs` does.

pub mod cases;
mod failing_over;
mod operators;
mod reloading;
mod secrets;

use crate::support::*;
use cases::{CASES, CREDENTIALS, ISSUER, ISSUER_CASES, KEYS, REGION, RING, ROUTES, SECRET_KEYS};
use failing_over::FAILOVER_CASES;
use onceway::config::Errors;
use onceway::config::listen::{PublicLimits, TlsFiles};
use onceway::gateway::limits::concurrency::MostAtOnce;
use onceway::gateway::policy::route::{Matched, Policy};
use secrets::SECRET_CASES;

/// The four good files and files of keys, each text of `edits` (file, from, to) replaced once.
fn files(edits: &[(&str, &str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("keys.json", KEYS), ("cut.json", "{\n"), ("secret.json", SECRET_KEYS)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::write(folder.path().join("long.json"), " ".repeat((256 << 10) + 1)).unwrap();
    for (name, good) in [("ring", RING), ("routes", ROUTES), ("credentials", CREDENTIALS), ("region", REGION)]
    {
        let mut text = good.to_owned();
        for (_, from, to) in edits.iter().filter(|(file, _, _)| *file == name) {
            assert!(text.contains(from), "{name}.toml has no {from:?}");
            text = text.replacen(from, to, 1);
        }
        fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
    }
    folder
}

fn load(folder: &Path) -> Result<Config, Errors> {
    Config::load_with(&folder.join("region.toml"), &|_| None)
}

fn load_with(edits: &[(&str, &str, &str)]) -> Config {
    load(files(edits).path()).unwrap_or_else(|errors| panic!("{edits:?}: {errors}"))
}

fn said_with(edits: &[(&str, &str, &str)]) -> Vec<String> {
    said(files(edits).path())
}

/// All messages, without the folder's own name.
fn said(folder: &Path) -> Vec<String> {
    let Err(errors) = load(folder) else { return Vec::new() };
    let lines = errors.to_string().replace(&format!("{}/", folder.display()), "");
    lines.lines().map(str::to_owned).collect()
}

fn load_reference(name: &str) -> Config {
    let set =
        |name: &str| (name == "ONCEWAY_STORE_URL").then(|| "postgres://gateway@127.0.0.1/onceway".to_owned());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    Config::load_with(&file, &set).unwrap_or_else(|errors| panic!("{errors}"))
}

fn policy_of<'a>(config: &'a Config, path: &str) -> &'a Policy {
    match config.shared.routes.find(&Method::POST, path, &HeaderMap::new()) {
        Matched::Route(route) => route.policy().unwrap_or_else(|| panic!("{path} handles no keys")),
        Matched::PassThrough | Matched::Refused(_) => panic!("no route takes {path}"),
    }
}

#[test]
fn a_quota_bursts_as_far_as_its_rate_unless_it_says_otherwise() {
    let of = |lines: &str| {
        let edit = ("region", "[upstream]", &*format!("[quota]\n{lines}\n[upstream]"));
        let quota = load_with(&[edit]).settings().live.quota.unwrap();
        [quota.new_keys, quota.look_ups, quota.misses]
            .map(|pace| pace.map_or((0, 0), |pace| (pace.per_second.get(), pace.burst.get())))
    };
    assert_eq!(of("new_keys_per_second = 50"), [(50, 50), (0, 0), (0, 0)]);
    assert_eq!(of("new_keys_per_second = 50\nburst = 7"), [(50, 7), (0, 0), (0, 0)]);
    let all = "new_keys_per_second = 50\nlook_ups_per_second = 60\nmisses_per_second = 4";
    assert_eq!(of(all), [(50, 50), (60, 60), (4, 4)]);
    assert_eq!(of("misses_per_second = 4"), [(0, 0), (0, 0), (4, 4)]);
    let lines = "[quota]\nlive_keys = 1000000000\n[upstream]";
    let quota = load_with(&[("region", "[upstream]", lines)]).settings().live.quota.unwrap();
    assert_eq!((quota.live_keys.unwrap().get(), quota.new_keys), (1_000_000_000, None));
}

#[test]
fn each_mistake_is_reported_at_its_line() {
    assert!(CASES.len() >= 60);
    for (file, from, to, expected) in [CASES, FAILOVER_CASES, SECRET_CASES].into_iter().flatten() {
        let said = said_with(&[(file, from, to)]).join("\n");
        assert_eq!(said, *expected, "{file}.toml with {to:?} for {from:?}");
    }
}

#[test]
fn all_mistakes_of_all_files_are_said_at_once() {
    let said = said_with(&[
        ("region", "shared = true\n", "shared = 1\n"),
        ("region", "ca = \"ca.pem\"\n", ""),
        ("region", "west = \"west.internal:7403\"\n", ""),
        ("ring", "place_by = \"key\"\n", ""),
        ("ring", "drift_ppm = 500", "drift_ppm = 0"),
        ("routes", "recovery = \"probe\"\n", ""),
        ("routes", "recovery = \"rerun\"", "recovery = \"rerun\"\nhold = \"1s\""),
        ("credentials", "acme", "a c"),
    ]);
    let files: Vec<&str> = said.iter().map(|line| line.split(':').next().unwrap_or("")).collect();
    let counts = [("region.toml", 3), ("ring.toml", 2), ("routes.toml", 3), ("credentials.toml", 1)];
    let expected = counts.iter().flat_map(|(file, count)| std::iter::repeat_n(*file, *count));
    assert_eq!(files, expected.collect::<Vec<_>>(), "{said:#?}");
    assert!(said.iter().any(|line| line.contains(": [peer.addresses] has no west: ")), "{said:#?}");
}

#[test]
fn the_file_sets_the_public_listeners_tls_and_limits() {
    let tables = "[listen.tls]\ncertificate = \"public.pem\"\nkey = \"public.key\"\n[listen.limits]\nconnections = 7\nconnections_per_ip = 3\nheads = \"3MiB\"\n\
                  requests = 5\nbodies = \"2MiB\"\nhead_time = \"1s\"\nbody_stall = \"2s\"\nwrite_stall = \"3s\"\nidle_time = \"4s\"\n[store]\n";
    let folder = files(&[("region", "[store]\n", tables)]);
    let listen = load(folder.path()).unwrap().process.listen;
    let at = |name: &str| folder.path().join(name);
    assert_eq!(listen.tls, Some(TlsFiles { certificate: at("public.pem"), key: at("public.key") }));
    let limits = PublicLimits {
        connections: 7,
        connections_per_ip: 3,
        heads: 3 << 20,
        head_time: Duration::from_secs(1),
        body_stall: Duration::from_secs(2),
        write_stall: Duration::from_secs(3),
        idle_time: Duration::from_secs(4),
    };
    assert_eq!(listen.limits, limits);
    assert_eq!(listen.at_once, MostAtOnce { requests: 5, bodies: 2 << 20 });
}

#[test]
fn every_body_fits_into_the_room_for_bodies() {
    let wide = ("routes", "hold = \"10s\"", "hold = \"10s\"\nbody_limit = \"2MiB\"");
    let room = |size| ("region", "[store]\n", format!("[listen.limits]\nbodies = {size:?}\n[store]\n"));
    for (size, refusal) in [("2MiB", None), ("1MiB", Some(2))] {
        let (file, from, to) = room(size);
        let said = said_with(&[wide, (file, from, &to)]);
        let expected = refusal.map(|limit| {
            format!("routes.toml:1: route \"charges\": body_limit {limit}MiB is more than all bodies at once may take, 1MiB: raise bodies under [listen.limits], or lower it")
        });
        assert_eq!(said, Vec::from_iter(expected), "{size}");
    }
}

#[test]
fn the_reference_files_are_right_and_agree() {
    let all = ["us-east.toml", "eu-west.toml", "ap-south.toml"].map(load_reference);
    for config in &all {
        assert_eq!(config.shared.digest, all[0].shared.digest);
        assert_eq!(config.shared.ring.digest(), all[0].shared.ring.digest());
        assert_eq!(config.process.peer.as_ref().unwrap().addresses.len(), 2);
        // Without a password, provisioning would make roles that nobody can log in as.
        let provision = config.process.provision.as_ref().unwrap();
        assert!(provision.gateway.password.is_some() && provision.replication.password.is_some());
    }
    for (token, tenant) in [
        ("sk_example_acme", Some("acme")),
        ("sk_example_acme_next", Some("acme")),
        ("sk_example_globex", Some("globex")),
        ("sk_example_nobody", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        let caller = all[0].credentials.caller(&headers, Date(0));
        assert_eq!(caller.as_ref().map(|caller| caller.tenant.as_str()), tenant, "{token}");
    }
}

#[test]
fn the_shared_digest_is_of_meanings_not_of_texts() {
    let digest = |edits: &[(&str, &str, &str)]| load_with(edits).shared.digest;
    let plain = digest(&[]);
    for same in [
        ("routes", "hold = \"10s\"", "# ten seconds\nhold = \"10000ms\""),
        ("routes", "hold = \"10s\"", "hold = \"10s\"\nwait = \"5s\""),
        ("routes", "hold = \"10s\"", "hold = \"10s\"\nreplay_headers = [\"ETag\"]"),
        ("region", "0.0.0.0:7401", "0.0.0.0:7409"),
        ("credentials", "acme", "globex"),
        // The register says which routes are under escrow.
        ("routes", "recovery = \"rerun\"", "recovery = \"rerun\"\nescrow = \"claim\""),
    ] {
        assert_eq!(digest(&[same]), plain, "{same:?}");
    }
    let of_route = |line: &str| {
        let table = format!("hold = \"10s\"\n{line}\nupstream");
        digest(&[("routes", "hold = \"10s\"\nupstream", &table)])
    };
    for line in [
        "nothing_happened = [404]",
        "replay_headers = [\"x-a\"]",
        "mode = \"prefer\"",
        "mode = \"accept\"\naccept = { max_runs = 2 }",
        "mismatch = 409",
        "dialect = \"stripe\"",
        "key_from = [\"header:X-Key\"]",
        "forward_key = \"bare\"",
        "forward_key_header = \"X-Key\"",
        "key_policy = { min_length = 2 }",
        "key_policy = { max_length = 99 }",
        "key_policy = { alphabet = \"hex\" }",
        "key_policy = { form = \"uuid\" }",
        "key_policy = { entropy_bits = 9 }",
        "fingerprint = { include = [\"/a\"] }",
        "fingerprint = { exclude = [\"/a\"] }",
        "fingerprint = { headers = [\"x-a\"] }",
    ] {
        assert_ne!(of_route(line), plain, "{line}");
    }
    let named = ("region", "[peer]", "[upstreams.pay]\naddresses = [\"http://p:1\"]\nshared = true\n[peer]");
    assert_eq!(digest(&[named]), plain, "each region has doors of its own");
    for route in ["hold = \"10s\"", "key = \"off\""] {
        let goes = format!("{route}\nupstream = \"pay\"");
        assert_ne!(digest(&[named, ("routes", route, &goes)]), plain, "{route}");
    }
    for line in [
        "lease = \"9s\"",
        "multiple = 3",
        "floor = \"2s\"",
        "beyond = \"2m\"",
        "drain_limit = \"200ms\"",
        "kill_after = \"6s\"",
        "stable_for = \"2m\"",
        "min_serving = 2",
    ] {
        assert_ne!(digest(&[("ring", "[failover]", &format!("[failover]\n{line}"))]), plain, "{line}");
    }
    for other in [
        ("routes", "hold = \"10s\"", "hold = \"11s\""),
        ("routes", "recovery = \"rerun\"", "recovery = \"rerun\"\nmax_attempts = 4"),
        ("routes", "/v1/emails", "/v1/mails"),
        ("ring", "drift_ppm = 500", "drift_ppm = 501"),
        ("ring", "seed = 7", "seed = 7\nheartbeat = \"200ms\""),
    ] {
        assert_ne!(digest(&[other]), plain, "{other:?}");
    }
    let fields = |list: &str| of_route(&format!("fingerprint = {{ {list} }}"));
    assert_eq!(fields("include = [\"/a\", \"/b\"]"), fields("include = [\"/b\", \"/a\"]"));
    assert_ne!(fields("include = [\"/a\"]"), fields("exclude = [\"/a\"]"));
}

#[test]
fn one_written_outcome_set_takes_from_the_other_ones_default() {
    use onceway::protocol::outcome::Outcome::{Final, NothingHappened, Unknown};
    let of = |lines: &str| {
        let config = load_with(&[("routes", "hold = \"10s\"", &format!("hold = \"10s\"\n{lines}"))]);
        let sets = policy_of(&config, "/v1/charges").outcomes.clone();
        let told_when = sets.classify(503, true);
        ([200, 404, 429, 503, 500].map(|status| sets.classify(status, false)), told_when)
    };
    assert_eq!(of(""), ([Final, Final, NothingHappened, Unknown, Unknown], NothingHappened));
    let listed = of("nothing_happened = [404]");
    assert_eq!(listed, ([Final, NothingHappened, Unknown, Unknown, Unknown], Unknown));
    let trusted = of("nothing_happened = [503]");
    assert_eq!(trusted, ([Final, Final, Unknown, NothingHappened, Unknown], NothingHappened));
    let told_when = of("nothing_happened = [\"5xx+Retry-After\"]");
    assert_eq!(told_when, ([Final, Final, Unknown, Unknown, Unknown], NothingHappened));
    let finals = of("final = [\"2xx\", \"429-430\"]");
    assert_eq!(finals, ([Final, Unknown, Final, Unknown, Unknown], NothingHappened));
    assert_eq!(of("final = [503]"), ([Unknown, Unknown, NothingHappened, Final, Unknown], Final));
    let both = of("final = [\"200\"]\nnothing_happened = []");
    assert_eq!(both, ([Final, Unknown, Unknown, Unknown, Unknown], Unknown));
}

#[test]
fn place_by_decides_the_arc() {
    let homes = |edits: &[(&str, &str, &str)]| -> BTreeSet<RegionName> {
        let ring = load_with(edits).shared.ring;
        let id = |key: u32| KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(&key.to_string()).unwrap());
        (0..64).map(|key| ring.order(&id(key)).home().clone()).collect()
    };
    assert_eq!(homes(&[("ring", "place_by = \"key\"", "place_by = \"tenant\"")]).len(), 1);
    assert_eq!(homes(&[]).len(), 2);
}

fn said_of_issuer(from: &str, to: &str) -> Vec<String> {
    assert!(ISSUER.contains(from), "{from:?}");
    let text = format!("{}[[credential]]", ISSUER.replacen(from, to, 1));
    said_with(&[("credentials", "[[credential]]", &text)])
}

#[test]
fn each_mistake_in_an_issuer_is_said_at_its_line() {
    assert_eq!(said_of_issuer("", ""), [""; 0]);
    for (from, to, expected) in ISSUER_CASES {
        assert_eq!(said_of_issuer(from, to).join("\n"), *expected, "{to:?} for {from:?}");
    }
}

#[test]
fn a_route_that_binds_to_principals_wants_them_named_everywhere() {
    let bind = ("routes", "hold = \"10s\"", "hold = \"10s\"\nbind = \"principal\"");
    let named = ("credentials", "tenant = \"acme\"", "tenant = \"acme\"\nprincipal = \"ledger\"");
    let front = (
        "region",
        "[store]",
        "[listen.trusted]\naddress = \"127.0.0.1:1\"\ntenant_header = \"X-T\"\n[store]",
    );
    let (plain, bound) = (load_with(&[]), load_with(&[bind, named]));
    assert_ne!(plain.shared.digest, bound.shared.digest, "all regions must bind alike");
    assert_eq!(
        said_with(&[bind, named, front]),
        [
            "routes.toml:1: route \"charges\": bind = \"principal\", and [listen.trusted] has no principal_header: name the header in which the front names the principal"
        ]
    );
    let whole = ("region", "tenant_header = \"X-T\"", "tenant_header = \"X-T\"\nprincipal_header = \"X-P\"");
    assert_eq!(said_with(&[bind, named, front, whole]), [""; 0]);
}
