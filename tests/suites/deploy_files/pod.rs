//! A pod's view: the files of its volume, assembled as the manifests say, and its environment.
//! Secrets are made up, and every other file is one that the manifests take.

use super::manifests::{container, items, paths, pod, region};
use super::{between, onceway, text};
use crate::support::*;
use onceway::adapters::{identity, issue};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

pub struct Pod {
    objects: Vec<Value>,
    folder: TempDir,
}

impl Pod {
    pub fn of(name: &str) -> Self {
        let (objects, maps) = region(name);
        let folder = tempfile::tempdir().unwrap();
        let secrets = made_up(name);
        for (map, item) in mounted(&objects, "configMap") {
            let key = word(&item["key"]);
            let file = maps[map].iter().find(|file| Path::new(file).file_name().unwrap() == key);
            put(folder.path(), item, &text(file.unwrap_or_else(|| panic!("{map} has no {key}"))));
        }
        for (secret, item) in mounted(&objects, "secret") {
            put(folder.path(), item, &secrets[&(secret, word(&item["key"]))]);
        }
        Self { objects, folder }
    }

    pub fn files(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let all = super::files_below(folder);
        all.iter().map(|file| file[folder.len() + 1..].to_owned()).collect()
    }

    pub fn secrets(objects: &[Value]) -> Vec<(&str, &str)> {
        let env = items(&container(objects)["env"]).iter().map(|one| &one["valueFrom"]["secretKeyRef"]);
        let env = env.map(|one| (word(&one["name"]), word(&one["key"])));
        env.chain(mounted(objects, "secret").map(|(name, item)| (name, word(&item["key"])))).collect()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let secrets = made_up("us-east");
        let env = items(&container(&self.objects)["env"]).iter();
        let value = |one: &Value| {
            let secret = &one["valueFrom"]["secretKeyRef"];
            secrets[&(word(&secret["name"]), word(&secret["key"]))].clone()
        };
        env.map(|one| (word(&one["name"]).to_owned(), value(one))).collect()
    }

    pub fn config(&self) -> Config {
        let environment = self.environment();
        let loaded = Config::load_with(&self.folder.path().join("region.toml"), &|name| {
            environment.get(name).cloned()
        });
        loaded.unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// Starts the container's command, on free ports of this machine. Requests go to the admin
    /// listener. Its store is a port without a listener, so it is ready only in shadow mode, which
    /// asks neither store nor peers.
    fn start(&self, shadow: bool) -> Running {
        let mut file = fs::read_to_string(self.folder.path().join("region.toml")).unwrap();
        let free: Vec<SocketAddr> = {
            let bound: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            bound.iter().map(|listener| listener.local_addr().unwrap()).collect()
        };
        for (port, address) in ["public", "admin", "peer"].iter().zip(&free) {
            let line = file.lines().find(|line| line.starts_with(&format!("{port} = "))).unwrap().to_owned();
            file = file.replace(&line, &format!("{port} = \"{address}\""));
        }
        file = file.replace("\n[listen]\n", &format!("\nshadow = {shadow}\n\n[listen]\n"));
        fs::write(self.folder.path().join("region.toml"), file).unwrap();
        let mount = &container(&self.objects)["volumeMounts"][0]["mountPath"];
        let here = self.folder.path().to_str().unwrap();
        let args = items(&container(&self.objects)["args"]).iter();
        let args = args.map(|arg| word(arg).replace(word(mount), here));
        let mut command = onceway();
        command.args(args).env_clear().envs(self.environment()).stdout(Stdio::null()).stderr(Stdio::null());
        Running { process: Mortal(command.spawn().unwrap()), admin: free[1] }
    }
}

/// The items of the sources of this kind in the pod's volume, each with the source's name.
fn mounted<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let [volume] = items(&pod(objects)["volumes"]) else { panic!("one volume") };
    let sources = items(&volume["projected"]["sources"]).iter().map(move |source| &source[kind]);
    sources.flat_map(|source| items(&source["items"]).iter().map(|item| (word(&source["name"]), item)))
}

pub fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn put(folder: &Path, item: &Value, content: &str) {
    let path = folder.join(word(&item["path"]));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn made_up(region: &str) -> BTreeMap<(&'static str, &'static str), String> {
    let folder = tempfile::tempdir().unwrap();
    let name = RegionName::parse(region).unwrap();
    issue::generate(std::slice::from_ref(&name)).unwrap().write(folder.path()).unwrap();
    let files = identity::files_in(folder.path(), &name);
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    BTreeMap::from([
        (("onceway-store", "url"), "postgres://onceway_gateway@127.0.0.1:1/onceway".to_owned()),
        (("onceway-store", "ca.crt"), read(&files.authorities)),
        (("onceway-peer", "tls.crt"), read(&files.certificate)),
        (("onceway-peer", "tls.key"), read(&files.key)),
        (("onceway-peer", "ca.crt"), read(&files.authorities)),
        (("onceway-admin", "token"), "0123456789abcdef0123456789abcdef\n".to_owned()),
    ])
}

struct Running {
    process: Mortal,
    admin: SocketAddr,
}

impl Running {
    /// The status of `GET path`, as a kubelet asks: without a token, by a name unknown here.
    fn status(&mut self, path: &str) -> u16 {
        let begun = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(self.admin) {
                Ok(stream) => break stream,
                Err(_) => {
                    let runs = self.process.0.try_wait().unwrap().is_none();
                    assert!(runs && begun.elapsed() < PATIENCE, "the gateway does not listen");
                    std::thread::yield_now();
                }
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: ready.example.com\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// Every path that an outside program asks for, by the file that says so.
fn asked() -> Vec<(&'static str, String)> {
    let (objects, _) = region("us-east");
    let probe = |name: &str| word(&container(&objects)[name]["httpGet"]["path"]).to_owned();
    let inside = |file: &str, sign: &str, end: &str| between(&text(file), sign, end).to_owned();
    let exact = paths(&objects).into_iter().filter(|path| path["pathType"] == "Exact");
    let mut all: Vec<_> = exact.map(|path| ("the ingress", word(&path["path"]).to_owned())).collect();
    all.extend([
        ("the liveness probe", probe("livenessProbe")),
        ("the readiness probe", probe("readinessProbe")),
        ("Route 53", inside("deploy/dns/route53/main.tf", "resource_path     = \"", "\"")),
        ("PowerDNS", inside("deploy/dns/powerdns/example.com.zone", "https://ready.example.com", "'")),
        ("CoreDNS", inside("deploy/dns/coredns/zones", "\"https://$check", "\"")),
    ]);
    all
}

#[test]
fn a_gateway_with_the_pods_files_answers_every_probe() {
    let pod = Pod::of("us-east");
    let mut running = pod.start(true);
    let asked = asked();
    assert_eq!(asked.len(), 6);
    for (who, path) in asked {
        assert_eq!(running.status(&path), 200, "{who} asks for {path}");
    }
    assert_eq!(running.status("/v1/status"), 401, "everything else asks for the token");
}

/// A front gets the answer to wait, and the kubelet does not restart it.
#[test]
fn a_gateway_without_store_is_alive_but_unready() {
    let pod = Pod::of("us-east");
    let mut running = pod.start(false);
    for (who, path) in asked() {
        let expected = if who == "the liveness probe" { 200 } else { 503 };
        assert_eq!(running.status(&path), expected, "{who} asks for {path}");
    }
}
