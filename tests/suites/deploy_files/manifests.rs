//! The Kubernetes manifests: valid by Kubernetes' schema, true of the product, and consistent with
//! each other. Each region is tested by its own files, and as kubectl renders it.

use super::pod::{Pod, word};
use super::schema::Schema;
use super::{REGIONS, after, between, onceway, text, tool, top, well};
use crate::support::*;

const BASE: &str = "deploy/kubernetes/base";
/// The time to end after the drain, with a reserve (`server::run` closes in two seconds).
const CLOSING: Duration = Duration::from_secs(5);

fn blocks() -> Vec<String> {
    let guide = text("deploy/README.md");
    super::blocks(between(&guide, "\n## Kubernetes\n", "\n## ")).map(str::to_owned).collect()
}

/// A shell that is typed these lines in a folder, and finds the built program.
fn typing(lines: &str, folder: &Path) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_onceway")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-e", "-c", lines]).current_dir(folder).env("PATH", path);
    bash
}

/// A copy of the tree after the section's first block, which makes the manifests' files.
fn typed() -> &'static Path {
    static TYPED: OnceLock<PathBuf> = OnceLock::new();
    TYPED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deployed");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        well(Command::new("cp").arg("-R").args([top("config"), top("deploy")]).arg(&folder));
        well(&mut typing(&blocks()[0], &folder));
        folder
    })
}

pub fn documents(yaml: &str) -> Vec<Value> {
    let all = serde_yaml_ng::Deserializer::from_str(yaml).map(Value::deserialize);
    let all = all.map(|document| document.unwrap_or_else(|error| panic!("{error} in\n{yaml}")));
    all.filter(|one| !one.is_null()).collect()
}

fn kustomization(folder: &str) -> Value {
    documents(&text(&format!("{folder}/kustomization.yaml"))).remove(0)
}

pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    items(value).iter().filter_map(Value::as_str)
}

/// The objects of a region, base and overlay. Also, for each generated ConfigMap, its files, as
/// `kustomize` names them in the copy of the tree.
pub fn region(name: &str) -> (Vec<Value>, BTreeMap<String, Vec<String>>) {
    let (mut objects, mut maps) = (Vec::new(), BTreeMap::new());
    for folder in [BASE.to_owned(), format!("deploy/kubernetes/{name}")] {
        let kustomization = kustomization(&folder);
        for resource in strings(&kustomization["resources"]).filter(|resource| *resource != "../base") {
            objects.extend(documents(&text(&format!("{folder}/{resource}"))));
        }
        for map in items(&kustomization["configMapGenerator"]) {
            let path = |file: &str| format!("{}/{folder}/{file}", typed().display());
            let files = strings(&map["files"]).map(path).collect();
            maps.insert(word(&map["name"]).to_owned(), files);
        }
    }
    (objects, maps)
}

pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn deployment(objects: &[Value]) -> &Value {
    let [deployment] = of_kind(objects, "Deployment")[..] else { panic!("one deployment") };
    deployment
}

pub fn pod(objects: &[Value]) -> &Value {
    &deployment(objects)["spec"]["template"]["spec"]
}

pub fn container(objects: &[Value]) -> &Value {
    let [container] = items(&pod(objects)["containers"]) else { panic!("one container") };
    container
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    items(list).iter().find(|one| one["name"] == name)
}

#[test]
fn manifests_fit_the_schema_and_are_complete_when_rendered() {
    let schema = Schema::kubernetes();
    for name in REGIONS {
        let fits = |object: &Value| {
            assert_eq!(schema.wrong(object), [""; 0], "{name}: {}", object["metadata"]["name"]);
        };
        let (objects, maps) = region(name);
        assert!(objects.len() >= 10, "{name} has only {} objects", objects.len());
        objects.iter().for_each(fits);
        let Some(mut kubectl) = tool("kubectl", "how the manifests are rendered") else { continue };
        let folder = typed().join(format!("deploy/kubernetes/{name}"));
        let yaml = well(kubectl.args(["kustomize", "--load-restrictor", "LoadRestrictionsNone"]).arg(folder));
        let rendered = documents(&yaml);
        for object in &rendered {
            fits(object);
            let is_ours = object["kind"] == "Namespace" || object["metadata"]["namespace"] == "onceway";
            assert!(is_ours, "{object}");
        }
        assert_eq!(rendered.len(), objects.len() + maps.len(), "{name}");
        let maps = of_kind(&rendered, "ConfigMap").into_iter().map(|map| word(&map["metadata"]["name"]));
        let maps: BTreeSet<&str> = maps.collect();
        let sources = &pod(&rendered)["volumes"][0]["projected"]["sources"];
        for used in items(sources).iter().filter_map(|source| source["configMap"]["name"].as_str()) {
            assert!(maps.contains(used), "{name}: no ConfigMap {used} among {maps:?}");
        }
        assert_ne!(container(&rendered)["image"], "onceway", "the image is named by nobody");
    }
}

#[test]
fn a_pod_has_its_regions_configuration_and_the_manifests_its_ports() {
    for name in REGIONS {
        let (objects, _) = region(name);
        let config = Pod::of(name).config();
        assert_eq!(config.me.as_str(), name);
        assert!(config.process.provision.is_none(), "no pod makes stores");
        let peers = config.process.peer.as_ref().unwrap().addresses.keys().map(|peer| peer.as_str());
        let others = REGIONS.into_iter().filter(|other| *other != name);
        assert_eq!(peers.collect::<BTreeSet<_>>(), others.collect());
        let listen = &config.process.listen;
        let real = BTreeMap::from([
            ("public", listen.public.port()),
            ("admin", listen.admin.port()),
            ("peer", listen.peer.unwrap().port()),
        ]);
        let ports = &container(&objects)["ports"];
        assert_eq!(items(ports).len(), real.len());
        for (port, number) in &real {
            assert_eq!(named(ports, port).unwrap()["containerPort"], *number, "{name}: {port}");
        }
        let services = of_kind(&objects, "Service");
        for port in services.iter().flat_map(|service| items(&service["spec"]["ports"])) {
            let target = word(&port["targetPort"]);
            assert_eq!((&port["port"], word(&port["name"])), (&real[target].into(), target), "{name}");
        }
        for path in paths(&objects) {
            let service = &path["backend"]["service"];
            let of = services.iter().find(|one| one["metadata"]["name"] == service["name"]).unwrap();
            assert!(named(&of["spec"]["ports"], word(&service["port"]["name"])).is_some(), "{path}");
        }
        let allowed = BTreeSet::from([real["public"], real["admin"], real["peer"]]);
        let abroad = BTreeSet::from([53, real["peer"], upstream(&config), postgres()]);
        for (way, known) in [("ingress", &allowed), ("egress", &abroad)] {
            let policies = of_kind(&objects, "NetworkPolicy");
            let rules = policies.iter().flat_map(|policy| items(&policy["spec"][way]));
            let ports = rules.flat_map(|rule| items(&rule["ports"])).map(|port| &port["port"]);
            let ports: BTreeSet<u16> = ports.map(|port| port.as_u64().unwrap().try_into().unwrap()).collect();
            assert_eq!(&ports, known, "{name} {way}");
        }
    }
}

pub fn paths(objects: &[Value]) -> Vec<&Value> {
    let rules = of_kind(objects, "Ingress").into_iter().flat_map(|ingress| items(&ingress["spec"]["rules"]));
    rules.flat_map(|rule| items(&rule["http"]["paths"])).collect()
}

fn upstream(config: &Config) -> u16 {
    config.process.upstream.service.addresses[0].rsplit(':').next().unwrap().parse().unwrap()
}

fn postgres() -> u16 {
    let file = text("config/us-east.toml");
    let host = between(&file, "postgres://onceway_gateway@", "/");
    host.split(':').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_stop_drains_fully_one_gateway_at_a_time() {
    for name in REGIONS {
        let (objects, _) = region(name);
        let (deployment, pod) = (deployment(&objects), pod(&objects));
        let seconds = |value: &Value| Duration::from_secs(value.as_u64().unwrap());
        let grace = seconds(&pod["terminationGracePeriodSeconds"]);
        let waits = seconds(&container(&objects)["lifecycle"]["preStop"]["sleep"]["seconds"]);
        let drain = Pod::of(name).config().process.drain;
        assert!(grace >= waits + drain + CLOSING, "{grace:?} for {waits:?}, {drain:?} and {CLOSING:?}");
        let readiness = &container(&objects)["readinessProbe"];
        let tries = u32::try_from(readiness["failureThreshold"].as_u64().unwrap()).unwrap();
        let unready = seconds(&readiness["periodSeconds"]) * tries;
        assert!(waits > unready, "the balancer learns of it later than the gateway refuses");

        let [budget] = of_kind(&objects, "PodDisruptionBudget")[..] else { panic!("one budget") };
        let (least, all) = (&budget["spec"]["minAvailable"], &deployment["spec"]["replicas"]);
        assert_eq!((least.as_u64(), all.as_u64()), (Some(2), Some(3)));
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let selectors =
            [&budget["spec"]["selector"]["matchLabels"], &deployment["spec"]["selector"]["matchLabels"]];
        let spread =
            items(&pod["topologySpreadConstraints"]).iter().map(|one| &one["labelSelector"]["matchLabels"]);
        let policies = of_kind(&objects, "NetworkPolicy");
        let policies = policies.iter().map(|policy| &policy["spec"]["podSelector"]["matchLabels"]);
        let services = of_kind(&objects, "Service");
        let services = services.iter().map(|service| &service["spec"]["selector"]);
        for selector in selectors.into_iter().chain(spread).chain(policies).chain(services) {
            assert_eq!(selector, labels, "{name}: this selects no gateway");
        }
    }
}

#[test]
fn a_container_has_only_the_rights_it_needs() {
    let containerfile = text("deploy/Containerfile");
    let (objects, _) = region("us-east");
    let pod = pod(&objects);
    let context = &pod["securityContext"];
    let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert_eq!(user, after(&containerfile, "USER "));
    assert_eq!(context["fsGroup"], context["runAsGroup"], "mounted secrets are the group's to read");
    assert_eq!(context["runAsNonRoot"], true);
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    let context = &container(&objects)["securityContext"];
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(strings(&context["capabilities"]["drop"]).collect::<Vec<_>>(), ["ALL"]);
    assert_eq!(pod["automountServiceAccountToken"], false);
    for mount in items(&container(&objects)["volumeMounts"]) {
        assert_eq!(mount["readOnly"], true, "{mount}");
    }
}

#[test]
fn the_guide_makes_every_named_secret() {
    let guide = text("deploy/README.md");
    let (objects, _) = region("us-east");
    let named = Pod::secrets(&objects);
    assert_eq!(named.len(), 6);
    for (secret, key) in named {
        let made = between(&guide, &format!("create secret generic {secret} "), "\n");
        assert!(made.contains(&format!("={key}=")), "the secret {secret} is made without {key}: {made}");
    }
    assert!(!guide.contains("--from-literal"), "a secret stands on a command line, where other users see it");
    assert!(of_kind(&objects, "Secret").is_empty(), "a secret stands in no file");
}

/// Types the section's second block into a copy of the tree, without its last line, which deletes
/// the made files. Returns true if it succeeded, the output, and the checked files, by region.
fn looked_at(tree: &Path) -> (bool, String, BTreeSet<String>) {
    let made = tempfile::tempdir().unwrap();
    let block = &blocks()[1];
    let lines =
        block.strip_suffix("rm -r $pods\n").unwrap_or_else(|| panic!("it leaves keys behind: {block}"));
    let mut bash = typing(lines, tree);
    let output = bash.env("TMPDIR", made.path()).env_remove("ONCEWAY_STORE_URL").output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let made = made.path().to_str().unwrap();
    let below = |file: &String| file[made.len() + 1..].split_once('/').unwrap().1.to_owned();
    (output.status.success(), said, super::files_below(made).iter().map(below).collect())
}

#[test]
fn the_guide_checks_the_files_that_pods_mount() {
    let (well, said, files) = looked_at(typed());
    assert!(well, "{said}");
    // Files that only the region's cluster has.
    let there = ["certs/postgres-ca.pem", "secrets/admin-token"];
    let mounted = REGIONS.iter().flat_map(|name| {
        let files = Pod::of(name).files().into_iter().filter(|file| !there.contains(&file.as_str()));
        files.map(move |file| format!("{name}/{file}"))
    });
    assert_eq!(files, mounted.collect());
    for name in REGIONS {
        assert!(said.contains(&format!("{name}/region.toml: region {name} of example, in order")), "{said}");
    }
    for (file, from, to, what) in [
        ("deploy/kubernetes/eu-west/region.toml", "drain = ", "drian = ", "eu-west/region.toml:"),
        (
            "deploy/kubernetes/ap-south/region.toml",
            "= \"ap-south\"",
            "= \"eu-west\"",
            "does not name eu-west.onceway",
        ),
        ("deployment/routes.toml", "\nhold = ", "\nholds = ", "routes.toml:"),
    ] {
        let tree = tempfile::tempdir().unwrap();
        let copy = tree.path().join("tree");
        super::well(Command::new("cp").arg("-R").arg(typed()).arg(&copy));
        let text = fs::read_to_string(copy.join(file)).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(copy.join(file), text.replacen(from, to, 1)).unwrap();
        let (well, said, _) = looked_at(&copy);
        assert!(!well && said.contains(what), "{file}: {said}");
    }
}

#[test]
fn prometheus_finds_the_pods_and_gives_them_their_region() {
    let file = text("deploy/prometheus/prometheus.yml");
    let job = between(&file, "\n  # - job_name: ", "\n\n").replace("\n  # ", "\n");
    let job = &documents(&format!("- job_name: {job}"))[0][0];
    let found = &job["kubernetes_sd_configs"][0];
    assert_eq!((&found["role"], &found["namespaces"]["names"][0]), (&"pod".into(), &"onceway".into()));
    let (objects, _) = region("us-east");
    let port = word(&job["relabel_configs"][0]["regex"]);
    let port = named(&container(&objects)["ports"], port).expect("a port of the container");
    assert_eq!(port["containerPort"], Pod::of("us-east").config().process.listen.admin.port());
    let given = &job["relabel_configs"][1];
    assert_eq!(given["target_label"], "region");
    assert!(REGIONS.contains(&given["replacement"].as_str().unwrap()), "{given}");
}

#[test]
fn rolled_out_files_hold_no_published_secret() {
    for name in REGIONS {
        let files: BTreeSet<String> = region(name).1.into_values().flatten().collect();
        let is_shared =
            |file: &&String| ["/ring.toml", "/credentials.toml"].iter().any(|end| file.ends_with(end));
        let shared: Vec<&String> = files.iter().filter(is_shared).collect();
        assert_eq!(shared.len(), 2);
        well(onceway().args(["check", "--strict"]).args(shared));
    }
}

#[test]
fn every_file_of_the_commands_has_its_folder() {
    let mut seen = 0;
    for word in blocks().iter().flat_map(|block| block.split_whitespace()) {
        let written = word.strip_prefix('>').map(|path| typed().join(path).parent().unwrap().to_owned());
        let read = word.strip_prefix("--from-file=").and_then(|named| named.split_once("=deployment/"));
        let read = read.map(|(_, path)| typed().join("deployment").join(path));
        for path in written.iter().chain(&read) {
            assert!(path.exists(), "{word}: nothing makes {}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 7, "{seen}");
}
